"""Runs a module of this package in a process of its own, and gets its answer back."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_REPOSITORY = Path(__file__).parents[1]


def run_in_process(
    module: str, folder: Path = _REPOSITORY, *, ends_all: bool = False, **arguments: object
) -> dict:
    """`python -m module`, which must call `answer`; arguments and answer travel as JSON.

    The packages are those of `folder`. However the call ends, the process has ended; with
    `ends_all`, so have those that it started and left.

    Raises:
        RuntimeError: the process failed; the message has the end of what it printed.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=ends_all,
    )
    try:
        output, errors = process.communicate()
    finally:
        if ends_all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{module} {arguments} failed:\n{errors[-4000:]}")
    return json.loads(output.splitlines()[-1])


def end_on_signals() -> None:
    """Has SIGTERM and SIGHUP end the program as Ctrl-C does: `finally` ends its processes."""

    def interrupt(number: int, frame: object) -> None:
        del frame
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)


def answer(measure: Callable[..., dict]) -> None:
    """The other end of `run_in_process`: calls `measure(**arguments)`, prints its result.

    Its large frame has room in one piece of memory for all frames above it. Otherwise, on CPython
    3.11 or later, what a call takes depends on how deep the stack is (docs/decisions/program.md).
    """
    print(json.dumps(measure(**json.loads(sys.argv[1]))))


answer.__code__ = answer.__code__.replace(co_stacksize=1 << 14)
