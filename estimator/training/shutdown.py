"""Ends training in a cluster: tells the other tasks, and waits for those that must finish first."""

from __future__ import annotations

import signal
from collections.abc import Callable

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.cluster.stop_policies import STOP_POLICIES, StopPolicy, stop_policy_name
from estimator.training.joining import WatchedTasks
from estimator.training.open_training import OpenTraining
from estimator.training.step_runner import StepRunner

_STALL_SECS = 30.0


class StallDetector:
    """Detects that the global step, which other tasks advance, has not changed for a long time."""

    def __init__(self, read_step: Callable[[], int], clock: Callable[[], float]) -> None:
        """Starts the timer.

        Args:
          read_step: returns the global step.
          clock: returns seconds since an arbitrary fixed time.
        """
        self._read_step, self._clock = read_step, clock
        self._step, self._since = -1, clock()

    def is_stalled(self) -> bool:
        """Reads the step; returns whether it has stalled."""
        step = self._read_step()
        if step != self._step:
            self._step, self._since = step, self._clock()
        return self._clock() - self._since >= _STALL_SECS


class Shutdown:
    """Leaves the cluster in order: `begin` announces the stop, the caller saves, `end` leaves.

    Workers that run in lockstep leave together, after the chief's last save: on none of them does
    `train` return before the last checkpoint is complete.
    """

    def __init__(self, training: OpenTraining, steps: StepRunner, tasks: WatchedTasks) -> None:
        """Keeps its arguments; `begin` is the first to contact other tasks.

        Args:
          training: the training run that ends.
          steps: reads the last step again, as other workers may advance it after this one stops.
          tasks: the tasks to stop watching.
        """
        self._training = training
        self._group, self._session = training.worker_group, training.session.session
        self._steps = steps
        self._tasks = tasks
        self._clock = training.request.clock

    def begin(self, reason: str) -> str:
        """Announces that this worker stops; the chief waits for the others unless it must hurry.

        Returns:
          The reason to stop, which is "signal" if the chief or a ps task got one meanwhile.
        """
        reason = self._stop(reason)
        if self._group.is_chief and not self._group.is_in_lockstep:
            self._steps.read_step()
        if not self._group.needs_others_to_end:
            self._tasks.needed.release()
        return reason

    def end(self, reason: str) -> None:
        """Leaves the cluster after the last step is saved; the chief may wait for workers first."""
        patience_secs = self._policy(reason).patience_secs
        if patience_secs is not None:
            end = self._clock() + patience_secs
            self._wait_for_others(lambda: self._clock() >= end)
        self._leave_together(reason)
        self._tasks.needed.release()

    def _leave_together(self, reason: str) -> None:
        """Meets the others; the chief comes when the last checkpoint is complete."""
        if isinstance(self._session, _tf.InterruptibleSession):
            # The chief no longer watches the others, and must not wait for one that is gone.
            self._session.wait = self._tasks.needed.wait_for
        try:
            self._group.meet(self._session)
        except (tf.errors.OpError, RuntimeError):  # The session is closed if the watch lost a task.
            # The first worker to leave may exit before the others have their answers.
            if not (self._group.is_chief or reason == "nan loss" or self._is_saved()):
                raise

    def _is_saved(self) -> bool:
        latest = files.latest_checkpoint(str(self._training.config.model_dir))
        return latest is not None and files.checkpoint_step(latest) == self._steps.step

    def _stop(self, reason: str) -> str:
        """Tells the others; returns the reason, as a signal may be received during the wait."""
        self._group.meet(self._session)
        policy = self._policy(reason)
        if policy.stops_others_from(self._group.is_chief):
            name = stop_policy_name(reason, self._training.stop.received)
            self._group.say_stop(self._session, name)
        self._group.say_done(self._session)
        if not self._group.is_in_lockstep and _has_tokens(self._training.program.graph):
            # A worker may wait for this one's gradient.
            self._training.session.stop_queues()
        if policy.patience_secs is None and self._wait_for_others(self._is_signalled):
            return self._stop("signal")
        return reason

    def _policy(self, reason: str) -> StopPolicy:
        return STOP_POLICIES[stop_policy_name(reason, self._training.stop.received)]

    def _is_signalled(self) -> bool:
        """Returns whether this task or a ps task has received a signal."""
        stop, reason = self._training.stop, self._group.read_stop_reason(self._session)
        if stop.received is None and reason is not None and STOP_POLICIES[reason].exit_status:
            stop.received = signal.Signals[reason]
        return stop.received is not None

    def _wait_for_others(self, is_enough: Callable[[], bool]) -> bool:
        stall = StallDetector(self._training.read_step, self._clock)
        replaceable = self._tasks.replaceable
        # A server in a process of its own outlives its worker, so it cannot show that one is gone.
        is_lost = replaceable.is_gone if replaceable else lambda name: stall.is_stalled()
        return self._group.wait_for_others(self._session, is_lost, is_enough)


def _has_tokens(graph: tf.Graph) -> bool:
    """Returns whether workers wait in the queue of a SyncReplicasOptimizer."""
    queues = (op for op in graph.get_operations() if op.type == "FIFOQueueV2")
    return any(op.get_attr("shared_name") == b"sync_token_q" for op in queues)
