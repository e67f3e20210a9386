"""Runs all tasks of a job, restarts them after a failure, and ends them together."""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from estimator.config.cluster import PS
from estimator_launch.output import Output
from estimator_launch.process import TaskProcess
from estimator_launch.tasks import Task, make_tf_configs
from estimator_launch.watchdog import Watchdog

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How often to check whether tasks have ended after SIGTERM.
_POLL_SECS = 0.05


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
      tasks: the tasks of the cluster.
      command: the command line that each task runs.
      num_restarts: how many times to restart all tasks after one has failed.
      grace_secs: the time from SIGTERM to SIGKILL.
    """

    tasks: Sequence[Task]
    command: Sequence[str]
    num_restarts: int = 0
    grace_secs: float = 30.0


@dataclass(frozen=True)
class _End:
    """How an attempt ended."""

    status: int = 0
    is_stopped: bool = False  # A signal to the launcher ended it, so there is no restart.


def run_job(job: Job, output: Output) -> int:
    """Runs the job, restarts it after failures, and leaves no process behind.

    A job is done when all tasks but the ps have exited with 0; the ps then get SIGTERM. The first
    other exit code ends all tasks, and so does a signal to this process, even SIGKILL.

    Returns:
      0, the exit code of the first task that failed, or 128 + n for the signal n.
    """
    events: queue.SimpleQueue[TaskProcess | signal.Signals] = queue.SimpleQueue()
    with _signals_to(events), contextlib.closing(Watchdog(job.grace_secs)) as watchdog:
        for num_left in reversed(range(job.num_restarts + 1)):
            end = _Attempt(job, output, events, watchdog).run()
            if end.status == 0 or end.is_stopped or num_left == 0:
                break
            output.say(f"Starting all tasks again ({num_left} of {job.num_restarts} restarts left)")
    return end.status


@contextlib.contextmanager
def _signals_to(events: queue.SimpleQueue) -> Iterator[None]:
    """Puts SIGINT, SIGTERM and SIGHUP into `events` inside the block; ignored ones stay ignored."""

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        events.put(signal.Signals(number))

    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


class _Attempt:
    """One attempt at running the job: starts all tasks once."""

    def __init__(
        self, job: Job, output: Output, events: queue.SimpleQueue, watchdog: Watchdog
    ) -> None:
        self._job = job
        self._output = output
        self._events = events
        self._watchdog = watchdog
        self._processes: list[TaskProcess] = []

    def run(self) -> _End:
        """Starts the tasks, waits, and ends all of them, even after an exception."""
        try:
            self._start()
            end = self._wait()
        finally:
            last_signal = self._stop()
        if last_signal is not None and not end.is_stopped:
            return _End(end.status or 128 + last_signal, is_stopped=True)
        return end

    def _start(self) -> None:
        for task, tf_config in make_tf_configs(self._job.tasks).items():
            self._processes.append(
                TaskProcess(
                    task,
                    self._job.command,
                    tf_config,
                    self._output,
                    self._events.put,
                    self._watchdog,
                )
            )
        names = ", ".join(f"{process.task} (pid {process.pid})" for process in self._processes)
        self._output.say(f"Started {names}")

    def _wait(self) -> _End:
        """Waits until the job is done, a task has failed, or a signal was received."""
        awaited = {process for process in self._processes if process.task.role != PS}
        while awaited:
            event = self._events.get()
            if isinstance(event, signal.Signals):
                self._output.say(f"{event.name}: ending all tasks")
                return _End(128 + event, is_stopped=True)
            if event in self._processes and event.status:
                event.drain()
                self._output.say(f"{event.task} {event.describe_status()}; ending all tasks")
                return _End(event.status)
            awaited.discard(event)
        return _End()

    def _stop(self) -> signal.Signals | None:
        """Ends the tasks that still run; a signal meanwhile, which is returned, kills them."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._job.grace_secs
        last_signal = None
        while any(process.is_alive() for process in self._processes):
            if last_signal is not None or time.monotonic() >= deadline:
                when = f"{self._job.grace_secs:g} s after SIGTERM (--grace_secs)"
                if last_signal is not None:
                    when = f"when {last_signal.name} was received"
                self._kill(when)
                break
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=_POLL_SECS)
                if event in _SIGNALS:
                    last_signal = event
        for process in self._processes:
            process.drain()
            process.close()
        return last_signal

    def _kill(self, when: str) -> None:
        alive = [process for process in self._processes if process.is_alive()]
        names = ", ".join(str(process.task) for process in alive)
        self._output.say(f"SIGKILL to {names}, still running {when}")
        for process in alive:
            process.kill()
