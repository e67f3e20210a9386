"""Finds the operations of a TPU's program that XLA cannot compile, and the code that made them."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tensorflow as tf

from estimator import _tf
from estimator.console import log
from estimator.rewrite.graph_walk import function_nodes, nodes_inside

# TensorFlow removes these ops from a program before it is compiled.
_NOT_COMPILED = ("TPU", "Placeholder", "CrossReplicaSum", "AllToAll", "CollectivePermute", "Xla")
_OUTSIDE = "_xla_outside_compilation"
_MAX_SHOWN = 10


def warn_of_uncompilable_ops(graph: tf.Graph) -> None:
    """Warns of the ops of a TPU's program in `graph` for which XLA has no kernel.

    It is not an error, because a TPU's compiler may support more than this TensorFlow's XLA does.
    """
    found = dict(_uncompilable_ops(graph))
    if not found:
        return
    shown = [_describe(op, types) for op, types in list(found.items())[:_MAX_SHOWN]]
    more = f" and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
    log.warning(
        "XLA, which compiles `model_fn` for a TPU, cannot compile these operations: %s%s. Compute "
        "them in `input_fn`, or in a `host_call` or a `metric_fn`, which run on the host; or wrap "
        "them in tf.compat.v1.tpu.outside_compilation(function, ...).",
        "; ".join(shown),
        more,
    )


def _uncompilable_ops(graph: tf.Graph) -> Iterator[tuple[tf.Operation, list[str]]]:
    """Yields the ops that cannot be compiled, with the unsupported types: their own or nested."""
    functions = functools.cache(lambda: function_nodes(graph))
    for op in graph.get_operations():
        node = op.node_def
        if _tf.TPU_PROGRAM not in node.attr or _OUTSIDE in node.attr:
            continue
        types = {t for t in map(_type, nodes_inside(node, functions)) if t is not None}
        if any(tensor.dtype == tf.string for tensor in op.outputs):
            types.add(f"{op.type} of strings")
        if types:
            yield op, sorted(types)


def _type(node: tf.compat.v1.NodeDef) -> str | None:
    """Returns the node's type if XLA cannot compile it."""
    if node.op.startswith(_NOT_COMPILED) or _OUTSIDE in node.attr:
        return None
    return None if node.op in _tf.compilable_ops() else node.op


def _describe(op: tf.Operation, types: list[str]) -> str:
    line = _tf.line_of(op)
    where = f", made at {line}" if line else ""
    return f"{', '.join(types)} ({op.name!r}{where})"
