"""The graph of a program, which several files hold a copy of."""

from __future__ import annotations

import threading
from typing import Any

import tensorflow as tf

# A longer definition holds data of the input, which is not kept in memory a second time.
_MAX_BYTES = 16 << 20


class ProgramGraph(tf.Graph):
    """A graph that makes its definition with shapes once for all that write it.

    The event file, `graph.pbtxt` and `.meta` each ask for it before the first step, and its shapes
    are collected op by op in Python.
    """

    def __init__(self) -> None:
        """Makes an empty graph."""
        super().__init__()
        self._definition_lock = threading.Lock()
        self._serialized: dict[int, bytes] = {}  # The definition of the newest version asked for.

    def as_graph_def(
        self, from_version: int | None = None, add_shapes: bool = False, **options: Any
    ) -> tf.compat.v1.GraphDef:
        """Returns the definition of the graph, which the caller may change."""
        if from_version is not None or not add_shapes:
            return super().as_graph_def(from_version, add_shapes, **options)
        with self._definition_lock:
            version = self.version
            if version in self._serialized:
                return tf.compat.v1.GraphDef.FromString(self._serialized[version])
            definition = super().as_graph_def(None, add_shapes, **options)
            self._serialized.clear()
            if definition.ByteSize() <= _MAX_BYTES:
                self._serialized[version] = definition.SerializeToString()
            return definition
