"""Writes `graph.pbtxt`, for tools that read graphs as text."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import tensorflow as tf

from estimator.console import log
from estimator.rewrite.graph_walk import all_nodes
from estimator.summary.whole_file import write_file

_NAME = "graph.pbtxt"
# Larger constants are formatted separately: protobuf takes 50 ms per megabyte.
_SMALL_BYTES = 256
_HEAD_START_SECS = 1.0


@contextlib.contextmanager
def writing_graph(graph: tf.Graph, model_dir: str) -> Iterator[None]:
    """Writes the graph as text while the block runs; the complete file exists when it ends.

    A thread writes it, because data that `input_fn` has put into the graph takes long to format. It
    begins a second later, or when the block ends: until then it would take Python's lock from what
    comes before the first step.
    """
    graph_def = graph.as_graph_def(add_shapes=True)
    is_over = threading.Event()

    def write() -> None:
        is_over.wait(_HEAD_START_SECS)
        _write(graph_def, model_dir)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _write(graph_def: tf.compat.v1.GraphDef, model_dir: str) -> None:
    path = os.path.join(model_dir, _NAME)
    try:
        write_file(path, graph_as_text(graph_def).encode())
    except (tf.errors.OpError, OSError) as error:
        log.warning("%s could not be written: %s", path, error)


def graph_as_text(graph_def: tf.compat.v1.GraphDef) -> str:
    """Returns the graph in protobuf's text format; modifies large constants in `graph_def`.

    Python's `repr` of bytes is valid in that format, and 20 times as fast as protobuf.
    """
    contents = []
    for node in all_nodes(graph_def):
        tensor = node.attr["value"].tensor if "value" in node.attr else None
        if tensor is not None and len(tensor.tensor_content) > _SMALL_BYTES:
            contents.append(repr(tensor.tensor_content).removeprefix("b"))
            tensor.tensor_content = b"@content %d@" % (len(contents) - 1)
    text = str(graph_def)
    for i, content in enumerate(contents):
        text = text.replace(f'"@content {i}@"', content, 1)
    return text
