"""Finds a saver's ops, which hold the names it uses for variables, whatever the saver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.rewrite.graph_walk import ops_of_type

# The name in a checkpoint, and the slice of a partitioned variable or b"".
Key = tuple[bytes, bytes]


def has_stock_methods(saver: Any, names: Sequence[str] = ("save", "export_meta_graph")) -> bool:
    """Returns whether a saver saves and exports its graph as `tf.compat.v1.train.Saver` does.

    Args:
      saver: any object.
      names: the methods that must be TensorFlow's or the library's.
    """
    if not isinstance(saver, tf.compat.v1.train.Saver):
        return False
    methods = [getattr(type(saver), name) for name in names]
    return all(m.__module__.startswith(("tensorflow.", "estimator.")) for m in methods)


def save_ops(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> list[tf.Operation]:
    """Returns the SaveV2 ops with which the saver saves."""
    last = graph.get_tensor_by_name(saver.as_saver_def().save_tensor_name).op
    return ops_of_type(last, "SaveV2")


def last_restore_op(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> tf.Operation:
    """Returns the op that runs last when the saver restores."""
    return graph.get_operation_by_name(saver.as_saver_def().restore_op_name)


def saved_names(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> set[str]:
    """Returns the names that the saver saves."""
    return _names(save_ops(graph, saver))


def restored_names(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> set[str]:
    """Returns the names that the saver restores."""
    return _names(ops_of_type(last_restore_op(graph, saver), "RestoreV2"))


def saved_tensors(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> list[tf.Tensor]:
    """Returns the tensors that the saver writes, in the order of `keys_of` its SaveV2 ops."""
    return [tensor for op in save_ops(graph, saver) for tensor in op.inputs[3:]]


def keys_of(op: tf.Operation) -> list[Key]:
    """Returns the keys of the tensors of a SaveV2 or RestoreV2 op, in order."""
    names, parts = (tf.get_static_value(op.inputs[i]) for i in (1, 2))
    return list(zip(names.tolist(), parts.tolist(), strict=True))


def _names(ops: list[tf.Operation]) -> set[str]:
    return {name.decode() for op in ops for name, _ in keys_of(op)}
