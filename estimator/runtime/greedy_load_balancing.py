"""Places each variable on the ps task with the fewest bytes."""

from __future__ import annotations

import tensorflow as tf


class GreedyLoadBalancing:
    """Chooses the ps task that holds the fewest bytes so far; the first one if several do."""

    def __init__(self, num_ps: int) -> None:
        """Starts with empty tasks."""
        self._bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """Returns the task for a variable, given the op that creates it."""
        task = self._bytes.index(min(self._bytes))
        self._bytes[task] += _num_bytes(op)
        return task


def _num_bytes(op: tf.Operation) -> int:
    attributes = op.node_def.attr
    shape = tf.TensorShape(attributes["shape"].shape) if "shape" in attributes else None
    if shape is None or not shape.is_fully_defined() or "dtype" not in attributes:
        return 1
    return (shape.num_elements() or 1) * tf.as_dtype(attributes["dtype"].type).size
