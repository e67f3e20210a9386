"""Copies a part of a graph into the default graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_before


def build_copy(
    value: Any,
    should_copy: Callable[[tf.Operation], bool],
    made: Mapping[tf.Operation, tf.Operation] | None = None,
) -> Any:
    """Makes `value` again in the default graph, with the ops before it that `should_copy` admits.

    Args:
      value: a nested structure of tensors of this graph or of one around it.
      should_copy: which ops to make again; the others' outputs are used as they are.
      made: what stands for an op instead of a copy, with outputs like its own.

    Returns:
      The same structure, of new tensors.
    """
    copies = dict(made or {})
    given = frozenset(copies)
    flat = [t for t in tf.nest.flatten(value, expand_composites=True) if t is not None]
    for op in ops_before(flat, lambda op: op not in given and should_copy(op)):
        copies[op] = _tf.copy_op(op, [_copied(tensor, copies) for tensor in op.inputs])
    return tf.nest.map_structure(
        lambda t: None if t is None else _copied(t, copies), value, expand_composites=True
    )


def runs_each_time(op: tf.Operation) -> bool:
    """False for what stays from run to run: queues, iterators, variables, placeholders, constants.

    For `build_copy`: the rest has another value when it is run again.
    """
    is_handle = any(_tf.is_ref(output) or output.dtype == tf.resource for output in op.outputs)
    return not is_handle and op.type not in ("Const", "Placeholder")


def _copied(tensor: tf.Tensor, copies: dict[tf.Operation, tf.Operation]) -> tf.Tensor:
    copy = copies.get(tensor.op)
    return tensor if copy is None else copy.outputs[tensor.value_index]
