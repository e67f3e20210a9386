"""Tells whether two graphs of inputs are equal, also those of different processes."""

from __future__ import annotations

import hashlib

import tensorflow as tf

from estimator.input.array_datasets import samples_of_arrays
from estimator.input.file_identity import samples_of_files
from estimator.input.graph_structure import GraphStructure

# The constants of a larger graph would take too long to compare.
MAX_BYTES = 32 * 2**20


def num_constant_bytes(graph: tf.Graph) -> int:
    """Returns the number of bytes of a graph's constants, without the contents of strings."""
    constants = [op.outputs[0] for op in graph.get_operations() if op.type == "Const"]
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in constants)


def input_identity(graph: tf.Graph, num_before: int) -> bytes | None:
    """Returns what is equal for an equal input of any process; None if the input is too large.

    What a Python function reads is not seen, but for arrays that this library keeps out of graphs.
    Of local files that the graph names, the sizes and some bytes are compared.

    Args:
      graph: the graph that the input is in.
      num_before: the number of ops that were in the graph before.
    """
    if num_constant_bytes(graph) > MAX_BYTES:
        return None
    graph_def = graph.as_graph_def()
    del graph_def.node[:num_before]
    content = hashlib.sha256(GraphStructure(graph_def).digest())
    for sample in (*samples_of_arrays(graph), *samples_of_files(graph_def)):
        content.update(sample)
    return content.hexdigest().encode()
