"""A task's process, and all that it starts."""

from __future__ import annotations

import contextlib
import glob
import os
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
from estimator_launch.watchdog import Watchdog

# How long to wait for the last lines of a process that has ended: they are in the pipes already,
# but a process that it left behind may keep these open.
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
        """Starts it.

        Args:
          task: which it is.
          command: what it runs.
          tf_config: its TF_CONFIG.
          output: where its lines go.
          report: called, in another thread, with this object when the process has ended; and with
            SIGPIPE if its output cannot be written.
          watchdog: ends the process if this one is killed.

        Raises:
          OSError: it cannot be started.
        """
        self.task = task
        self._report = report
        self._watchdog = watchdog
        self._is_group_gone = False
        self._process = subprocess.Popen(
            command,
            # Python writes whole blocks to a pipe: lines would come late, or never.
            env=environment_with(TF_CONFIG=tf_config, PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # The terminal's Ctrl-C is for the launcher, which tells its tasks in its own way.
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
        """The exit code of a process that has ended, as a shell has it: 128 + n for signal n."""
        code = self._process.returncode
        return 128 - code if code < 0 else code

    def describe_status(self) -> str:
        """How it ended."""
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name
        reason = ": out of memory, if nobody sent it" if name == "SIGKILL" else ""
        return f"was ended by {name}{reason}"

    def is_alive(self) -> bool:
        """Whether the process, or another one of its group, has not ended."""
        return self._process.poll() is None or (
            self.send_signal(0) and _has_living_process(self._process.pid)
        )

    def send_signal(self, number: int) -> bool:
        """Sends a signal to the whole group; returns whether there was anyone to send it to."""
        if self._is_group_gone:  # Its number may be another's by now.
            return False
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # The latter on macOS, for the dead.
            self._is_group_gone = True
            self._watchdog.forget(self.pid)
        return not self._is_group_gone

    def kill(self) -> None:
        """Ends the whole group at once."""
        self.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # It hangs in the kernel.
            self._process.wait(_KILL_SECS)

    def drain(self) -> None:
        """Waits until the lines of a process that has ended are copied."""
        deadline = time.monotonic() + _DRAIN_SECS
        for copier in self._copiers:
            copier.join(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Parts with a process that has ended, and with the zombies that it may have left."""
        self._is_group_gone = True
        self._watchdog.forget(self.pid)

    def _start_thread(self, target: Callable, *args: Any) -> threading.Thread:
        # A daemon: the program ends although a process that left the group keeps a pipe open.
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def _copy(self, output: Output, pipe: IO[bytes], stream: RawIOBase) -> None:
        try:
            output.copy_lines(str(self.task), pipe, stream)
        except OSError:
            # The pipe stays open: the task is to hear of it by SIGTERM, and not by an error.
            self._report(signal.SIGPIPE)
        else:
            pipe.close()

    def _wait(self) -> None:
        self._process.wait()
        self.send_signal(0)
        self._report(self)


def _has_living_process(group: int) -> bool:
    """Whether any process of a group that exists is more than a zombie.

    A process whose parent has ended stays one until init looks, which may take its time.
    """
    paths = glob.glob("/proc/[0-9]*/stat")
    for path in paths:
        # "pid (name) state parent group ...": the process may end while we look.
        with contextlib.suppress(OSError), open(path, "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return not paths  # Without /proc, what exists is taken to live.
