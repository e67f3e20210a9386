"""The workers that train together, as one of them sees them: their requests and consensus."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import collective_ops_behind
from estimator.cluster.consensus import REQUESTS
from estimator.cluster.consistency_check import check_consistency, describe_model
from estimator.cluster.kv_store import KeyValueStore
from estimator.cluster.server import Connection
from estimator.cluster.task_health import TaskHealth
from estimator.program.train_program import TrainProgram
from estimator.session.hooked_session import Hook

# Hooks that write to the model's directory, which only the chief may do.
_WRITERS = (
    tf.compat.v1.train.CheckpointSaverHook,
    tf.compat.v1.train.StepCounterHook,
    tf.compat.v1.train.SummarySaverHook,
)

_LARGEST = 2**31 - 1


class WorkerGroup:
    """One worker's requests, and the consensus reached in the last session call.

    Attributes:
      workers: all workers.
      is_chief: whether this worker writes.
      has_more: whether all workers have input for another step.
      agreed: what any worker has requested, from `REQUESTS`.
    """

    def __init__(
        self, program: TrainProgram, store: KeyValueStore | None = None, is_chief: bool = True
    ) -> None:
        """Joins the group without adding to the program.

        Args:
          program: the program that the workers run.
          store: the store of asynchronous workers, which share variables on ps tasks; else None.
          is_chief: whether this worker writes.
        """
        self.store = store
        self.is_chief = is_chief
        self.workers = program.agreement.workers
        self._consensus = program.agreement.consensus
        self._outcome = program.agreement.outcome
        self._is_loop = program.is_loop
        self._requests: set[str] = set()
        self.has_more = True
        self.agreed: list[str] = []

    @property
    def has_values(self) -> bool:
        """Whether this worker provides the variables' first values to the others."""
        return self.workers.is_chief if self.store is None else self.store.is_chief

    @property
    def saves_input(self) -> bool:
        """Whether this worker saves its input position, as every synchronous worker does."""
        return self.is_chief or self.workers.count > 1

    @property
    def is_one(self) -> bool:
        """Whether there are no other workers to agree with."""
        return self._consensus is None

    @property
    def stop(self) -> str | None:
        """The reason why a worker wants to stop: a signal's name, or a `TrainResult`'s reason."""
        return next((request for request in self.agreed if request != "save"), None)

    @property
    def is_empty(self) -> bool:
        """Whether the last call was an empty loop, because some worker wants to stop."""
        return self.store is None and self._is_loop and self.stop is not None

    def request(self, what: str) -> None:
        """Requests something from all workers in the next session call."""
        self._requests.add(what)

    def consensus_ops(self) -> tuple[list[tf.Tensor], list[tf.Tensor], list[Any]]:
        """Returns the fetches, feeds and values that the consensus adds to a call, if any."""
        if self.store is not None:
            return [self.store.stop.tensor], [], []
        if self._consensus is None or self._outcome is None:
            return [], [], []
        return [self._outcome], [self._consensus.requests], [self._request_vector()]

    def take_in(self, outcome: np.ndarray) -> None:
        """Records the consensus that a call returned."""
        if self.store is not None:
            told = self.store.stop_reason(int(outcome))
            self.agreed = [] if told is None else [told]
            return
        self.has_more = bool(outcome[0])
        self.agreed = [
            request
            for request, is_requested in zip(REQUESTS, outcome[1:], strict=True)
            if is_requested
        ]
        self._requests.discard("save")

    def meet(self, session: tf.compat.v1.Session, number: int = 0) -> int:
        """Waits for all workers; returns the smallest of their numbers."""
        if self._consensus is None:
            return number
        feeds = {self._consensus.num_steps: number, self._consensus.requests: [0] * len(REQUESTS)}
        return int(session.run(self._consensus.agreed, feeds)[0])

    def tell(self, session: tf.compat.v1.Session, number: int) -> int:
        """Returns the chief's number on all workers; every worker must make this call."""
        return self.meet(session, number if self.workers.is_chief else _LARGEST)

    def announce(self, session: tf.compat.v1.Session) -> None:
        """Lets asynchronous workers begin; only the chief does anything here."""
        if self.store is not None and self.store.is_chief:
            self.store.announce(session)

    def first_without(self, session: tf.compat.v1.Session, has_it: bool) -> int | None:
        """Returns the index of the first worker that lacks something; None if all have it."""
        number = self.meet(session, _LARGEST if has_it else self.workers.index)
        return None if number == _LARGEST else number

    def own_hooks(self, hooks: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks that this worker runs; only the chief runs those that write files."""
        if self.is_chief:
            return list(hooks)
        return [hook for hook in hooks if not isinstance(hook, _WRITERS)]

    def _request_vector(self) -> np.ndarray:
        return np.asarray([request in self._requests for request in REQUESTS], np.int32)


@contextlib.contextmanager
def joined(
    program: TrainProgram,
    mine: Mapping[str, Any],
    connection: Connection,
    timeout_secs: float,
    check: Callable[[], None],
) -> Iterator[TaskHealth]:
    """Waits for the tasks that training needs, checks that workers agree, and watches the tasks.

    Does nothing if training needs no other task.

    Args:
      program: the program to run.
      mine: what must be equal on all workers, besides the model.
      connection: this worker's connection to its server and to the other workers.
      timeout_secs: how long to wait for the other workers.
      check: called repeatedly during the wait; an exception from it ends the wait.

    Raises:
      TimeoutError: a task did not answer in time.
      ValueError: a worker has a different model or config.
      tf.errors.UnavailableError: a task is gone.
    """
    health = TaskHealth(connection.needed, connection.peer_timeout_secs)

    def open_session(graph: tf.Graph) -> tf.compat.v1.Session:
        wait = functools.partial(health.wait_for, check=check)
        return _tf.InterruptibleSession(connection.target, graph, connection.session_config, wait)

    with contextlib.closing(health):
        health.wait(timeout_secs, check)
        with health.watched():
            if program.agreement.workers.count > 1:
                described = {**mine, **describe_model(program.graph)}
                check_consistency(described, program.agreement.workers, open_session)
            yield health


def collectives_of_save(saver: Any, graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops that all workers must run when the chief saves: reductions over workers."""
    if not isinstance(saver, tf.compat.v1.train.Saver) or saver.saver_def is None:
        return []
    name = saver.saver_def.save_tensor_name
    return collective_ops_behind(graph.get_tensor_by_name(name).op)
