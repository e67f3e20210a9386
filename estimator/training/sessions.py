"""Opens the session of a training, and another one after an error that may pass."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.input_position import InputPosition
from estimator.checkpoint.writer import CheckpointWriter, tell_of_earlier_runs
from estimator.cluster.task_health import TaskHealth
from estimator.console import log
from estimator.session import retries
from estimator.session.hooked_session import coordinated
from estimator.session.opening import Setup, opened
from estimator.session.signals import StopSignal
from estimator.summary.event_writer import EventWriter
from estimator.training.first_calls import FirstCalls
from estimator.training.joining import WatchedTasks, guarded
from estimator.training.open_training import OpenTraining
from estimator.training.request import TrainResult
from estimator.training.start import graph_written, start_or_resume
from estimator.training.stop_reasons import StopReasons
from estimator.training.training_loop import TrainRun


@dataclasses.dataclass(frozen=True)
class SessionParts:
    """What each session of a training uses.

    Attributes:
      setup: initializes or restores it.
      first_calls: makes its first calls.
      checkpoints: writes checkpoints; None if a hook does.
      position: saves the position of the input; None if it is not saved.
      events: writes the event file of `model_dir`.
    """

    setup: Setup
    first_calls: FirstCalls
    checkpoints: CheckpointWriter | None
    position: InputPosition | None
    events: EventWriter


def run_sessions(training: OpenTraining, parts: SessionParts, tasks: WatchedTasks) -> TrainResult:
    """Trains in a session, and after an error that may pass in another one; returns the result.

    Workers that run in lockstep do not go on after an error, nor does a worker that has lost a task
    it needs. Nor does any once the last save has begun: hooks and listeners do not end twice.

    Args:
      training: the training run.
      parts: what its sessions use.
      tasks: the cluster's tasks that are watched.
    """
    stopping = StopReasons(training)
    newest: str | None = None
    num_failures = 0
    while True:
        try:
            return _run_session(training, parts, tasks, stopping)
        except tf.errors.OpError as error:
            cause = retries.passing_cause(error)
            if cause is None or not _can_go_on(training, stopping, tasks):
                raise
            found = _newest_checkpoint(training)
            is_new = found is not None and found != newest
            newest, num_failures = (found, 1) if is_new else (newest, num_failures + 1)
            if num_failures > len(retries.WAITS_SECS):
                raise
            wait_secs = retries.WAITS_SECS[num_failures - 1]
            log.warning(
                "Training failed: %s. It goes on in a new session in %g s%s.",
                cause,
                wait_secs,
                "" if parts.position is not None else ", with its input from the beginning",
            )
        _wait(training.stop, wait_secs)


def _newest_checkpoint(training: OpenTraining) -> str | None:
    """Returns the newest checkpoint; None if there is none, or if the file system is away."""
    with contextlib.suppress(tf.errors.OpError):
        return files.latest_checkpoint(str(training.config.model_dir))
    return None


def _can_go_on(training: OpenTraining, stopping: StopReasons, tasks: WatchedTasks) -> bool:
    is_stopping = stopping.is_ending or training.stop.received is not None
    return training.worker_group.decides_alone and not is_stopping and tasks.needed.is_whole()


def _wait(stop: StopSignal, secs: float) -> None:
    """Waits; ends the process if a signal is received."""
    end = time.monotonic() + secs
    while stop.received is None and time.monotonic() < end:
        time.sleep(0.1)
    stop.end_process()


def _run_session(
    training: OpenTraining,
    parts: SessionParts,
    tasks: WatchedTasks,
    stopping: StopReasons,
) -> TrainResult:
    """Opens a session on the newest checkpoint, and trains."""
    checkpoints, runtime = parts.checkpoints, training.program.runtime
    model_dir = str(training.config.model_dir)
    paths = files.checkpoints_newest_first(model_dir)
    runtime.start()
    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.restarting_after_failure())
        stack.callback(training.session.leave)
        session, path = stack.enter_context(_opened(training, parts.setup, paths, tasks.needed))
        stack.enter_context(guarded(training, session, tasks.needed))
        if checkpoints is not None:
            stack.callback(checkpoints.wait)  # For one that an error leaves unfinished.
        is_input_resumed, step = start_or_resume(
            training,
            session,
            parts.first_calls,
            checkpoints,
            parts.position,
            path,
            paths,
            is_same_input=training.request.is_same_input or stopping.first_step is not None,
        )
        if checkpoints is None and path is not None and training.worker_group.is_chief:
            tell_of_earlier_runs(parts.setup.saver, model_dir)
        stack.enter_context(graph_written(training, checkpoints))
        training.session.start(session, stack.enter_context(coordinated(session)))
        run = TrainRun(training, tasks, checkpoints, parts.events, stopping, path, step)
        return run.run(is_input_resumed)


@contextlib.contextmanager
def _opened(
    training: OpenTraining, setup: Setup, paths: Sequence[str], needed: TaskHealth
) -> Iterator[tuple[tf.compat.v1.Session, str | None]]:
    """Opens a session; yields it and the path of the checkpoint that was restored, or None."""
    connection, check = training.request.connection, training.stop.check_waiting
    wait = functools.partial(needed.wait_for, check=check) if needed else None
    timeout_secs = training.config.session_creation_timeout_secs
    copies_for = training.program.copies_for
    with (
        _tf.hashable_tensors(),  # What hooks and `init_fn` feed may be inside the loop.
        opened(setup, paths, connection.target, timeout_secs, wait, copies_for) as (session, path),
    ):
        if not isinstance(session, _tf.InterruptibleSession):
            yield session, path
            return
        # From here on, a signal ends training after the current loop.
        session.wait = needed.wait_for if connection.has_remote_calls else None
        try:
            yield session, path
        finally:
            # Closing the session would hang on a task that is gone; nothing watches them any more.
            session.wait = needed.wait_for
