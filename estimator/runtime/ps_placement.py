"""Where the ops of a task run when ps tasks hold the variables."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import tensorflow as tf

from estimator.config.cluster import Cluster
from estimator.runtime.greedy_load_balancing import GreedyLoadBalancing

_thread = threading.local()


@contextlib.contextmanager
def on_own_task() -> Iterator[None]:
    """Inside, resources that are made belong to this task, and no ps holds them."""
    before = getattr(_thread, "is_own", False)
    _thread.is_own = True
    try:
        yield
    finally:
        _thread.is_own = before


def make_device_fn(cluster: Cluster, placement: str) -> Callable[[tf.Operation], str]:
    """A function from op to device: variables to the ps tasks, all else to this task.

    Every task has to make the same variables in the same order, as a `model_fn` does: then all
    find them in the same place.

    Args:
      cluster: the tasks, and which of them this is.
      placement: "round_robin" takes the next ps for each variable; "by_size" the one that holds
        the fewest bytes so far.
    """
    own = tf.DeviceSpec(job=cluster.task_type, task=cluster.task_id)
    num_ps = cluster.num_ps_replicas
    to_ps = tf.compat.v1.train.replica_device_setter(
        ps_tasks=num_ps,
        worker_device=own.to_string(),
        ps_strategy=GreedyLoadBalancing(num_ps) if placement == "by_size" else None,
    )

    def place(op: tf.Operation) -> str:
        given = tf.DeviceSpec.from_string(op.device or "")
        if given.job is not None:
            return op.device
        if getattr(_thread, "is_own", False):
            return given.make_merged_spec(own).to_string()
        return to_ps(op)

    return place
