"""Restricts a graph's collections to what a `.meta` file or a SavedModel can hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def only_top_of_graph(graph: tf.Graph) -> Iterator[None]:
    """Removes tensors and ops of loops and branches from a graph's collections, in the block.

    Loops and branches share the collections of the graph around them, such as losses and summaries.
    An import looks up everything in them at the top of the graph, and would fail.
    """
    before: dict[Any, list] = {}
    try:
        for key in graph.get_all_collection_keys():
            collection = graph.get_collection_ref(key)
            before[key] = list(collection)
            collection[:] = [value for value in collection if not _is_inside(value, graph)]
        yield
    finally:
        for key, values in before.items():
            graph.get_collection_ref(key)[:] = values


def _is_inside(value: Any, graph: tf.Graph) -> bool:
    if isinstance(value, tf.distribute.DistributedValues):
        parts = list(value.values)
    elif isinstance(value, tf.Variable):
        # Not split into its copies: reading one whose copies are summed or averaged adds ops to the
        # graph. The result of an assignment is a variable too, whose `op` is the assignment.
        parts = [value]
    else:
        parts = tf.nest.flatten(value, expand_composites=True)
    ops = [getattr(part, "op", part) for part in parts]
    return any(getattr(op, "graph", graph) is not graph for op in ops)
