"""Runs a module of this package in a process of its own, and gets its answer back."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_REPOSITORY = Path(__file__).parents[1]


def run_in_process(module: str, folder: Path = _REPOSITORY, **arguments: object) -> dict:
    """`python -m module`, which must call `answer`; arguments and answer travel as JSON.

    The packages are those of `folder`.

    Raises:
        RuntimeError: the process failed; the message has the end of what it printed.
    """
    command = [sys.executable, "-m", module, json.dumps(arguments)]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise RuntimeError(f"{module} {arguments} failed:\n{completed.stderr[-4000:]}")
    return json.loads(completed.stdout.splitlines()[-1])


def answer(measure: Callable[..., dict]) -> None:
    """The other end of `run_in_process`: calls `measure(**arguments)`, prints its result."""
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
