"""The workers that train one model together, and the collectives that the library itself adds.

The strategy reduces gradients. The collectives here make everything else equal on all workers: the
loss, when training ends, and what is saved when. With one worker they return that worker's own
values.
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.server import task_name
from estimator.rewrite.graph_walk import ops_behind


@dataclasses.dataclass
class _Numbering:
    """Numbers the graphs that have collectives of this file."""

    next_graph: int = 0


# Strategies number their groups from 1; this group has the host device of each worker.
_GROUP_KEY = 2**30
# Every worker builds the same graphs with the same collectives in the same order, so the
# collectives get the same keys. Workers whose models differ, or of which one fails before it has
# built its graphs, still agree on the keys of the next training's.
_numbering = _Numbering()
_instance_keys: weakref.WeakKeyDictionary[tf.Graph, Iterator[int]] = weakref.WeakKeyDictionary()
_KEYS_PER_GRAPH = 2**14
_KEYS_PER_TRAINING = 2**16
_NUM_TRAININGS = 2**15  # Then keys, which are int32, begin anew.

# The type in which a broadcast carries values: their own, or one that can hold them.
_CARRIERS = {
    **{dtype: dtype for dtype in (tf.bool, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)},
    tf.bfloat16: tf.float32,
    tf.int8: tf.int32,
    tf.int16: tf.int32,
    tf.uint8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
}


@dataclasses.dataclass(frozen=True)
class Workers:
    """The number of processes that train together, and which of them this one is.

    Attributes:
      count: the number of processes.
      index: the index of this process; 0 is the chief.
      names: the names of all processes, such as "worker 1".
    """

    count: int = 1
    index: int = 0
    names: tuple[str, ...] = ("the one worker",)

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, which writes files."""
        return self.index == 0


ONE_WORKER = Workers()


def workers_of(strategy: tf.distribute.Strategy) -> Workers:
    """Returns the workers of a strategy; `ONE_WORKER` if it runs in one process."""
    if not _tf.is_multi_worker(strategy):
        return ONE_WORKER
    resolver = strategy.cluster_resolver
    spec = resolver.cluster_spec().as_dict()
    tasks = [(role, i) for role in ("chief", "worker") for i in range(len(spec.get(role, ())))]
    mine = ("chief" if resolver.task_type == "master" else resolver.task_type, resolver.task_id)
    names = tuple(task_name(role, index) for role, index in tasks)
    return Workers(len(tasks), tasks.index(mine), names)


def number_collectives(strategy: tf.distribute.Strategy, training: int) -> None:
    """Begins the keys of a training's collectives, which must be the same on all workers.

    Args:
      strategy: the strategy of the workers.
      training: the number of the training in this process; the same on all workers.
    """
    first_key = training % _NUM_TRAININGS * _KEYS_PER_TRAINING
    _numbering.next_graph = first_key // _KEYS_PER_GRAPH
    _tf.number_collectives(strategy, first_key)


def replica_id() -> int:
    """Returns the index of this replica among all replicas of all workers."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas in this process."""
    return strategy.num_replicas_in_sync // workers_of(strategy).count


def build_sum(workers: Workers, values: tf.Tensor) -> tf.Tensor:
    """Returns the sum of a vector over the workers, on the host; bit-equal on every worker."""
    return _build_reduction(workers, values, "Add")


def build_piggyback_sum(
    workers: Workers,
    values: tf.Tensor,
    slots: Sequence[_tf.PiggybackSlot],
    step_ops: Iterable[tf.Operation],
) -> tf.Tensor:
    """Returns the sum of a vector over the workers, piggybacked on an all-reduce of the step.

    A separate collective would make a step of a small model a third longer.

    Args:
      workers: all workers.
      values: a float32 vector of the slots' size.
      slots: the all-reduces that may carry the values.
      step_ops: the ops that every step runs; an all-reduce that they depend on runs too.
    """
    running = ops_behind(step_ops)
    before = ops_behind([values.op])
    for entry, reduction, total in reversed(slots):
        if reduction in running and reduction not in before:
            _tf.set_input(entry, values)
            return total
    return build_sum(workers, values)


def build_any(workers: Workers, condition: tf.Tensor) -> tf.Tensor:
    """Returns whether the condition, scalar, holds on any worker, on the host."""
    if workers.count == 1:
        return condition
    return build_sum(workers, [tf.cast(condition, tf.float32)])[0] > 0.5


def build_minimum(workers: Workers, values: tf.Tensor) -> tf.Tensor:
    """Returns the elementwise minimum of a vector over the workers, on the host."""
    return _build_reduction(workers, values, "Min")


def _build_reduction(workers: Workers, values: tf.Tensor, merge_op: str) -> tf.Tensor:
    with tf.device("/cpu:0"):
        return tf.raw_ops.CollectiveReduceV2(
            input=values, ordering_token=[], merge_op=merge_op, final_op="Id", **_keys(workers)
        )


def _keys(workers: Workers) -> dict[str, Any]:
    """Returns what says which collective an op is part of: the next one of its graph."""
    graph = _tf.outer_graphs(tf.compat.v1.get_default_graph())[-1]
    if graph not in _instance_keys:
        _instance_keys[graph] = itertools.count(1 + _numbering.next_graph * _KEYS_PER_GRAPH)
        _numbering.next_graph += 1
    return {
        "group_size": workers.count,
        "group_key": _GROUP_KEY,
        "instance_key": next(_instance_keys[graph]),
        # The values are on the host; NCCL works on GPUs only.
        "communication_hint": "ring",
    }


def build_gather(workers: Workers, values: tf.Tensor) -> tf.Tensor:
    """Gathers the vectors of all workers, in their order, padded with zeros to the longest.

    Args:
      workers: all workers.
      values: [n], int32; n may differ between workers.

    Returns:
      [number of workers, largest n], int32.
    """

    def gather(tensor: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.CollectiveGatherV2(input=tensor, ordering_token=[], **_keys(workers))

    with tf.device("/cpu:0"):
        size = tf.size(values)
        longest = tf.reduce_max(gather(tf.reshape(size, [1])))
        return gather(tf.expand_dims(tf.pad(values, [[0, longest - size]]), 0))


def build_broadcast(workers: Workers, variables: Iterable[tf.Variable]) -> tf.Operation:
    """Broadcasts the chief's first copy of each variable to all copies on all workers.

    Raises:
      NotImplementedError: a variable has a type that no collective supports, such as string.
    """
    assigned = [op for variable in variables for op in _build_broadcast_of(workers, variable)]
    return tf.group(*assigned, name="broadcast_variables")


def _build_broadcast_of(workers: Workers, variable: tf.Variable) -> list[tf.Operation]:
    dtype = variable.dtype.base_dtype
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        raise NotImplementedError(
            f"The variable {variable.name} is of type {dtype.name}, which workers cannot share. "
            "Keep it out of the model, or make it a tensor of numbers."
        )
    keys = _keys(workers)
    copies = _tf.copies(variable)
    with tf.device("/cpu:0"):
        if workers.is_chief:
            value = tf.raw_ops.CollectiveBcastSendV2(
                input=tf.cast(copies[0].read_value(), carrier), **keys
            )
        else:
            value = tf.raw_ops.CollectiveBcastRecvV2(shape=copies[0].shape, T=carrier, **keys)
        value = tf.cast(value, dtype)
    return [copy.assign(value, read_value=False) for copy in copies]


def collective_ops_behind(op: tf.Operation) -> list[tf.Operation]:
    """Returns the collectives that run with `op`: either all workers run them, or none does."""
    return [found for found in ops_behind([op]) if found.type.startswith("Collective")]
