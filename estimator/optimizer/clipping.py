"""Clips gradients by the norm that they have once they are reduced over replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

Pair = tuple[Any, Any]


def clip_by_reduced_norm(pairs: Sequence[Pair], clip_norm: float, reduction: str) -> list[Pair]:
    """Scales this replica's gradients so that the norm of what is applied is at most `clip_norm`.

    Args:
      pairs: (gradient, variable), on a replica; a gradient may be None.
      clip_norm: the most that the norm over all gradients together may be.
      reduction: "mean" or "sum" over replicas.

    Returns:
      The same pairs with scaled gradients, which are yet to be reduced.
    """
    context = tf.distribute.get_replica_context()
    by_what = tf.distribute.ReduceOp.MEAN if reduction == "mean" else tf.distribute.ReduceOp.SUM
    there = [
        tf.nest.map_structure(tf.stop_gradient, g, expand_composites=True)
        for g, _ in pairs
        if g is not None
    ]
    reduced = context.all_reduce(by_what, there) if context.num_replicas_in_sync > 1 else there
    norm = tf.linalg.global_norm([_rows_summed(gradient) for gradient in reduced])
    scale = clip_norm / tf.maximum(norm, clip_norm)
    return [(None if g is None else _scaled(g, scale), variable) for g, variable in pairs]


def _rows_summed(gradient: Any) -> tf.Tensor:
    """A tensor of the same norm: a sparse gradient may hold a row in several parts."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))


def _scaled(gradient: Any, scale: tf.Tensor) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values * tf.cast(scale, gradient.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(scale, gradient.dtype)
