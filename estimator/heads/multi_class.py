"""`MultiClassHead`: one of several classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_int
from estimator.heads.classes import class_outputs, classification_output
from estimator.heads.head import with_default
from estimator.heads.head_metrics import MetricRow, compare_rows
from estimator.heads.labels import build_class_ids, check_label_vocabulary, with_shape_of
from estimator.heads.single_head import SingleHead


class MultiClassHead(SingleHead):
    """A head for one of three or more classes: softmax cross-entropy.

    Logits have shape [D0, ..., DN, n_classes], and labels [D0, ..., DN, 1] or [D0, ..., DN]:
    strings of the vocabulary, or integers in [0, n_classes).
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable | None = None,
        name: str | None = None,
    ) -> None:
        """Checks the arguments.

        Args:
          n_classes: the number of classes, at least 3; a BinaryClassHead is for 2.
          weight_column: see `BinaryClassHead`.
          label_vocabulary: the strings that stand for the classes, `n_classes` of them.
          loss_reduction: see `BinaryClassHead`.
          loss_fn: see `BinaryClassHead`.
          name: see `Head`.

        Raises:
          ValueError: a value is wrong.
          TypeError: a value has the wrong type.
        """
        check_int("n_classes", n_classes)
        if n_classes < 3:
            raise ValueError(
                f"`n_classes` ({n_classes}) must be at least 3. For 2, use a BinaryClassHead."
            )
        super().__init__(int(n_classes), weight_column, loss_reduction, name, loss_fn)
        check_label_vocabulary(label_vocabulary, n_classes)
        self._vocabulary = label_vocabulary

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any]:
        """Returns a classification, which is the default, and all predictions."""
        classification = classification_output(predictions, self._vocabulary)
        return with_default(predictions, classification=classification)

    def _build_labels(self, labels: Any, logits: tf.Tensor) -> tf.Tensor:
        ids = build_class_ids(labels, self._logits_dimension, self._vocabulary, self._title)
        return with_shape_of(ids, logits, 1, self._title)

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.squeeze(labels, -1), logits=logits
        )
        return tf.expand_dims(losses, -1)

    def _build_outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": logits} | class_outputs(logits, self._vocabulary)

    def _metric_rows(self) -> Sequence[MetricRow]:
        return compare_rows(["accuracy"], lambda b: (b.labels, b.outputs["class_ids"]))
