"""`tf.contrib.metrics`: those of tf.metrics, under their older names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_int

_V1 = tf.compat.v1
_metrics = _V1.metrics
# So small that only a division by 0 changes.
_EPSILON = 1e-7


def __getattr__(name: str) -> Any:
    """Returns `streaming_...`: a function of tf.metrics with its first two arguments exchanged."""
    if not name.startswith("streaming_"):
        raise AttributeError(name)
    metric = getattr(_metrics, re.sub("^streaming_(sparse_)?", "", name))

    def streaming(predictions: Any, labels: Any, *args: Any, **kwargs: Any) -> Any:
        return metric(labels, predictions, *args, **kwargs)

    return streaming


def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Any:
    """Returns the accuracy of a batch."""
    with tf.name_scope(name or "accuracy"):
        hits = tf.cast(tf.equal(predictions, labels), tf.float32)
        if weights is None:
            return tf.reduce_mean(hits)
        weights = tf.cast(weights, tf.float32) * tf.ones_like(hits)
        return tf.reduce_sum(hits * weights) / tf.reduce_sum(weights)


def f1_score(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Returns the F1 score at the threshold at which it is highest, and its update op.

    Args:
      labels: bool, or 0 and 1.
      predictions: probabilities, of the same shape.
      weights: of the examples.
      num_thresholds: at least 2; they are evenly spaced from just below 0 to just above 1.
      metrics_collections: to add the score to.
      updates_collections: to add the update op to.
      name: the scope's name.
    """
    check_int("num_thresholds", num_thresholds, minimum=2)
    inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
    thresholds = [-_EPSILON, *inner, 1 + _EPSILON]
    labels, predictions = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
    with _V1.variable_scope(name, "f1", [labels, predictions]):
        precisions = _metrics.precision_at_thresholds(labels, predictions, thresholds, weights)
        recalls = _metrics.recall_at_thresholds(labels, predictions, thresholds, weights)
        value, update = (_best_f1(*both) for both in zip(precisions, recalls, strict=True))
    _V1.add_to_collections(metrics_collections or (), value)
    _V1.add_to_collections(updates_collections or (), update)
    return value, update


def _best_f1(precision: Any, recall: Any) -> Any:
    """Returns the highest F1 score, given the precision and the recall at each threshold."""
    return tf.reduce_max(2 * precision * recall / (precision + recall + _EPSILON))


def aggregate_metric_map(names_to_tuples: Mapping[str, tuple]) -> tuple[dict, dict]:
    """Returns values and update ops by name."""
    pairs = names_to_tuples.items()
    return {name: value for name, (value, _) in pairs}, {name: op for name, (_, op) in pairs}
