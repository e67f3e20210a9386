"""Workers that share variables on ps tasks, and tell each other when to begin and to stop.

Every number that they exchange is the count of the training it belongs to, so that a task that was
restarted or is ahead never acts on what an earlier training wrote.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.cluster.consensus import Agreement
from estimator.cluster.consistency_check import check_like_chief, encode
from estimator.cluster.kv_store import SharedNumber, SharedText, decode_stop, encode_stop, on_ps
from estimator.cluster.server import task_name
from estimator.cluster.stop_policies import STOP_POLICIES
from estimator.cluster.worker_group import Session, WorkerGroup
from estimator.config.run_config import RunConfig

_POLL_SECS = 0.1
_counts = itertools.count(1)


class AsynchronousWorkers(WorkerGroup):
    """One of the workers that run their steps independently; they meet in a key-value store."""

    is_in_lockstep = False

    def __init__(
        self, config: RunConfig, agreement: Agreement, described: Mapping[str, Any]
    ) -> None:
        """Adds the store's ops to the graph of the program.

        Args:
          config: says which task this is. The chief decides when training begins and ends.
          agreement: has the graph.
          described: what must be equal to the chief's, by name.
        """
        cluster = config.cluster
        super().__init__(config.is_chief)
        self._described = described
        self._own_name = task_name(cluster.task_type, cluster.task_id)
        self._count = next(_counts)
        self._has_announced = False
        self._is_first_chief = "chief" in cluster.cluster_spec
        self._own = cluster.global_id_in_cluster or 0
        with agreement.graph.as_default():
            self._ready = SharedNumber("ready", on_ps(0))
            self._chiefs = SharedText("described", on_ps(0))
            self._stop = SharedNumber("stop", on_ps(0))
            num_workers, num_ps = cluster.num_worker_replicas, len(cluster.cluster_spec["ps"])
            self._done = [SharedNumber(f"done_{i}", on_ps(0)) for i in range(num_workers)]
            self._results = [SharedNumber("result", on_ps(ps)) for ps in range(num_ps)]

    @property
    def needs_others_to_end(self) -> bool:
        """Whether this worker saves what the ps tasks hold."""
        return self.is_chief

    def consensus_ops(self) -> tuple[list[tf.Tensor], list[tf.Tensor], list[Any]]:
        """Returns the fetch of whether another task has said stop."""
        return [self._stop.tensor], [], []

    def take_in(self, outcome: np.ndarray) -> None:
        """Records what another task has said."""
        told = decode_stop(int(outcome), self._count)
        self.agreed = [] if told is None else [told]

    def begin(
        self, session: Session, start: Callable[[], str | None], timeout_secs: float
    ) -> str | None:
        """Calls `start` on the chief; the others wait until the chief calls `start_steps`.

        In a further session of the chief, the variables have their values already.

        Args:
          session: the new session.
          start: restores or initializes the variables; returns the checkpoint's path, or None.
          timeout_secs: how long to wait for the chief.

        Raises:
          TimeoutError: the chief did not announce the variables within `timeout_secs`.
          ValueError: the chief has a different model or config.
        """
        if self._has_announced:
            return None
        if self.is_chief:
            # Servers that outlive a training still hold what it has written.
            self._ready.write(session, 0)
            return start()
        end = time.monotonic() + timeout_secs
        while self._ready.read(session) < self._count:
            if time.monotonic() > end:
                raise TimeoutError(
                    "The chief did not initialize the variables within "
                    f"`session_creation_timeout_secs` ({timeout_secs:g}). Its log says why; "
                    "if it is only slow, raise the limit."
                )
            time.sleep(_POLL_SECS)
        chief = "the chief" if self._is_first_chief else "worker 0"
        check_like_chief(self._chiefs.read(session), chief, self._described, self._own_name)
        return None

    def start_steps(self, session: Session, why_not: str | None) -> str | None:
        """Announces, as the chief, that the variables have their values; see the base class.

        A reason that concerns the others is said before, so that they take no step either.
        """
        if self.is_chief:
            self._announce(session, why_not)
        else:
            self.take_in(np.asarray(self._stop.read(session)))
        return why_not

    def _announce(self, session: Session, why_not: str | None) -> None:
        said = [] if self._has_announced else [self._stop, *self._done]
        for number in [*said, *self._results]:
            number.write(session, 0)
        if why_not is not None and STOP_POLICIES[why_not].stops_others:
            self.say_stop(session, why_not)
        self._chiefs.write(session, encode(self._described))
        self._ready.write(session, self._count)
        self._has_announced = True

    def say_stop(self, session: Session, reason: str) -> None:
        """Asks all tasks to stop after their current loops.

        The first reason wins, except that a later one that determines the exit status replaces one
        that does not.
        """
        told = self.read_stop_reason(session)
        if told is None or (
            STOP_POLICIES[reason].exit_status and not STOP_POLICIES[told].exit_status
        ):
            self._stop.write(session, encode_stop(self._count, reason))

    def read_stop_reason(self, session: Session) -> str | None:
        """Returns the reason for which any task has said stop, or None."""
        return decode_stop(self._stop.read(session), self._count)

    def say_done(self, session: Session) -> None:
        """Announces that this worker no longer changes any variable."""
        self._done[self._own].write(session, self._count)

    def wait_for_others(
        self, session: Session, is_lost: Callable[[str], bool], is_enough: Callable[[], bool]
    ) -> bool:
        """Waits, on the chief, until every other worker is done or lost, or until `is_enough()`."""
        if not self.is_chief:
            return False

        def is_running(number: int) -> bool:
            name = task_name("worker", number - self._is_first_chief)
            return self._done[number].read(session) < self._count and not is_lost(name)

        others = [i for i in range(len(self._done)) if i != self._own]
        while not (has_enough := is_enough()) and others:
            others = [i for i in others if is_running(i)]
            if others:
                time.sleep(_POLL_SECS)
        return has_enough

    def say_result(self, session: Session, exit_status: int) -> None:
        """Publishes how training ended: the exit status for ps tasks once the chief is gone."""
        if not self.is_chief:
            return
        self._ready.write(session, 0)
        for result in self._results:
            result.write(session, 1 + exit_status)
