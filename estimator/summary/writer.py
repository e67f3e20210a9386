"""One event file writer per directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


class EventWriter:
    """Writes scalars and serialized summaries of one directory's event file.

    The file appears with the first event. Stock hooks that write to the same directory share it.
    """

    def __init__(self, directory: str) -> None:
        """Touches nothing yet."""
        self._directory = directory

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one event with these scalars."""
        summary = tf.compat.v1.Summary()
        for tag, value in values.items():
            summary.value.add(tag=tag, simple_value=float(value))
        self._writer().add_summary(summary, step)

    def write_summary(self, serialized: bytes, step: int) -> None:
        """Adds one event with a serialized tf.compat.v1.Summary."""
        self._writer().add_summary(serialized, step)

    def write_graph(self, graph: tf.Graph) -> None:
        """Adds the graph, for TensorBoard."""
        self._writer().add_graph(graph)

    def write_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        """Adds one event with an evaluation's metrics.

        Args:
          metrics: scalars are written as such, `bytes` as serialized summaries under the metric's
            name (images, say), other arrays as histograms.
          step: the global step that was evaluated.
        """
        summary = tf.compat.v1.Summary()
        for tag, value in sorted(metrics.items()):
            if isinstance(value, bytes):
                for part in tf.compat.v1.Summary.FromString(value).value:
                    part.tag = f"{tag}/{part.tag}" if part.tag else tag
                    summary.value.append(part)
            elif np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub":
                summary.value.add(tag=tag, simple_value=float(value))
        self._writer().add_summary(summary, step)
        self.flush()

    def flush(self) -> None:
        """Puts what was written on disk."""
        self._writer().flush()

    def _writer(self) -> tf.compat.v1.summary.FileWriter:
        with tf.Graph().as_default():
            return tf.compat.v1.summary.FileWriterCache.get(self._directory)
