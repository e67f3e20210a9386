"""The tasks of a cluster on this machine: their TF_CONFIGs, ports and command lines."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from estimator.config.cluster import CHIEF, EVALUATOR, PS, WORKER, format_tf_config

# Not "localhost", which some machines resolve to another address.
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Task:
    """One process of the cluster."""

    role: str
    index: int

    def __str__(self) -> str:
        """Returns, for example, "worker 1"."""
        return f"{self.role} {self.index}"


def make_tasks(num_workers: int, num_ps: int, has_chief: bool, has_evaluator: bool) -> list[Task]:
    """Returns the tasks: chief, workers, ps and evaluator.

    Raises:
      ValueError: no task would train.
    """
    if num_workers < 1 and not has_chief:
        raise ValueError(
            f"--workers ({num_workers}) must be at least 1, or pass --chief: otherwise no task "
            "trains."
        )
    counts = {CHIEF: int(has_chief), WORKER: num_workers, PS: num_ps, EVALUATOR: int(has_evaluator)}
    return [Task(role, index) for role, count in counts.items() for index in range(count)]


def make_tf_configs(tasks: Sequence[Task]) -> dict[Task, str]:
    """Returns the TF_CONFIG of each task, with a free port for each.

    An evaluator is not part of the training cluster and does not listen. It is listed so that a
    task that trains alone knows that it need not evaluate.
    """
    addresses: dict[str, list[str]] = {}
    for task, port in zip(tasks, _find_ports(len(tasks)), strict=True):
        addresses.setdefault(task.role, []).append(f"{_HOST}:{port}")
    return {task: format_tf_config(addresses, task.role, task.index) for task in tasks}


def _find_ports(count: int) -> list[int]:
    """Returns ports that are free on all interfaces, on which TensorFlow's servers listen.

    All are bound at the same time, so that they differ, and then released for the servers. Until a
    server binds its port, another program could take it; the server then fails with an error.
    """
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.bind(("", 0))
        return [holder.getsockname()[1] for holder in holders]


def make_command(words: Sequence[str]) -> list[str]:
    """Returns the command line for `program.py --flags`, `-m module --flags` or another command.

    Raises:
      ValueError: no program is given, or the command does not exist.
    """
    if not words:
        raise ValueError(
            "No program is given. Put it after --, as in `estimator-launch --workers=2 -- "
            "program.py --flags`."
        )
    program = words[0]
    if program == "-m" and len(words) < 2:
        raise ValueError("-m must be followed by the name of a module.")
    if program == "-m" or program.endswith(".py"):
        return [sys.executable, *words]
    path = shutil.which(program)
    if path is None:
        raise ValueError(
            f"The program ({program!r}) must be a Python file that ends in .py, -m and the name of "
            "a module, or a command that can be run. There is no such command."
        )
    return [path, *words[1:]]
