"""A key-value store on the ps tasks, through which the tasks of an asynchronous cluster talk.

The chief publishes when the variables have values and when training stops; a worker publishes when
it is done. Every number is the count of the training it belongs to, so that a task that was
restarted or is ahead never mistakes old news for new.
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
    """A variable on a ps task, shared by every task that uses its name."""

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
        """Writes the value, which all tasks can then read."""
        session.run(self._write, {self._value: value})


class SharedNumber(_Shared):
    """A shared number (int64) that is 0 until it is written.

    Attributes:
      tensor: reads the number; valid only after it was written.
    """

    def __init__(self, name: str, ps: int) -> None:
        """Adds its ops to the default graph."""
        super().__init__(name, ps, tf.int64)

    def read(self, session: tf.compat.v1.Session) -> int:
        """Returns the number that was written last."""
        return int(session.run(self.tensor)) if session.run(self._is_there) else 0


class SharedText(_Shared):
    """Shared bytes; read them only after they are written."""

    def __init__(self, name: str, ps: int) -> None:
        """Adds its ops to the default graph."""
        super().__init__(name, ps, tf.string)

    def read(self, session: tf.compat.v1.Session) -> bytes:
        """Returns the bytes that were written last."""
        return bytes(session.run(self.tensor))


def _stop_number(count: int, reason: str) -> int:
    """Encodes a training and its reason to stop as the value of `KeyValueStore.stop`."""
    return count * len(_REASONS) + _REASONS.index(reason)


class PsTaskStore:
    """The part of the store that a ps task reads and writes.

    A session places its whole graph, so variables on this ps task and variables on the first ps
    task, which this task may be unable to reach, are in different graphs.

    Attributes:
      own_graph: the graph of `result`.
      result: how training ended: 1 plus the exit status.
      first_graph: the graph of the variables on the first ps task.
    """

    def __init__(self, ps: int) -> None:
        """Builds the two graphs."""
        self.own_graph, self.first_graph = tf.Graph(), tf.Graph()
        with self.own_graph.as_default():
            self.result = SharedNumber("result", ps)
        with self.first_graph.as_default():
            self._ready, self._stop = SharedNumber("ready", 0), SharedNumber("stop", 0)

    def say_stop(self, session: tf.compat.v1.Session, reason: str) -> bool:
        """Asks the running training to stop; returns whether one is running.

        Args:
          session: a session on `first_graph` that reaches the first ps task.
          reason: one of `STOP_POLICIES`.
        """
        count = self._ready.read(session)
        if count:
            self._stop.write(session, _stop_number(count, reason))
        return count > 0


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


class KeyValueStore:
    """The store of one training, as one task sees it.

    Attributes:
      is_chief: whether this task decides when training begins and ends.
      num_workers: the number of tasks that train, the chief included.
      stop: the training that was last asked to stop, and why; decoded by `stop_reason`.
    """

    def __init__(self, graph: tf.Graph, cluster: Cluster, described: Mapping[str, Any]) -> None:
        """Adds its ops to `graph`.

        Args:
          graph: the graph of the program.
          cluster: the tasks, and which of them this one is.
          described: what must be equal to the chief's, by name.
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
        """Announces, as the chief, that the variables have no valid values.

        Servers that outlive a training still hold what it has written.
        """
        self._ready.write(session, 0)

    def announce(self, session: tf.compat.v1.Session) -> None:
        """Announces, as the chief, that the variables have their values."""
        for number in [self.stop, *self._done, *self._results]:
            number.write(session, 0)
        self._chiefs.write(session, encode(self._described))
        self._ready.write(session, self._count)

    def wait_for_chief(self, session: tf.compat.v1.Session, timeout_secs: float) -> None:
        """Waits until the chief has announced the variables.

        Raises:
          TimeoutError: the chief did not announce them within `timeout_secs`.
          ValueError: the chief has a different model or config.
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
        """Asks all tasks to stop after their current loops.

        `reason` is one of `STOP_POLICIES`. The first reason wins, except that a later one that
        determines the exit status replaces one that does not.
        """
        told = self.stop_reason(self.stop.read(session))
        if told is None or (
            STOP_POLICIES[reason].exit_status and not STOP_POLICIES[told].exit_status
        ):
            self.stop.write(session, _stop_number(self._count, reason))

    def say_done(self, session: tf.compat.v1.Session) -> None:
        """Announces that this worker no longer changes any variable."""
        self._done[self._own].write(session, self._count)

    def wait_for_workers(
        self,
        session: tf.compat.v1.Session,
        is_lost: Callable[[str], bool],
        is_enough: Callable[[], bool],
    ) -> None:
        """Waits, on the chief, until every other worker is done or lost, or until `is_enough()`."""
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
        """Decodes the value of `stop`; None if nobody has asked this training to stop."""
        count, reason = divmod(value, len(_REASONS))
        return _REASONS[reason] if count >= self._count else None

    def _name(self, number: int) -> str:
        return task_name("worker", number - self._is_first_chief)

    def say_result(self, session: tf.compat.v1.Session, exit_status: int) -> None:
        """Publishes how training ended: the exit status for ps tasks once the chief is gone."""
        self.withdraw(session)
        for result in self._results:
            result.write(session, 1 + exit_status)
