"""Reduces the messages between a worker and its ps tasks by packing small tensors together.

Every tensor that an op of another task reads is a separate message in every step, and for a small
tensor the cost is the message, not its bytes.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import in_order, waits_of

# Copying a larger tensor costs more than a message, and delays the others.
_MAX_BYTES = 64 * 1024

# Inside v1 control flow, a tensor may belong to another iteration, or to a branch not taken.
_OLD_CONTROL_FLOW = ("Enter", "Switch")

# An op that reads a tensor, and the index of that input.
_Reader: TypeAlias = tuple[tf.Operation, int]


def pack_messages(ops: Sequence[tf.Operation]) -> None:
    """Packs the tensors that can be sent together from one task to another into one message.

    Tensors can be sent together if the same number of messages precedes each of them: then nothing
    downstream of one waits for another, and there is no cycle.

    Args:
      ops: all ops of the default graph that a step runs.
    """
    if any(op.type in _OLD_CONTROL_FLOW for op in ops):
        return
    homes = {op: task_of(op) for op in ops}
    levels = _count_messages_before(ops, homes)
    together: dict[Any, dict[Any, list[_Reader]]] = collections.defaultdict(dict)
    for op in ops:
        for i, tensor in enumerate(op.inputs):
            source = tensor.op
            if homes.get(source, homes[op]) == homes[op]:
                continue
            if not _is_small(tensor):
                continue
            if source.type == "Const":
                _read_copy(tensor, op, i, homes[op])
            else:
                way = (homes[source], homes[op], levels[source], tensor.dtype)
                together[way].setdefault(tensor.ref(), []).append((op, i))
    for (home, other, _, _), readers in together.items():
        if len(readers) > 1:
            _build_pack(home, other, [(ref.deref(), ops) for ref, ops in readers.items()])


def task_of(op: tf.Operation) -> str:
    """Returns the task that runs an op; reads and assignments run where their variable is."""
    device = op.device
    if op.inputs and op.inputs[0].dtype == tf.resource and not _tf.runs_a_function(op):
        device = _tf.capture_source(op.inputs[0]).op.device
    spec = tf.DeviceSpec.from_string(device or "")
    return tf.DeviceSpec(job=spec.job, task=spec.task).to_string()


def _count_messages_before(
    ops: Sequence[tf.Operation], homes: dict[tf.Operation, str]
) -> dict[tf.Operation, int]:
    """Counts, for each op, the most messages in a chain before it can run."""
    levels: dict[tf.Operation, int] = {}
    for op in in_order(ops):
        before = [other for other in waits_of(op) if other in levels]
        levels[op] = max((levels[o] + (homes[o] != homes[op]) for o in before), default=0)
    return levels


def _is_small(tensor: tf.Tensor) -> bool:
    if not tensor.shape.is_fully_defined() or not (
        tensor.dtype.is_floating or tensor.dtype.is_integer
    ):
        return False
    return tensor.shape.num_elements() * tensor.dtype.size <= _MAX_BYTES


def _read_copy(constant: tf.Tensor, reader: tf.Operation, index: int, home: str) -> None:
    """Replaces the message with a copy of the constant on the reading task.

    The reader then waits for what the constant waits for. In a block of tf.control_dependencies,
    TensorFlow lets only the constant wait if an op reads one.
    """
    with tf.device(home):
        copy = tf.constant(tf.get_static_value(constant), constant.dtype, name="message/constant")
    _tf.set_input(reader, copy, index)
    if constant.op.control_inputs:
        _tf.add_control_inputs(reader, constant.op.control_inputs)


def _build_pack(home: str, other: str, tensors: list[tuple[tf.Tensor, list[_Reader]]]) -> None:
    with tf.device(home):
        message = tf.concat([tf.reshape(t, [-1]) for t, _ in tensors], axis=0, name="message/pack")
    with tf.device(other):
        sizes = [tensor.shape.num_elements() for tensor, _ in tensors]
        parts = tf.split(message, sizes, name="message/unpack")
        for (tensor, readers), part in zip(tensors, parts, strict=True):
            whole = tf.reshape(part, tensor.shape)
            for op, i in readers:
                _tf.set_input(op, whole, i)
