"""`MultiLabelHead`: any number of several classes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_int, checked_list, did_you_mean
from estimator.heads.classes import all_classes, checked_thresholds, classification_output
from estimator.heads.head import with_default
from estimator.heads.head_metrics import (
    Evaluated,
    MetricRow,
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


class MultiLabelHead(SingleHead):
    """A head for examples with any number of classes: logistic loss, the mean over classes.

    Logits have shape [D0, ..., DN, n_classes]. Labels are a dense tensor of this shape with 0 and
    1; or a sparse or ragged tensor [D0, ..., DN, any], with the ids or names of each example's
    classes.
    """

    def __init__(
        self,
        n_classes: int,
        weight_column: Any = None,
        thresholds: Sequence[float] | None = None,
        label_vocabulary: Sequence[str] | None = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable | None = None,
        classes_for_class_based_metrics: Sequence[int | str] | None = None,
        name: str | None = None,
    ) -> None:
        """Checks the arguments.

        Args:
          n_classes: the number of classes, at least 2.
          weight_column: see `BinaryClassHead`.
          thresholds: see `BinaryClassHead`; the metrics count each class of each example.
          label_vocabulary: the strings that stand for the classes, `n_classes` of them.
          loss_reduction: see `BinaryClassHead`.
          loss_fn: see `BinaryClassHead`; it gets labels as 0 and 1, and returns [D0, ..., DN, 1].
          classes_for_class_based_metrics: the ids or names of classes that have metrics of their
            own.
          name: see `Head`.

        Raises:
          ValueError: a value is wrong.
          TypeError: a value has the wrong type.
        """
        check_int("n_classes", n_classes, minimum=2)
        super().__init__(int(n_classes), weight_column, loss_reduction, name, loss_fn)
        check_label_vocabulary(label_vocabulary, n_classes)
        self._thresholds = checked_thresholds(thresholds)
        self._vocabulary = label_vocabulary
        self._classes = [
            _class_id(name, int(n_classes), label_vocabulary)
            for name in checked_list(
                "classes_for_class_based_metrics", classes_for_class_based_metrics
            )
        ]

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any]:
        """Returns a classification, which is the default, and all predictions."""
        classification = classification_output(predictions, self._vocabulary)
        return with_default(predictions, classification=classification)

    def _build_labels(self, labels: Any, logits: tf.Tensor) -> tf.Tensor:
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.to_sparse()
        if isinstance(labels, tf.SparseTensor):
            return self._build_hot(labels, logits)
        way_out = "Pass the names of classes as a sparse or ragged tensor."
        hot = as_numbers(labels, self._title, way_out)
        hot = with_shape_of(hot, logits, self._logits_dimension, self._title)
        if not hot.dtype.is_integer and not hot.dtype.is_bool:
            raise WrongTypeError(
                f"{self._title}: labels are {hot.dtype.name}; dense labels must be integers, 1 for "
                "each of an example's classes."
            )
        hot = tf.cast(hot, tf.int64)
        rule = f"{self._title}: dense labels must be 0 or 1"
        return tf.cast(build_required(hot, (hot >= 0) & (hot <= 1), rule), logits.dtype)

    def _build_hot(self, labels: tf.SparseTensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns 1 for each of an example's classes, of the shape of the logits."""
        if labels.shape.rank not in (None, logits.shape.rank):
            raise ValueError(
                f"{self._title}: sparse labels have shape {labels.shape} and logits "
                f"{logits.shape}; they must have the same rank."
            )
        size = self._logits_dimension
        ids = build_class_ids(labels.values, size, self._vocabulary, self._title)
        cells = tf.concat([labels.indices[:, :-1], ids[:, tf.newaxis]], 1)
        ones = tf.ones([tf.shape(cells)[0]], logits.dtype)
        counts = tf.scatter_nd(cells, ones, tf.shape(logits, tf.int64))
        return tf.ensure_shape(tf.minimum(counts, 1), logits.shape)

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        return tf.reduce_mean(losses, -1, keepdims=True)

    def _build_outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.sigmoid(logits, name="probabilities")
        outputs = {"logits": logits, "probabilities": probabilities}
        return outputs | {"classes": all_classes(probabilities, self._vocabulary)}

    def _metric_rows(self) -> Sequence[MetricRow]:
        def both(batch: Evaluated) -> Sequence[tf.Tensor]:
            return batch.labels, batch.outputs["probabilities"]

        rows = compare_rows(["auc", "auc_precision_recall"], both)
        rows += threshold_rows(self._thresholds, both)
        for index in self._classes:
            name = f"class{index}" if self._vocabulary is None else self._vocabulary[index]
            rows += _class_rows(name, index)
        return rows


def _class_rows(suffix: str, index: int) -> list[MetricRow]:
    """The metrics of one class."""

    def both(batch: Evaluated) -> Sequence[tf.Tensor]:
        one = slice(index, index + 1)
        return batch.labels[..., one], batch.outputs["probabilities"][..., one]

    rows = [
        mean_row("probability_mean", lambda batch: both(batch)[1]),
        *compare_rows(["auc", "auc_precision_recall"], both),
    ]
    return [row._replace(key=f"{row.key}/{suffix}") for row in rows]


def _class_id(name: Any, num_classes: int, vocabulary: Sequence[str] | None) -> int:
    argument = "classes_for_class_based_metrics"
    if isinstance(name, str):
        if vocabulary is None or name not in vocabulary:
            known = did_you_mean(name, vocabulary) if vocabulary else "There is none."
            raise ValueError(f"`{argument}` has {name!r}, not in `label_vocabulary`. {known}")
        return list(vocabulary).index(name)
    check_int(argument, name, minimum=0)
    if name >= num_classes:
        raise ValueError(f"`{argument}` has {name}; all must be below `n_classes` ({num_classes}).")
    return int(name)
