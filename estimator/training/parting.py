"""How a task leaves the others when it stops training."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable

from estimator.cluster.kv_store import KeyValueStore, StallDetector
from estimator.cluster.stop_policies import STOP_POLICIES, StopPolicy, stop_policy_name
from estimator.cluster.task_health import TaskHealth
from estimator.training.open_training import OpenTraining
from estimator.training.step_runner import StepRunner


@dataclasses.dataclass(frozen=True)
class WatchedTasks:
    """The tasks that this one watches.

    Attributes:
      needed: training ends with an error when one of them is gone.
      replaceable: those that may come back.
    """

    needed: TaskHealth
    replaceable: TaskHealth


class Parting:
    """Leaves the others: first this task stops, then it saves, then it may go.

    Workers on ps tasks do not step together: they tell each other by the store.
    """

    def __init__(self, training: OpenTraining, steps: StepRunner, tasks: WatchedTasks) -> None:
        """Tells nobody yet.

        Args:
          training: what ends.
          steps: told the last step, which other workers may count after this one has stopped.
          tasks: those to leave.
        """
        self._training = training
        self._steps = steps
        self._tasks = tasks
        self._clock = training.request.clock

    def begin(self, reason: str) -> str:
        """Tells the others that this worker stops; the chief waits for all, unless it hurries.

        Returns:
          Why it stops: a signal may have come meanwhile.
        """
        reason = self._stop(reason)
        if not self._is_chief_of_ps():
            self._tasks.needed.release()  # The chief's are ps tasks, which it still needs.
        return reason

    def end(self, reason: str) -> None:
        """Leaves, now that the last step is saved."""
        store, patience_secs = self._training.team.store, self._ending(reason).patience_secs
        if store is not None and store.is_chief and patience_secs is not None:
            end = self._clock() + patience_secs
            self._wait_for_workers(store, lambda: self._clock() >= end)
        self._tasks.needed.release()

    def _is_chief_of_ps(self) -> bool:
        store = self._training.team.store
        return store is not None and store.is_chief

    def _stop(self, reason: str) -> str:
        session, store = self._training.session.session, self._training.team.store
        self._training.team.meet(session)
        if store is None:
            return reason
        policy = self._ending(reason)
        if policy.is_told_by(store.is_chief):
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
        """Whether a signal came here, or to a ps task."""
        stop = self._training.stop
        told = store.stop_reason(store.stop.read(self._training.session.session))
        if stop.received is None and told is not None and STOP_POLICIES[told].exit_status:
            stop.received = signal.Signals[told]
        return stop.received is not None

    def _wait_for_workers(self, store: KeyValueStore, is_enough: Callable[[], bool]) -> None:
        still = StallDetector(self._training.read_step, self._clock)
        replaceable = self._tasks.replaceable
        # Servers that go on without their workers do not tell that one is gone.
        is_lost = replaceable.is_gone if replaceable else lambda name: still.is_stalled()
        store.wait_for_workers(self._training.session.session, is_lost, is_enough)
