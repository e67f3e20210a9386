"""Places the ops of a task when ps tasks hold the variables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import tensorflow as tf

from estimator.config.cluster import Cluster

_is_on_own_task: ContextVar[bool] = ContextVar("is_on_own_task", default=False)


@contextlib.contextmanager
def on_own_task() -> Iterator[None]:
    """Keeps resources that are created in the block on this task instead of a ps task."""
    token = _is_on_own_task.set(True)
    try:
        yield
    finally:
        _is_on_own_task.reset(token)


def make_variable_placer(
    cluster: Cluster, own_device: str, placement: str
) -> Callable[[tf.Operation], str]:
    """Returns a device function: variables go to the ps tasks, everything else to `own_device`.

    Every task must create the same variables in the same order, as a `model_fn` does, so that all
    find them in the same place.

    Args:
      cluster: the tasks, and which of them this one is.
      own_device: this task, as a device string.
      placement: "round_robin" puts each variable on the next ps task; "by_size" on the one with the
        fewest bytes so far.
    """
    num_ps = cluster.num_ps_replicas
    return tf.compat.v1.train.replica_device_setter(
        ps_tasks=num_ps,
        worker_device=own_device,
        ps_strategy=_GreedyLoadBalancing(num_ps) if placement == "by_size" else None,
    )


def make_device_fn(cluster: Cluster, placement: str) -> Callable[[tf.Operation], str]:
    """Returns a `make_variable_placer` for this task that leaves ops with a task where they are."""
    own = tf.DeviceSpec(job=cluster.task_type, task=cluster.task_id)
    to_ps = make_variable_placer(cluster, own.to_string(), placement)

    def place(op: tf.Operation) -> str:
        given = tf.DeviceSpec.from_string(op.device or "")
        if given.job is not None:
            return op.device
        if _is_on_own_task.get():
            return given.make_merged_spec(own).to_string()
        return to_ps(op)

    return place


class _GreedyLoadBalancing:
    """Chooses the ps task that holds the fewest bytes so far; the first one if several do."""

    def __init__(self, num_ps: int) -> None:
        self._bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the task for a variable, given the op that creates it."""
        task = self._bytes.index(min(self._bytes))
        self._bytes[task] += _num_bytes(op)
        return task


def _num_bytes(op: tf.Operation) -> int:
    attributes = op.node_def.attr
    shape = tf.TensorShape(attributes["shape"].shape) if "shape" in attributes else None
    if shape is None or not shape.is_fully_defined() or "dtype" not in attributes:
        return 1
    return (shape.num_elements() or 1) * tf.as_dtype(attributes["dtype"].type).size
