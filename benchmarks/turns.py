"""Contenders of several processes that take turns: the two ends of the pipes between.

A task trains as any contender does, and calls `report` between its steps. That of `Turns` asks on
stdin how many steps to run next, and answers on stdout how long they took. `TaskGroup` starts the
tasks of one contender and gives them their turns, so that the tasks of the others stand still.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from estimator_launch.tasks import Task, make_tf_configs

_REPOSITORY = Path(__file__).parents[1]
_END_SECS = 60


class Turns:
    """A `report` for a task: waits for its turn, and answers how long it took."""

    def __init__(self) -> None:
        """The first turn is the first call's steps."""
        self._steps_left = 0
        self._is_over = False
        self._start = time.perf_counter()

    def __call__(self, num_steps: int) -> bool:
        """So many steps are over; returns whether to go on."""
        now = time.perf_counter()
        if self._is_over:  # Workers that stop together run a loop in which they agree to.
            return False
        self._steps_left -= num_steps
        if self._steps_left > 0:
            return True
        print(json.dumps(now - self._start), flush=True)
        self._steps_left = int(sys.stdin.readline() or 0)
        self._is_over = self._steps_left <= 0
        self._start = time.perf_counter()
        return not self._is_over


class TaskGroup:
    """The processes of one contender."""

    def __init__(
        self,
        tasks: Sequence[Task],
        arguments: dict,
        folder: Path = _REPOSITORY,
        module: str = "benchmarks.cluster_task",
        python: str = sys.executable,
    ) -> None:
        """Starts `module` with these arguments as each of the tasks.

        Without tasks, it is one process without a cluster. The packages are those of `folder`.

        Raises:
          RuntimeError: a task failed.
        """
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  Closed by `kill`.
        self._folder = folder
        self._command = [python, "-m", module, json.dumps(arguments)]
        configs = make_tf_configs(tasks)
        self._workers, servers = [], []
        for task in tasks:
            kind = self._workers if task.role == "worker" else servers
            kind.append(self._start({"TF_CONFIG": configs[task]}))
        if not tasks:
            self._workers.append(self._start({}))
        self._processes = [*self._workers, *servers]
        for process in servers:
            threading.Thread(target=self._end_with, args=[process], daemon=True).start()
        try:
            self._read_answers()
        except BaseException:
            self.kill()
            raise

    def measure(self, num_steps: int) -> float:
        """Lets each worker run so many steps; returns the seconds until the last has done so."""
        for process in self._workers:
            print(num_steps, file=process.stdin, flush=True)
        return max(self._read_answers())

    def stop(self) -> None:
        """Lets the workers end by themselves, and ends the ps."""
        for process in self._workers:
            print(0, file=process.stdin, flush=True)
        for process in self._workers:
            if process.wait(_END_SECS):
                raise self._make_error()

    def kill(self) -> None:
        """Ends every process that is left."""
        for process in self._processes:
            process.kill()
            process.communicate()
        self._errors.close()

    def _start(self, variables: dict[str, str]) -> subprocess.Popen:
        return subprocess.Popen(
            self._command,
            cwd=self._folder,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def _end_with(self, ps: subprocess.Popen) -> None:
        """Workers would wait for a ps that is gone."""
        ps.wait()
        for process in self._workers:
            process.kill()

    def _read_answers(self) -> list[float]:
        answers = [process.stdout.readline() for process in self._workers]
        if not all(answers):
            raise self._make_error()
        return [json.loads(answer) for answer in answers]

    def _make_error(self) -> RuntimeError:
        self._errors.seek(0)
        return RuntimeError(f"a task failed:\n{self._errors.read()[-4000:]}")


@contextlib.contextmanager
def started_groups(
    tasks: Sequence[Task], contenders: dict[str, dict]
) -> Iterator[dict[str, TaskGroup]]:
    """A group for each contender; all of them are gone at the end."""
    groups: dict[str, TaskGroup] = {}
    try:
        for name, arguments in contenders.items():
            groups[name] = TaskGroup(tasks, arguments)
        yield groups
        for group in groups.values():
            group.stop()
    finally:
        for group in groups.values():
            group.kill()
