"""Ends training in a cluster: tells the other tasks, and waits for those that must finish first."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.cluster.kv_store import KeyValueStore, StallDetector
from estimator.cluster.stop_policies import STOP_POLICIES, StopPolicy, stop_policy_name
from estimator.cluster.task_health import TaskHealth
from estimator.training.open_training import OpenTraining
from estimator.training.step_runner import StepRunner


@dataclasses.dataclass(frozen=True)
class WatchedTasks:
    """The tasks that this task watches.

    Attributes:
      needed: tasks whose loss ends training with an error.
      replaceable: tasks that may be restarted while training continues.
    """

    needed: TaskHealth
    replaceable: TaskHealth


class Shutdown:
    """Leaves the cluster in order: `begin` announces the stop, the caller saves, `end` leaves.

    Workers that run in lockstep leave together, after the chief's last save: on none of them does
    `train` return before the last checkpoint is complete. Workers that share variables on ps tasks
    do not run in lockstep; they communicate through the key-value store.
    """

    def __init__(self, training: OpenTraining, steps: StepRunner, tasks: WatchedTasks) -> None:
        """Keeps its arguments; `begin` is the first to contact other tasks.

        Args:
          training: the training run that ends.
          steps: reads the last step again, as other workers may advance it after this one stops.
          tasks: the tasks to stop watching.
        """
        self._training = training
        self._steps = steps
        self._tasks = tasks
        self._clock = training.request.clock

    def begin(self, reason: str) -> str:
        """Announces that this worker stops; the chief waits for the others unless it must hurry.

        Returns:
          The reason to stop, which is "signal" if the chief or a ps task got one meanwhile.
        """
        reason = self._stop(reason)
        group = self._training.worker_group
        # To save, the chief needs the ps tasks. It needs no other worker, but they wait for it.
        still_needs_tasks = not group.is_chief if group.store is None else group.is_chief
        if not still_needs_tasks:
            self._tasks.needed.release()
        return reason

    def end(self, reason: str) -> None:
        """Leaves the cluster after the last step is saved; the chief may wait for workers first."""
        group, patience_secs = self._training.worker_group, self._ending(reason).patience_secs
        if group.store is None:
            self._leave_together()
        elif group.is_chief and patience_secs is not None:
            end = self._clock() + patience_secs
            self._wait_for_workers(group.store, lambda: self._clock() >= end)
        self._tasks.needed.release()

    def _leave_together(self) -> None:
        """Waits for all workers; the chief comes when the last checkpoint is complete."""
        session = self._training.session.session
        if self._training.worker_group.is_one:
            return
        if isinstance(session, _tf.InterruptibleSession):
            session.wait = self._tasks.needed.wait_for  # Nothing else watches for the chief now.
        try:
            self._training.worker_group.meet(session)
        except tf.errors.OpError:
            # The first to know that all are here may be gone before another one does.
            if not self._training.worker_group.is_chief and not self._is_saved():
                raise

    def _is_saved(self) -> bool:
        latest = tf.train.latest_checkpoint(str(self._training.config.model_dir))
        return latest is not None and files.checkpoint_step(latest) == self._steps.step

    def _stop(self, reason: str) -> str:
        session, store = self._training.session.session, self._training.worker_group.store
        self._training.worker_group.meet(session)
        if store is None:
            return reason
        policy = self._ending(reason)
        if policy.stops_others_from(store.is_chief):
            store.say_stop(session, stop_policy_name(reason, self._training.stop.received))
        store.say_done(session)
        if store.is_chief:
            if policy.patience_secs is None:
                self._wait_for_workers(store, lambda: self._is_signalled(store))
                if self._training.stop.received is not None:
                    return self._stop("signal")
            self._steps.read_step()
        return reason

    def _ending(self, reason: str) -> StopPolicy:
        return STOP_POLICIES[stop_policy_name(reason, self._training.stop.received)]

    def _is_signalled(self, store: KeyValueStore) -> bool:
        """Returns whether this task or a ps task has received a signal."""
        stop = self._training.stop
        told = store.stop_reason(store.stop.read(self._training.session.session))
        if stop.received is None and told is not None and STOP_POLICIES[told].exit_status:
            stop.received = signal.Signals[told]
        return stop.received is not None

    def _wait_for_workers(self, store: KeyValueStore, is_enough: Callable[[], bool]) -> None:
        still = StallDetector(self._training.read_step, self._clock)
        replaceable = self._tasks.replaceable
        # A server in a process of its own outlives its worker, so it cannot show that one is gone.
        is_lost = replaceable.is_gone if replaceable else lambda name: still.is_stalled()
        store.wait_for_workers(self._training.session.session, is_lost, is_enough)
