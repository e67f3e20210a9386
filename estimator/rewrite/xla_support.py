"""Finds the operations of a TPU's program that XLA cannot compile, and the code that made them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from estimator import _tf
from estimator.console import log
from estimator.rewrite.graph_walk import functions_called

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
    functions: dict[str, tf.compat.v1.NodeDef] | None = None
    for op in graph.get_operations():
        node = op.node_def
        if _tf.TPU_PROGRAM not in node.attr or _OUTSIDE in node.attr:
            continue
        called = functions_called(node)
        if called and functions is None:
            library = graph.as_graph_def().library.function
            functions = {function.signature.name: function.node_def for function in library}
        types = {t for node in _nodes_inside([node], functions or {}) for t in [_type(node)] if t}
        if any(tensor.dtype == tf.string for tensor in op.outputs):
            types.add(f"{op.type} of strings")
        if types:
            yield op, sorted(types)


def _nodes_inside(
    nodes: Iterable[tf.compat.v1.NodeDef], functions: Mapping[str, Iterable[tf.compat.v1.NodeDef]]
) -> Iterator[tf.compat.v1.NodeDef]:
    """Yields the nodes and those of the functions that they call."""
    seen, left = set(), collections.deque(nodes)
    while left:
        node = left.popleft()
        yield node
        for name in functions_called(node):
            if name not in seen:
                seen.add(name)
                left.extend(functions.get(name, ()))


def _type(node: tf.compat.v1.NodeDef) -> str | None:
    """Returns the node's type if XLA cannot compile it."""
    if node.op.startswith(_NOT_COMPILED) or _OUTSIDE in node.attr:
        return None
    return None if node.op in _tf.compilable_ops() else node.op


def _describe(op: tf.Operation, types: list[str]) -> str:
    line = _tf.line_of(op)
    where = f", made at {line}" if line else ""
    return f"{', '.join(types)} ({op.name!r}{where})"
