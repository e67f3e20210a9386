"""Runs all tasks of a job, restarts them after a failure, and ends them together."""

from __future__ import annotations

import contextlib
import queue
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

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
            end = _run_once(job, output, events, watchdog)
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

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = {number: old for number, old in before.items() if old != signal.SIG_IGN}
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, old in ours.items():
            signal.signal(number, old)


def _run_once(job: Job, output: Output, events: queue.SimpleQueue, watchdog: Watchdog) -> _End:
    """Starts the tasks, waits, and ends all of them, even after an exception."""
    processes: list[TaskProcess] = []
    try:
        for task, tf_config in make_tf_configs(job.tasks).items():
            processes.append(
                TaskProcess(task, job.command, tf_config, output, events.put, watchdog)
            )
        names = ", ".join(f"{process.task} (pid {process.pid})" for process in processes)
        output.say(f"Started {names}")
        end = _wait(processes, output, events)
    finally:
        last_signal = _stop(processes, output, events, job.grace_secs)
    if last_signal is not None and not end.is_stopped:
        return _End(end.status or 128 + last_signal, is_stopped=True)
    return end


def _wait(processes: Sequence[TaskProcess], output: Output, events: queue.SimpleQueue) -> _End:
    """Waits until the job is done, a task has failed, or a signal was received."""
    awaited = {process for process in processes if process.task.role != PS}
    while awaited:
        event = events.get()
        if isinstance(event, signal.Signals):
            output.say(f"{event.name}: ending all tasks")
            return _End(128 + event, is_stopped=True)
        if event in processes and event.status:
            event.drain()
            output.say(f"{event.task} {event.describe_status()}; ending all tasks")
            return _End(event.status)
        awaited.discard(event)
    return _End()


def _stop(
    processes: Sequence[TaskProcess], output: Output, events: queue.SimpleQueue, grace_secs: float
) -> signal.Signals | None:
    """Ends the tasks that still run; a signal meanwhile, which is returned, kills them."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_secs
    last_signal = None
    while alive := [process for process in processes if process.is_alive()]:
        if last_signal is not None:
            _kill(alive, output, f"when {last_signal.name} was received")
            break
        if time.monotonic() >= deadline:
            _kill(alive, output, f"{grace_secs:g} s after SIGTERM (--grace_secs)")
            break
        with contextlib.suppress(queue.Empty):
            event = events.get(timeout=_POLL_SECS)
            if event in _SIGNALS:
                last_signal = event
    for process in processes:
        process.drain()
        process.close()
    return last_signal


def _kill(alive: Sequence[TaskProcess], output: Output, when: str) -> None:
    names = ", ".join(str(process.task) for process in alive)
    output.say(f"SIGKILL to {names}, still running {when}")
    for process in alive:
        process.kill()
