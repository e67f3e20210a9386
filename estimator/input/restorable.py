"""Finds inputs whose position TensorFlow restores incorrectly, or damages the input by saving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator.input.graph_identity import MAX_BYTES, num_constant_bytes

_HEADER, _FILE_NAME = 3, 1  # Places among the inputs of the ops.


def unrestorable_part(graph: tf.Graph, num_before: int) -> str | None:
    """Returns the part of an input whose position must not be saved; None if there is none.

    Seen on TensorFlow 2.15 to 2.21:
    - A CSV file with a header resumes at another row, or inside of one.
    - A `snapshot` that was still being written when its position was saved fails when it is read
      there, or gives other data.
    - A `cache` in a file crashes the process if the file is gone. If it is saved before it is
      complete, it stays locked for all other readers.

    Args:
      graph: the graph that the input is in.
      num_before: the number of ops that were in the graph before.
    """
    dataset_ops = [op for op in graph.get_operations()[num_before:] if _can_prevent(op.type)]
    sources = [t.op for op in dataset_ops for t in op.inputs if t.op.type == "Const"]
    parts: list[Iterable[Any]] = [[op.node_def for op in (*dataset_ops, *sources)]]
    if num_constant_bytes(graph) <= MAX_BYTES:  # A larger graph takes too long to serialize.
        parts += [function.node_def for function in graph.as_graph_def().library.function]
    return next(filter(None, map(_found_in, parts)), None)


def _can_prevent(op_type: str) -> bool:
    return op_type.startswith(("CSVDataset", "CacheDataset", "SnapshotDataset"))


def _found_in(nodes: Iterable[Any]) -> str | None:
    """Does the same for the nodes of a graph or of a function."""
    nodes = list(nodes)
    for node in nodes:
        if node.op.startswith("CSVDataset") and _constant(nodes, node.input[_HEADER]) is not False:
            return "a CSV file with a header"
        if node.op.startswith("CacheDataset") and _constant(nodes, node.input[_FILE_NAME]) != b"":
            return "a `cache` in a file"
        if node.op.startswith("SnapshotDataset"):
            return "a `snapshot`"
    return None


def _constant(nodes: Sequence[Any], name: str) -> Any:
    """Returns the value of the constant of that name, as of Python; None if there is none."""
    name = name.partition(":")[0]
    for node in nodes:
        if node.name == name and node.op == "Const":
            return tf.make_ndarray(node.attr["value"].tensor).item()
    return None
