"""`tf.contrib.metrics`: those of tf.metrics, under their older names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_metrics = tf.compat.v1.metrics
_STREAMING = """
accuracy auc false_negatives false_positives mean mean_absolute_error mean_cosine_distance mean_iou
mean_relative_error mean_squared_error mean_tensor percentage_below precision recall
root_mean_squared_error sensitivity_at_specificity specificity_at_sensitivity true_negatives
true_positives
"""
_OF_LABELS = set(_STREAMING.split()) - {"mean", "mean_tensor", "percentage_below"}


def _streaming(name: str) -> Any:
    metric = getattr(_metrics, name)
    if name not in _OF_LABELS:
        return metric

    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        """Is the function of tf.metrics; that has the labels first."""
        return metric(labels, predictions, *args, **kwargs)

    return streaming


globals().update({f"streaming_{name}": _streaming(name) for name in _STREAMING.split()})


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the accuracy of a batch."""
    with tf.name_scope(name or "accuracy"):
        hits = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(hits)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(hits)
        return tf.reduce_sum(hits * weights) / tf.reduce_sum(weights)


def f1_score(labels: Any, predictions: Any, weights: Any = None, **others: Any) -> tuple[Any, Any]:
    """Returns the F1 score of predictions rounded to 0 or 1, and its update op.

    tf.contrib's looked for the best of 200 thresholds; this one's is 0.5.
    """
    del others
    predictions = tf.cast(tf.cast(predictions, tf.float32) > 0.5, tf.int32)
    precision, update_precision = _metrics.precision(labels, predictions, weights)
    recall, update_recall = _metrics.recall(labels, predictions, weights)

    def f1(p: Any, r: Any) -> Any:
        return tf.math.divide_no_nan(2 * p * r, p + r)

    return f1(precision, recall), f1(update_precision, update_recall)


def aggregate_metric_map(names_to_tuples: Mapping[str, tuple]) -> tuple[dict, dict]:
    """Returns values and update ops by name."""
    pairs = names_to_tuples.items()
    return {name: value for name, (value, _) in pairs}, {name: op for name, (_, op) in pairs}


__all__ = [
    "accuracy",
    "aggregate_metric_map",
    "f1_score",
    *(f"streaming_{name}" for name in _STREAMING.split()),
]
