"""Copies a part of a graph into the default graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import closes_a_loop, inputs_of, ops_before, waits_of


def build_copy(
    value: Any,
    should_copy: Callable[[tf.Operation], bool],
    made: Mapping[tf.Operation, Sequence[tf.Tensor]] | None = None,
    *,
    copies_waits: bool = False,
) -> Any:
    """Copies `value` to the default graph, with the ops before it that `should_copy` accepts.

    Args:
      value: a nested structure of tensors of the default graph or of a graph around it.
      should_copy: whether to copy an op; the outputs of other ops are used directly.
      made: what is used instead of the outputs of ops, which are not copied.
      copies_waits: whether to copy what the ops only wait for, such as asserts, as well.

    Returns:
      The same structure with the new tensors.

    Raises:
      ValueError: a `tf.while_loop` of v1 control flow is among the ops.
    """
    outputs = dict(made or {})
    given = frozenset(outputs)
    flat = [t for t in tf.nest.flatten(value, expand_composites=True) if t is not None]
    behind = waits_of if copies_waits else inputs_of
    ops = ops_before(flat, lambda op: op not in given and should_copy(op), behind)
    if loop_ends := [op.name for op in ops if closes_a_loop(op)]:
        raise ValueError(
            f"{loop_ends[0]!r} is in a `tf.while_loop` of v1 control flow, which cannot be copied "
            "into a loop of steps or for another replica. Call "
            "`tf.compat.v1.enable_control_flow_v2()` at the start of the program, after "
            "`disable_v2_behavior()`."
        )
    copies = {op: {tensor.op for tensor in tensors} for op, tensors in outputs.items()}
    for op in ops:
        copy = _tf.copy_op(op, [_copied(tensor, outputs) for tensor in op.inputs])
        if copies_waits:
            waits = [other for o in op.control_inputs for other in copies.get(o, ())]
            _tf.add_control_inputs(copy, waits)
        for old, new in zip(op.outputs, copy.outputs, strict=True):
            new.set_shape(old.shape)  # The program may know more of it than TensorFlow infers.
        copies[op], outputs[op] = {copy}, copy.outputs
    return tf.nest.map_structure(
        lambda t: None if t is None else _copied(t, outputs), value, expand_composites=True
    )


def runs_each_time(op: tf.Operation) -> bool:
    """Returns False for queues, iterators, variables, placeholders and constants.

    They persist from run to run. For `build_copy`: any other op may have a new value each time.
    """
    is_handle = any(_tf.is_ref(output) or output.dtype == tf.resource for output in op.outputs)
    # A placeholder with a default may be fed; another default has a new value each time.
    has_constant = op.type == "PlaceholderWithDefault" and op.inputs[0].op.type == "Const"
    return not (is_handle or has_constant or op.type in ("Const", "Placeholder"))


def _copied(tensor: tf.Tensor, outputs: dict[tf.Operation, Sequence[tf.Tensor]]) -> tf.Tensor:
    made = outputs.get(tensor.op)
    return tensor if made is None else made[tensor.value_index]
