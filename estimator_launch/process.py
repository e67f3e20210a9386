"""The process of a task, and the processes that it starts."""

from __future__ import annotations

import contextlib
import glob
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from io import RawIOBase
from typing import IO, Any

from estimator.config.cluster import environment_with
from estimator_launch.output import Output
from estimator_launch.tasks import Task
from estimator_launch.watchdog import Watchdog, signal_group

# How long to wait for the last lines of a process that has ended. They are in the pipes already,
# but a child process that still runs may keep the pipes open.
_DRAIN_SECS = 0.5
_KILL_SECS = 5.0


class TaskProcess:
    """A process in a process group of its own, whose output is copied line by line."""

    def __init__(
        self,
        task: Task,
        command: Sequence[str],
        tf_config: str,
        output: Output,
        report: Callable[[TaskProcess | signal.Signals], None],
        watchdog: Watchdog,
    ) -> None:
        """Starts the process.

        Args:
          task: the task that the process runs.
          command: the command line.
          tf_config: the value of TF_CONFIG.
          output: where its lines are written.
          report: called in another thread: with this object when the process has ended, and with
            SIGPIPE if its output cannot be written.
          watchdog: ends the process if the launcher is killed.

        Raises:
          OSError: the process cannot be started.
        """
        self.task = task
        self._report = report
        self._watchdog = watchdog
        self._is_group_gone = False
        self._process = subprocess.Popen(
            command,
            # Python buffers output to a pipe in blocks: lines would be late, or lost.
            env=environment_with(TF_CONFIG=tf_config, PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Only the launcher gets the terminal's Ctrl-C; it then sends SIGTERM to its tasks.
            start_new_session=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        streams = (self._process.stdout, output.stdout), (self._process.stderr, output.stderr)
        watchdog.watch(self.pid, [pipe.fileno() for pipe, _ in streams])
        self._copiers = [
            self._start_thread(self._copy, output, pipe, stream) for pipe, stream in streams
        ]
        self._start_thread(self._wait)

    @property
    def status(self) -> int:
        """The exit code of the ended process, as in a shell: 128 + n for the signal n."""
        code = self._process.returncode
        return 128 - code if code < 0 else code

    def describe_status(self) -> str:
        """Returns how the process ended, in words."""
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        reason = " (possibly out of memory)" if name == "SIGKILL" else ""
        return f"was ended by {name}{reason}"

    def is_alive(self) -> bool:
        """Returns whether the process, or another one of its process group, still runs."""
        return self._process.poll() is None or (
            self.send_signal(0) and _has_living_process(self.pid)
        )

    def send_signal(self, number: int) -> bool:
        """Sends a signal to the process group; returns whether the group still exists."""
        # The id of a group that is gone may have been reused by now.
        if not self._is_group_gone and not signal_group(self.pid, number):
            self.close()
        return not self._is_group_gone

    def kill(self) -> None:
        """Kills the process group."""
        self.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # It may hang in the kernel.
            self._process.wait(_KILL_SECS)

    def drain(self) -> None:
        """Waits until the last lines of an ended process are copied."""
        deadline = time.monotonic() + _DRAIN_SECS
        for copier in self._copiers:
            copier.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stops watching the process group, which has ended except perhaps for zombies."""
        self._is_group_gone = True
        self._watchdog.forget(self.pid)

    def _start_thread(self, target: Callable, *args: Any) -> threading.Thread:
        # A daemon thread, so that the launcher can exit while another process keeps a pipe open.
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def _copy(self, output: Output, pipe: IO[bytes], stream: RawIOBase) -> None:
        try:
            output.copy_lines(str(self.task), pipe, stream)
        except OSError:
            # The pipe stays open, so that the task gets SIGTERM, and not an error when it prints.
            self._report(signal.SIGPIPE)
        else:
            pipe.close()

    def _wait(self) -> None:
        self._process.wait()
        self.send_signal(0)
        self._report(self)


def _has_living_process(group: int) -> bool:
    """Returns whether any process of an existing group is not a zombie.

    A zombie whose parent has ended remains until init reaps it, which may take long.
    """
    paths = glob.glob("/proc/[0-9]*/stat")
    for path in paths:
        # "pid (name) state parent group ...": the process may end while we look.
        with contextlib.suppress(OSError), open(path, "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return not paths  # Without /proc, an existing group counts as running.
