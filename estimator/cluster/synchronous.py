"""Workers that run each step together: they agree and meet by collectives."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.cluster.collectives import build_broadcast, collective_ops_behind
from estimator.cluster.consensus import REQUESTS, Agreement
from estimator.cluster.consistency_check import OpenSession, check_consistency, describe_model
from estimator.cluster.failure_notices import FailureNotices, OnFailure
from estimator.cluster.worker_group import Session, Wait, WorkerGroup

# Why no worker takes a step, the most important first.
_REASONS_NOT_TO_BEGIN = ("max_steps", "hook", "end of input", None)


class SynchronousWorkers(WorkerGroup):
    """One of the workers that reach a consensus in each session call."""

    decides_alone = False

    def __init__(self, is_chief: bool, agreement: Agreement, notices: FailureNotices) -> None:
        """Joins the group.

        Args:
          is_chief: whether this worker writes.
          agreement: the tensors with which the workers agree, in the graph of the program.
          notices: tells the others if this worker's training fails.
        """
        assert agreement.consensus is not None
        assert agreement.outcome is not None
        super().__init__(is_chief, agreement.consensus.workers)
        self._consensus, self._outcome = agreement.consensus, agreement.outcome
        self._graph = agreement.graph
        self._notices = notices
        self._requests: set[str] = set()

    @property
    def saves(self) -> bool:
        """Every worker saves its input position."""
        return True

    @property
    def needs_others_to_end(self) -> bool:
        """Whether this worker has to see that the chief has saved the last step."""
        return not self.is_chief

    def request(self, what: str) -> None:
        """Requests something from all workers in the next session call."""
        self._requests.add(what)

    def consensus_ops(self) -> tuple[list[tf.Tensor], list[tf.Tensor], list[Any]]:
        """Returns the fetch, the feed and its value that the consensus adds to a call."""
        requested = np.asarray([request in self._requests for request in REQUESTS], np.int32)
        return [self._outcome], [self._consensus.requests], [requested]

    def take_in(self, outcome: np.ndarray) -> None:
        """Records the consensus that a call returned."""
        self.has_more = bool(outcome[0])
        self.agreed = list(itertools.compress(REQUESTS, outcome[1:]))
        self._requests.discard("save")

    def check_consistency(
        self, mine: Mapping[str, Any], open_session: OpenSession, wait: Wait
    ) -> None:
        """Raises ValueError on all workers if any differs from the chief; see the base class."""
        self._notices.meet(wait)
        described = {**mine, **describe_model(self._graph)}
        self._notices.begin(check_consistency(described, self.workers, open_session))

    def join(self) -> None:
        """Called when this worker has built its program; what fails later, `say_failure` tells."""
        self._notices.join()

    def hearing_of_failures(self, on_failure: OnFailure) -> contextlib.AbstractContextManager[None]:
        """Inside, calls `on_failure` if another worker's training fails."""
        return self._notices.opened(on_failure)

    def say_failure(self, error: BaseException) -> None:
        """Tells the others that this worker's training ends with an error."""
        self._notices.tell(error)

    def meet(self, session: Session, number: int = 0) -> int:
        """Waits for all workers; returns the smallest of their numbers."""
        feeds = {self._consensus.num_steps: number, self._consensus.requests: [0] * len(REQUESTS)}
        return int(session.run(self._consensus.agreed, feeds)[0])

    def start_steps(self, session: Session, why_not: str | None) -> str | None:
        """Returns the most important of all workers' reasons to take no step, or None."""
        return _REASONS_NOT_TO_BEGIN[self.meet(session, _REASONS_NOT_TO_BEGIN.index(why_not))]

    def build_broadcast(self) -> tf.Operation:
        """Builds the op that gives all workers the chief's variables."""
        with self._graph.as_default():
            return build_broadcast(self.workers, tf.compat.v1.global_variables())

    def ops_of_save(self, saver: Any) -> list[tf.Operation]:
        """Returns the reductions over workers that a save runs."""
        if not isinstance(saver, tf.compat.v1.train.Saver) or saver.saver_def is None:
            return []
        name = saver.saver_def.save_tensor_name
        return collective_ops_behind(self._graph.get_tensor_by_name(name).op)
