"""The metrics of heads: Keras metrics, which are exact over replicas, and what updates them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Evaluated(NamedTuple):
    """A batch as metrics see it.

    Attributes:
      labels: the labels as numbers.
      losses: the loss of each example, or of each of its outputs; without weights.
      weights: of the rank of `losses`, or None.
      outputs: the head's predictions.
    """

    labels: tf.Tensor
    losses: tf.Tensor
    weights: tf.Tensor | None
    outputs: dict[str, tf.Tensor]


class MetricRow(NamedTuple):
    """A metric of a head.

    Attributes:
      key: its key, without the head's name.
      make: makes the Keras metric.
      values: returns what its `update_state` takes, except for the weights.
    """

    key: str
    make: Callable[[], Any]
    values: Callable[[Evaluated], Sequence[tf.Tensor]]


def mean_row(key: str, values: Callable[[Evaluated], tf.Tensor]) -> MetricRow:
    """A weighted mean."""
    return MetricRow(key, _keras("Mean"), lambda batch: [values(batch)])


def baseline_row(labels: Callable[[Evaluated], tf.Tensor]) -> MetricRow:
    """The accuracy of always predicting the more frequent of two classes."""

    def make() -> Any:
        metric = tf.keras.metrics.Mean(name="accuracy_baseline")
        read_share = metric.result

        def result() -> tf.Tensor:
            share = read_share()
            return tf.maximum(share, 1 - share)

        # Not a subclass: tf-keras would compile its updates, and nobody could tell that they add.
        metric.result = result
        return metric

    return MetricRow("accuracy_baseline", make, lambda batch: [labels(batch)])


def compare_rows(
    kinds: Sequence[str], values: Callable[[Evaluated], Sequence[tf.Tensor]]
) -> list[MetricRow]:
    """Metrics of (labels, predictions) without thresholds: accuracy, precision, recall, AUC."""
    return [MetricRow(kind, _MAKE[kind], values) for kind in kinds]


def threshold_rows(
    thresholds: Sequence[float], values: Callable[[Evaluated], Sequence[tf.Tensor]]
) -> list[MetricRow]:
    """Accuracy, precision and recall of probabilities above each threshold."""
    return [
        MetricRow(f"{kind}/positive_threshold_{threshold:g}", make(threshold), values)
        for threshold in thresholds
        for kind, make in _MAKE_AT.items()
    ]


def update(metric: Any, values: Sequence[tf.Tensor], weights: tf.Tensor | None) -> None:
    """Adds a batch to a Keras metric; weights are broadcast to the shape of the values."""
    if weights is not None:
        weights = tf.broadcast_to(weights, tf.shape(values[-1]))
        weights = tf.ensure_shape(weights, values[-1].shape)
    metric.update_state(*values, sample_weight=weights)


def _keras(name: str, **kwargs: Any) -> Callable[[], Any]:
    """Makes a metric of Keras, which is imported only then."""
    return lambda: getattr(tf.keras.metrics, name)(**kwargs)


_MAKE = {
    "accuracy": _keras("Accuracy"),
    "precision": _keras("Precision"),
    "recall": _keras("Recall"),
    "auc": _keras("AUC"),
    "auc_precision_recall": _keras("AUC", curve="PR"),
}
_MAKE_AT = {
    "accuracy": lambda at: _keras("BinaryAccuracy", threshold=at),
    "precision": lambda at: _keras("Precision", thresholds=at),
    "recall": lambda at: _keras("Recall", thresholds=at),
}
