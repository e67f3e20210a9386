"""Clips gradients by their norm after reduction over replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf

Pair = tuple[Any, Any]


def clip_by_reduced_norm(
    pairs: Sequence[Pair], clip_norm: tf.Tensor | float, reduction: str
) -> list[Pair]:
    """Scales this replica's gradients so that the reduced gradients' norm is at most `clip_norm`.

    Args:
      pairs: this replica's (gradient, variable) pairs; a gradient may be None.
      clip_norm: the maximum norm of all gradients together.
      reduction: the reduction over replicas, "mean" or "sum".

    Returns:
      The pairs with scaled gradients, which are not reduced yet.
    """
    context = tf.distribute.get_replica_context()
    by_what = tf.distribute.ReduceOp.MEAN if reduction == "mean" else tf.distribute.ReduceOp.SUM
    there = [
        tf.nest.map_structure(tf.stop_gradient, g, expand_composites=True)
        for g, _ in pairs
        if g is not None
    ]
    reduced = context.all_reduce(by_what, there) if context.num_replicas_in_sync > 1 else there
    dense = [_rows_summed(gradient) for gradient in reduced]
    dtype = tf.float64 if any(gradient.dtype == tf.float64 for gradient in dense) else tf.float32
    norm = tf.linalg.global_norm([tf.cast(gradient, dtype) for gradient in dense])
    clip_norm = tf.cast(clip_norm, dtype)
    scale = clip_norm / tf.maximum(norm, clip_norm)
    return [(_tf.scaled(gradient, scale), variable) for gradient, variable in pairs]


def _rows_summed(gradient: Any) -> tf.Tensor:
    """Returns a tensor of the same norm, summing the parts of a sparse gradient's rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    return tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
