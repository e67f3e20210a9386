"""The tasks of a cluster on this machine: where each listens, and what it runs."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from estimator.config.cluster import CHIEF, EVALUATOR, PS, WORKER, format_tf_config

# As a number: what "localhost" means is not the same on all machines.
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Task:
    """One process of the cluster."""

    role: str
    index: int

    def __str__(self) -> str:
        """As in "worker 1"."""
        return f"{self.role} {self.index}"


def make_tasks(num_workers: int, num_ps: int, has_chief: bool, has_evaluator: bool) -> list[Task]:
    """The tasks, those that train first.

    Raises:
      ValueError: none of them would train.
    """
    if num_workers < 1 and not has_chief:
        raise ValueError(
            f"--workers ({num_workers}) must be at least 1, or there must be a --chief: nobody "
            "would train."
        )
    counts = {CHIEF: int(has_chief), WORKER: num_workers, PS: num_ps, EVALUATOR: int(has_evaluator)}
    return [Task(role, index) for role, count in counts.items() for index in range(count)]


def make_tf_configs(tasks: Sequence[Task]) -> dict[Task, str]:
    """TF_CONFIG for each task, with a free port for each.

    An evaluator stands outside of the training cluster and does not listen. It is listed because
    a task that trains alone cannot know otherwise that it need not evaluate.
    """
    addresses: dict[str, list[str]] = {}
    for task, port in zip(tasks, _find_ports(len(tasks)), strict=True):
        addresses.setdefault(task.role, []).append(f"{_HOST}:{port}")
    return {task: format_tf_config(addresses, task.role, task.index) for task in tasks}


def _find_ports(count: int) -> list[int]:
    """Ports that are free on all interfaces, where TensorFlow's servers listen.

    They are held together, so that no two are the same, and let go for the servers to take. In the
    seconds until these do, another program could take one: then the server says so and ends.
    """
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.bind(("", 0))
        return [holder.getsockname()[1] for holder in holders]


def make_command(words: Sequence[str]) -> list[str]:
    """What to run for `program.py --flags`, `-m module --flags` or any other command.

    Raises:
      ValueError: there is no program, or no such program.
    """
    if not words:
        raise ValueError(
            "There is no program. It stands after --, as in `estimator-launch --workers=2 -- "
            "program.py --flags`."
        )
    program = words[0]
    if program == "-m":
        if len(words) < 2:
            raise ValueError("-m must be followed by the name of a module.")
        return [sys.executable, *words]
    if program.endswith(".py"):
        return [sys.executable, *words]
    path = shutil.which(program)
    if path is None:
        raise ValueError(
            f"The program ({program!r}) must be a Python file that ends in .py, -m and the name of "
            "a module, or a command that can be run. There is no such command."
        )
    return [path, *words[1:]]
