"""Which ps task holds a variable, if the fewest bytes decide."""

from __future__ import annotations

import tensorflow as tf


class GreedyLoadBalancing:
    """The ps task that holds the fewest bytes so far; the first of several."""

    def __init__(self, num_ps: int) -> None:
        """None of the tasks holds anything yet."""
        self._bytes = [0] * num_ps

    def __call__(self, op: tf.Operation) -> int:
        """The task for a variable, by the op that makes it."""
        task = self._bytes.index(min(self._bytes))
        self._bytes[task] += _num_bytes(op)
        return task


def _num_bytes(op: tf.Operation) -> int:
    attributes = op.node_def.attr
    shape = tf.TensorShape(attributes["shape"].shape) if "shape" in attributes else None
    if shape is None or not shape.is_fully_defined() or "dtype" not in attributes:
        return 1
    return (shape.num_elements() or 1) * tf.as_dtype(attributes["dtype"].type).size
