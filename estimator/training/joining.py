"""Joins the tasks of a cluster for a training: waits for them, compares programs, watches them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from estimator import _tf
from estimator.cluster.server import say_waiting
from estimator.cluster.stop_policies import exit_status
from estimator.cluster.task_health import TaskHealth
from estimator.cluster.worker_group import WorkerGroup
from estimator.console import log
from estimator.hooks.stock_hooks_in_loops import describe_stops, saver_hooks
from estimator.training.end_record import (
    CHIEF_ANSWERS_SECS,
    NothingLeftError,
    is_training_over,
    warn_of_absent_tasks,
)
from estimator.training.open_training import OpenTraining

# How long a chief waits for the workers, whose start may take some seconds longer.
_WORKERS_JOIN_SECS = 30.0

# The fields that decide what a session call runs and when training stops.
_EQUAL_FIELDS = (
    "iterations_per_loop",
    "nan_policy",
    "resume_input",
    "save_checkpoints_secs",
    "save_checkpoints_steps",
    "save_summary_steps",
    "tf_random_seed",
)


@dataclasses.dataclass(frozen=True)
class WatchedTasks:
    """The tasks that this task watches.

    Attributes:
      needed: tasks whose loss ends training with an error.
      replaceable: tasks that may be restarted while training continues.
    """

    needed: TaskHealth
    replaceable: TaskHealth


@contextlib.contextmanager
def joined(training: OpenTraining) -> Iterator[WatchedTasks]:
    """Waits until all tasks answer, checks that they agree, and watches them inside the block.

    Raises:
      NothingLeftError: training ended before this task had built its program.
      TimeoutError: a task did not answer in time.
      ValueError: a worker has a different model or config.
      tf.errors.UnavailableError: a task is gone.
    """
    config, connection = training.config, training.request.connection
    worker_group, stop = training.worker_group, training.stop
    timeout_secs, peer_secs = config.session_creation_timeout_secs, config.peer_timeout_secs
    if connection.needed and not config.is_chief:
        say_waiting(config.cluster, connection.needed)
    needed = TaskHealth(connection.needed, peer_secs)

    def open_session(graph: tf.Graph) -> tf.compat.v1.Session:
        return _tf.InterruptibleSession(connection.target, graph, connection.session_config, wait)

    wait = functools.partial(needed.wait_for, check=stop.check_waiting)
    with contextlib.closing(needed):
        needed.wait(timeout_secs, _waiting_check(training))
        with (
            _ending_with_the_others(training),
            worker_group.hearing_of_failures(needed.note_failure),
            _telling_failure(worker_group, needed),
            needed.watched(),
        ):
            worker_group.join()
            worker_group.check_consistency(_equal(training), open_session, wait)
            with contextlib.closing(TaskHealth(connection.replaceable, peer_secs)) as replaceable:
                # After SIGTERM, a call that hangs must not use up the time that is left.
                stop.when_received(needed.heartbeat.hurry)
                _wait_for_workers(replaceable, training)
                yield WatchedTasks(needed, replaceable)


def _wait_for_workers(workers: TaskHealth, training: OpenTraining) -> None:
    """Waits until all workers can begin together, but not for one that may never come.

    One may have ended before this chief was restarted.
    """
    secs = min(_WORKERS_JOIN_SECS, training.config.session_creation_timeout_secs)
    if missing := workers.find_missing(secs, training.stop.check_waiting):
        log.warning(
            "Training begins without %s, which did not answer within %g s. A worker that starts "
            "later joins in.",
            ", ".join(missing),
            secs,
        )


def _waiting_check(training: OpenTraining) -> Callable[[], None]:
    """Returns what is called repeatedly while this task waits for others.

    A task that was restarted shortly before the others ended would wait for them in vain.
    """
    config = training.config
    patience_secs = min(CHIEF_ANSWERS_SECS, config.session_creation_timeout_secs / 2)
    asked_at = time.monotonic()

    def check() -> None:
        nonlocal asked_at
        training.stop.check_waiting()
        if config.is_chief or time.monotonic() < asked_at + patience_secs:
            return
        asked_at = time.monotonic()
        _check_left(training)

    return check


@contextlib.contextmanager
def _ending_with_the_others(training: OpenTraining) -> Iterator[None]:
    """Raises NothingLeftError instead of an error if others are gone because training is over.

    A task that was restarted shortly before the others ended may lose them.
    """
    try:
        yield
    except tf.errors.UnavailableError:
        if not training.config.is_chief:
            _check_left(training)
        raise


def _check_left(training: OpenTraining) -> None:
    """Raises NothingLeftError if training is over."""
    max_steps = training.request.max_steps
    if is_training_over(training.config, max_steps):
        warn_of_absent_tasks(", ".join(training.request.connection.needed))
        training.worker_group.join()  # That this one ends is no failure, of which others hear.
        raise NothingLeftError(
            f"Training has reached `max_steps` ({max_steps}), and other tasks have ended. To train "
            "on, raise it and start all tasks again."
        )


@contextlib.contextmanager
def _telling_failure(worker_group: WorkerGroup, needed: TaskHealth) -> Iterator[None]:
    """Tells the others if the block fails, unless that follows from the loss of one of them."""
    try:
        yield
    except BaseException as error:
        if not needed.is_any_lost:
            worker_group.say_failure(error)
        raise


def _equal(training: OpenTraining) -> dict[str, object]:
    """Returns what must be equal on workers that run each step together, besides the model."""
    across = ", ".join(training.program.fetches.summaries_across_workers)
    hint = (
        " (which only the chief runs: let the `train_op` wait for it; of a metric, record the "
        "result of the update op, not the value)"
    )
    return {
        "TensorFlow": tf.__version__,
        **training.request.limits,
        **{f"`{name}`": getattr(training.config, name) for name in _EQUAL_FIELDS},
        "the number of replicas": training.program.runtime.num_replicas,
        "the number of CheckpointSaverHooks": len(saver_hooks(training.request.hooks)),
        "the step of a StopAtStepHook": describe_stops(training.request.hooks),
        "what the summaries alone read from all workers": across + hint if across else "nothing",
    }


@contextlib.contextmanager
def guarded(
    training: OpenTraining, session: tf.compat.v1.Session, needed: TaskHealth
) -> Iterator[None]:
    """Closes the session if a task is lost inside the block; publishes how the block ended."""
    worker_group, stop = training.worker_group, training.stop
    if not training.request.connection.has_remote_calls:
        needed.guard(session)
    stop.end_call = session.close
    try:
        yield
    except BaseException:
        # The ps tasks may be what is gone, and the session may be closed.
        with contextlib.suppress(tf.errors.OpError, RuntimeError):
            worker_group.say_result(session, 1)
        raise
    worker_group.say_result(session, exit_status(stop.received))
