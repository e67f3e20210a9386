"""What the tasks of an asynchronous cluster tell each other: numbers that the ps tasks hold.

The chief says when variables have their values and when training stops; a worker says when it is
done. Each number is the count of the training that it is said of, so that a task that comes back,
or is ahead, takes no old news for new.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.cluster.consistency_check import check_like_chief, encode
from estimator.cluster.server import task_name
from estimator.cluster.stop_policies import STOP_POLICIES
from estimator.config.cluster import Cluster

_POLL_SECS = 0.1
_STALL_SECS = 30.0
_REASONS = tuple(STOP_POLICIES)
_counts = itertools.count(1)


class _Shared:
    """A variable on a ps task; every task that names it has the same one."""

    def __init__(self, name: str, ps: int, dtype: tf.DType) -> None:
        """Adds its ops to the default graph."""
        with tf.device(f"/job:ps/task:{ps}/cpu:0"):
            handle = tf.raw_ops.VarHandleOp(
                dtype=dtype, shape=[], shared_name=f"estimator/{name}", name="shared"
            )
            self._value = tf.compat.v1.placeholder(dtype, [])
            self._write = tf.raw_ops.AssignVariableOp(resource=handle, value=self._value)
            self._is_there = tf.raw_ops.VarIsInitializedOp(resource=handle)
            self.tensor = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)

    def write(self, session: tf.compat.v1.Session, value: int | bytes) -> None:
        """Tells all tasks."""
        session.run(self._write, {self._value: value})


class SharedNumber(_Shared):
    """A number (int64), 0 until it is written.

    Attributes:
      tensor: reads it; only for one that was written.
    """

    def __init__(self, name: str, ps: int) -> None:
        """Adds its ops to the default graph."""
        super().__init__(name, ps, tf.int64)

    def read(self, session: tf.compat.v1.Session) -> int:
        """What was written last."""
        return int(session.run(self.tensor)) if session.run(self._is_there) else 0


class SharedText(_Shared):
    """Bytes, to be read only once they are written."""

    def __init__(self, name: str, ps: int) -> None:
        """Adds its ops to the default graph."""
        super().__init__(name, ps, tf.string)

    def read(self, session: tf.compat.v1.Session) -> bytes:
        """What was written last."""
        return bytes(session.run(self.tensor))


def _stop_number(count: int, reason: str) -> int:
    """What `KeyValueStore.stop` holds when this training is to stop for this reason."""
    return count * len(_REASONS) + _REASONS.index(reason)


class PsTaskStore:
    """What a ps task reads and says.

    A session places all of its graph, so what lies on this ps has a graph without what lies on the
    first, which this one need not reach.

    Attributes:
      own_graph: of the result.
      result: how training ended: 1 more than the status to exit with.
      first_graph: of what the first ps tells.
    """

    def __init__(self, ps: int) -> None:
        """Makes the graphs."""
        self.own_graph, self.first_graph = tf.Graph(), tf.Graph()
        with self.own_graph.as_default():
            self.result = SharedNumber("result", ps)
        with self.first_graph.as_default():
            self._ready, self._stop = SharedNumber("ready", 0), SharedNumber("stop", 0)

    def say_stop(self, session: tf.compat.v1.Session, reason: str) -> bool:
        """Stops the training that goes on; returns whether one does.

        Args:
          session: on `first_graph`; it reaches the first ps task.
          reason: one of `STOP_POLICIES`.
        """
        count = self._ready.read(session)
        if count:
            self._stop.write(session, _stop_number(count, reason))
        return count > 0


class StallDetector:
    """Whether a step that others advance has stood still for long, so that they may be gone."""

    def __init__(self, read_step: Callable[[], int], clock: Callable[[], float]) -> None:
        """Reads nothing yet.

        Args:
          read_step: of the global step.
          clock: seconds from any fixed moment.
        """
        self._read_step, self._clock = read_step, clock
        self._step, self._since = -1, clock()

    def is_stalled(self) -> bool:
        """Reads the step."""
        step = self._read_step()
        if step != self._step:
            self._step, self._since = step, self._clock()
        return self._clock() - self._since >= _STALL_SECS


class KeyValueStore:
    """The numbers of one training, as one task sees them.

    Attributes:
      is_chief: whether this task says when to begin and to end.
      num_workers: the tasks that train, the chief among them.
      stop: of which training somebody said last that all stop, and why; see `stop_reason`.
    """

    def __init__(self, graph: tf.Graph, cluster: Cluster, described: Mapping[str, Any]) -> None:
        """Adds its ops to `graph`.

        Args:
          graph: of the program.
          cluster: the tasks, and which of them this is.
          described: what must be as the chief has it, by name.
        """
        self._described = described
        self._own_name = task_name(cluster.task_type, cluster.task_id)
        self.is_chief = cluster.is_chief
        self.num_workers = cluster.num_worker_replicas
        self._count = next(_counts)
        self._is_first_chief = "chief" in cluster.cluster_spec
        self._own = cluster.global_id_in_cluster or 0
        with graph.as_default():
            self._ready = SharedNumber("ready", 0)
            self._chiefs = SharedText("described", 0)
            self.stop = SharedNumber("stop", 0)
            self._done = [SharedNumber(f"done_{i}", 0) for i in range(self.num_workers)]
            self._results = [SharedNumber("result", ps) for ps in range(cluster.num_ps_replicas)]

    def withdraw(self, session: tf.compat.v1.Session) -> None:
        """The chief says that the variables have no values yet, or mean nothing any more.

        Servers that go on when training ends still hold what an earlier one said.
        """
        self._ready.write(session, 0)

    def announce(self, session: tf.compat.v1.Session) -> None:
        """The chief says that the variables have their values."""
        for number in [self.stop, *self._done, *self._results]:
            number.write(session, 0)
        self._chiefs.write(session, encode(self._described))
        self._ready.write(session, self._count)

    def wait_for_chief(self, session: tf.compat.v1.Session, timeout_secs: float) -> None:
        """Waits until the chief has said so.

        Raises:
          TimeoutError: it does not, within so many seconds.
          ValueError: it has another model or config.
        """
        end = time.monotonic() + timeout_secs
        while self._ready.read(session) < self._count:
            if time.monotonic() > end:
                raise TimeoutError(
                    "The chief did not initialize the variables within "
                    f"`session_creation_timeout_secs` ({timeout_secs:g}). Its log says why."
                )
            time.sleep(_POLL_SECS)
        chief = "the chief" if self._is_first_chief else "worker 0"
        check_like_chief(self._chiefs.read(session), chief, self._described, self._own_name)

    def say_stop(self, session: tf.compat.v1.Session, reason: str) -> None:
        """All tasks stop after their loops; `reason` is one of `STOP_POLICIES`.

        The first reason holds, but for one that decides what all exit with.
        """
        told = self.stop_reason(self.stop.read(session))
        if told is None or (
            STOP_POLICIES[reason].exit_status and not STOP_POLICIES[told].exit_status
        ):
            self.stop.write(session, _stop_number(self._count, reason))

    def say_done(self, session: tf.compat.v1.Session) -> None:
        """This worker changes no variable any more."""
        self._done[self._own].write(session, self._count)

    def wait_for_workers(
        self,
        session: tf.compat.v1.Session,
        is_lost: Callable[[str], bool],
        is_enough: Callable[[], bool],
    ) -> None:
        """The chief waits until every worker is done, or gone, or until it is enough."""
        others = [i for i in range(self.num_workers) if i != self._own]
        while others and not is_enough():
            others = [
                i
                for i in others
                if self._done[i].read(session) < self._count and not is_lost(self._name(i))
            ]
            if others:
                time.sleep(_POLL_SECS)

    def stop_reason(self, value: int) -> str | None:
        """Why this training is to stop, as `stop` holds it; None if nobody has said so."""
        count, reason = divmod(value, len(_REASONS))
        return _REASONS[reason] if count >= self._count else None

    def _name(self, number: int) -> str:
        return task_name("worker", number - self._is_first_chief)

    def say_result(self, session: tf.compat.v1.Session, exit_status: int) -> None:
        """Tells the ps tasks how training ended: what they exit with, once the chief is gone."""
        self.withdraw(session)
        for result in self._results:
            result.write(session, 1 + exit_status)
