"""What the workers that train one model tell each other, as one of them sees it.

| | alone | synchronous | asynchronous, beside ps tasks |
|---|---|---|---|
| agree | on its own requests | on all requests, in each call | on one worker's reason to stop |
| meet | at once | by a collective | at once |
| begin | initialize the variables | with the chief's values | workers wait for the chief |
| finish | at once | together, after the last save | the chief may wait for the others |
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from estimator.cluster.collectives import ONE_WORKER, Workers
from estimator.cluster.consistency_check import OpenSession
from estimator.cluster.failure_notices import OnFailure

Session: TypeAlias = tf.compat.v1.Session
Wait: TypeAlias = Callable[[threading.Event], None]

_LARGEST = 2**31 - 1


class WorkerGroup:
    """One worker alone; subclasses communicate with others.

    Attributes:
      workers: the workers that meet; of asynchronous workers, each one by itself.
      is_chief: whether this worker writes.
      decides_alone: whether this worker acts on its own requests, without the others' consent.
      is_in_lockstep: whether no other worker advances the global step by itself.
      has_more: whether all workers have input for another step.
      agreed: what any worker has requested, from `REQUESTS`.
    """

    decides_alone = True
    is_in_lockstep = True

    def __init__(self, is_chief: bool = True, workers: Workers = ONE_WORKER) -> None:
        """Joins the group; the session has not been opened yet."""
        self.is_chief = is_chief
        self.workers = workers
        self.has_more = True
        self.agreed: list[str] = []

    # To agree, in a session call that runs steps.

    @property
    def stop(self) -> str | None:
        """The reason why a worker wants to stop: a signal's name, or a `TrainResult`'s reason."""
        return next((request for request in self.agreed if request != "save"), None)

    def request(self, what: str) -> None:
        """Requests something from all workers in the next session call."""

    def consensus_ops(self) -> tuple[list[tf.Tensor], list[tf.Tensor], list[Any]]:
        """Returns the fetches, feeds and values that the consensus adds to a call, if any."""
        return [], [], []

    def take_in(self, outcome: np.ndarray) -> None:
        """Records the consensus that a call returned."""

    # To meet, between such calls.

    def join(self) -> None:
        """Called when this worker has built its program, before it waits for the others."""

    def check_consistency(
        self, mine: Mapping[str, Any], open_session: OpenSession, wait: Wait
    ) -> None:
        """Raises ValueError on all workers if their programs differ; called before they begin.

        Args:
          mine: what must be equal on all workers, besides the model, by name.
          open_session: opens a session on this worker's server.
          wait: waits until the event is set, or raises an error if a worker is lost.
        """

    def hearing_of_failures(self, on_failure: OnFailure) -> contextlib.AbstractContextManager[None]:
        """Inside, calls `on_failure` if a worker that the others would wait for fails.

        Args:
          on_failure: called in another thread; see `FailureNotices.opened`.
        """
        return contextlib.nullcontext()

    def say_failure(self, error: BaseException) -> None:
        """Tells workers that would wait for this one that its training ends with an error."""

    def meet(self, session: Session, number: int = 0) -> int:
        """Waits for all workers; returns the smallest of their numbers."""
        return number

    def broadcast_number(self, session: Session, number: int) -> int:
        """Returns the chief's number on all workers; every worker must make this call."""
        return self.meet(session, number if self.workers.is_chief else _LARGEST)

    def first_without(self, session: Session, has_it: bool) -> int | None:
        """Returns the index of the first worker that lacks something; None if all have it."""
        number = self.meet(session, _LARGEST if has_it else self.workers.index)
        return None if number == _LARGEST else number

    # To begin.

    def build_broadcast(self) -> tf.Operation | None:
        """Builds the op that gives all workers the chief's variables; None if all have them."""
        return None

    def begin(
        self, session: Session, start: Callable[[], str | None], timeout_secs: float
    ) -> str | None:
        """Gives the variables their values in a new session, or waits until they have them.

        Args:
          session: the new session.
          start: restores or initializes the variables; returns the checkpoint's path, or None.
          timeout_secs: how long to wait for another worker to do that.

        Returns:
          What `start` returned; None if it was not called.
        """
        return start()

    def start_steps(self, session: Session, why_not: str | None) -> str | None:
        """Lets the others begin, as the chief, now that the variables have their values.

        Args:
          session: the open session.
          why_not: this worker's own reason, as in a `TrainResult`, to take no step; or None.

        Returns:
          The reason to take no step, or None. `stop` is another one, which a task has said before.
        """
        return why_not

    # To save.

    @property
    def saves(self) -> bool:
        """Whether this worker takes part in a save; all but the chief save only their position."""
        return self.is_chief

    def ops_of_save(self, saver: Any) -> list[tf.Operation]:
        """Returns the ops that all workers must run when the chief saves."""
        return []

    # To finish.

    @property
    def needs_others_to_end(self) -> bool:
        """Whether this worker still needs other tasks when it has stopped."""
        return False

    def say_stop(self, session: Session, reason: str) -> None:
        """Asks the others to stop after their current loops, for a reason of `STOP_POLICIES`."""

    def read_stop_reason(self, session: Session) -> str | None:
        """Returns the reason for which any task has said stop, or None."""
        return None

    def say_done(self, session: Session) -> None:
        """Announces that this worker no longer changes any variable."""

    def wait_for_others(
        self, session: Session, is_lost: Callable[[str], bool], is_enough: Callable[[], bool]
    ) -> bool:
        """Waits, if this worker saves for the others, until each is done or lost.

        Args:
          session: the open session.
          is_lost: whether the worker of a name is lost.
          is_enough: ends the wait.

        Returns:
          Whether `is_enough()` after a wait; False if this worker waits for nobody.
        """
        return False

    def say_result(self, session: Session, exit_status: int) -> None:
        """Publishes, as the chief, how training ended, for tasks that outlive it."""
