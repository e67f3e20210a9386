"""Tells whether two graphs of inputs are equal, also those of different processes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from estimator.input.array_datasets import samples_of_arrays
from estimator.input.file_identity import samples_of_files

# The constants of a larger graph would take too long to compare.
MAX_BYTES = 32 * 2**20

_NUMBER = re.compile(r"\d+$")


def comparable(graph_def: Any) -> bytes:
    """Returns the ops and functions of a GraphDef as bytes, which are equal for equal graphs.

    TensorFlow numbers all functions of a process, those of Python, too. Here the former have the
    numbers of their order in the graph, the latter none. Devices do not count: an input is on the
    CPU, under whatever name. Changes the GraphDef.
    """
    functions = sorted(graph_def.library.function, key=_number_of)
    names = {f.signature.name: f"{_stem(f)}{place}" for place, f in enumerate(functions)}
    _rename(graph_def.node, names)
    for function in functions:
        function.signature.name = names[function.signature.name]
        _rename(function.node_def, names)
    del graph_def.library.function[:]
    graph_def.library.function.extend(functions)
    return graph_def.SerializeToString(deterministic=True)


def _rename(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Renames the functions that nodes call; removes devices and numbers of Python's functions."""
    for node in nodes:
        node.device = ""
        node.op = names.get(node.op, node.op)
        node.attr.pop("token", None)
        if "HashTable" in node.op:
            node.attr.pop("shared_name", None)  # A random one; what fills the table counts.
        for attr in node.attr.values():
            called = [attr.func] if attr.HasField("func") else attr.list.func
            for function in called:
                function.name = names.get(function.name, function.name)


def _number_of(function: Any) -> int:
    number = _NUMBER.search(function.signature.name)
    return int(number[0]) if number else -1


def _stem(function: Any) -> str:
    return _NUMBER.sub("", function.signature.name)


def num_constant_bytes(graph: tf.Graph) -> int:
    """Returns the number of bytes of a graph's constants, without the contents of strings."""
    constants = [op.outputs[0] for op in graph.get_operations() if op.type == "Const"]
    return sum((t.shape.num_elements() or 0) * t.dtype.size for t in constants)


def input_identity(graph: tf.Graph, num_before: int) -> bytes | None:
    """Returns what is equal for an equal input of any process; None if the input is too large.

    What a Python function reads is not seen, but for arrays that this library keeps out of graphs,
    of which some rows are compared. Of local files that the graph names, the sizes and some bytes
    are.

    Args:
      graph: the graph that the input is in.
      num_before: the number of ops that were in the graph before.
    """
    if num_constant_bytes(graph) > MAX_BYTES:
        return None
    graph_def = graph.as_graph_def()
    del graph_def.node[:num_before]
    content = hashlib.sha256(comparable(graph_def))
    for sample in (*samples_of_arrays(graph), *samples_of_files(graph_def)):
        content.update(sample)
    return content.hexdigest().encode()
