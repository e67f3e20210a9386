"""`BinaryClassHead`: one of two classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.heads.classes import checked_thresholds, class_outputs, classification_output
from estimator.heads.head import with_default
from estimator.heads.head_metrics import (
    MetricRow,
    baseline_row,
    compare_rows,
    mean_row,
    threshold_rows,
)
from estimator.heads.labels import (
    as_numbers,
    build_class_ids,
    build_required,
    check_label_vocabulary,
    with_shape_of,
)
from estimator.heads.single_head import SingleHead
from estimator.spec.outputs import RegressionOutput


class BinaryClassHead(SingleHead):
    """A head for one of two classes: logistic loss.

    Logits have shape [D0, ..., DN, 1]. Labels have that shape, or [D0, ..., DN]: strings of the
    vocabulary, or numbers in [0, 1].
    """

    def __init__(
        self,
        weight_column: Any = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable | None = None,
        name: str | None = None,
    ) -> None:
        """Checks the arguments.

        Args:
          weight_column: the name of the feature with the examples' weights, or a numeric_column for
            it. The weights have shape [D0, ..., DN] or [D0, ..., DN, 1].
          thresholds: numbers in (0, 1): accuracy, precision and recall are also reported for
            predicting the second class above each of these probabilities.
          label_vocabulary: the strings that stand for the two classes.
          loss_reduction: "sum_over_batch_size" (the mean over examples, whatever their weights), or
            "sum"; or one of `tf.compat.v1.losses.Reduction`.
          loss_fn: takes `labels`, `logits` and, if it names them, `features` and `loss_reduction`;
            returns the losses of examples, [D0, ..., DN, 1].
          name: see `Head`.

        Raises:
          ValueError: a value is wrong.
          TypeError: a value has the wrong type.
        """
        super().__init__(1, weight_column, loss_reduction, name, loss_fn)
        check_label_vocabulary(label_vocabulary, 2)
        self._thresholds = checked_thresholds(thresholds)
        self._vocabulary = label_vocabulary

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any]:
        """Returns a classification, which is the default, the probability, and all predictions."""
        classification = classification_output(predictions, self._vocabulary)
        regression = RegressionOutput(predictions["logistic"])
        return with_default(predictions, classification=classification, regression=regression)

    def _build_labels(self, labels: Any, logits: tf.Tensor) -> tf.Tensor:
        title = self._title
        if self._vocabulary is not None:
            labels = build_class_ids(labels, 2, self._vocabulary, title)
        else:
            labels = tf.cast(as_numbers(labels, title), logits.dtype)
            is_right = (labels >= 0) & (labels <= 1)
            labels = build_required(labels, is_right, f"{title}: labels must be in [0, 1]")
        return tf.cast(with_shape_of(labels, logits, 1, title), logits.dtype)

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _build_outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        two = tf.concat([tf.zeros_like(logits), logits], -1, name="two_class_logits")
        outputs = {"logits": logits, "logistic": tf.sigmoid(logits, name="logistic")}
        return outputs | class_outputs(two, self._vocabulary)

    def _metric_rows(self) -> Sequence[MetricRow]:
        return [
            *compare_rows(
                ["accuracy", "precision", "recall"],
                # As floats: Keras 3 converts labels to the type of predictions, and so a label of
                # 0.5 to class 0.
                lambda b: (b.labels, tf.cast(b.outputs["class_ids"], b.labels.dtype)),
            ),
            mean_row("prediction/mean", lambda b: b.outputs["logistic"]),
            mean_row("label/mean", lambda b: b.labels),
            baseline_row(lambda b: b.labels),
            *compare_rows(
                ["auc", "auc_precision_recall"], lambda b: (b.labels, b.outputs["logistic"])
            ),
            *threshold_rows(self._thresholds, lambda b: (b.labels, b.outputs["logistic"])),
        ]
