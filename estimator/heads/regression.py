"""Heads for numbers: regression, and its Poisson and logistic forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_bool, check_callable, check_int
from estimator.heads.head import with_default
from estimator.heads.head_metrics import MetricRow, mean_row
from estimator.heads.labels import as_numbers, build_required, with_shape_of
from estimator.heads.single_head import SingleHead
from estimator.spec.outputs import RegressionOutput


class RegressionHead(SingleHead):
    """A head for numbers: squared error.

    Logits and labels have shape [D0, ..., DN, label_dimension]; labels of dimension 1 may also have
    shape [D0, ..., DN].
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        loss_fn: Callable | None = None,
        inverse_link_fn: Callable | None = None,
        name: str | None = None,
    ) -> None:
        """Checks the arguments.

        Args:
          label_dimension: the number of values in an example's label.
          weight_column: see `BinaryClassHead`; weights may also have the shape of the labels.
          loss_reduction: see `BinaryClassHead`.
          loss_fn: see `BinaryClassHead`; its losses have shape [D0, ..., DN, label_dimension].
          inverse_link_fn: takes the logits, returns the predictions: for a generalized linear
            model. None: predictions are the logits.
          name: see `Head`.

        Raises:
          ValueError: a value is wrong.
          TypeError: a value has the wrong type.
        """
        check_int("label_dimension", label_dimension)
        check_callable("inverse_link_fn", inverse_link_fn)
        super().__init__(int(label_dimension), weight_column, loss_reduction, name, loss_fn)
        self._loss_dimension = int(label_dimension)
        self._inverse_link_fn = inverse_link_fn

    def build_export_outputs(self, predictions: dict[Any, tf.Tensor]) -> dict[str, Any]:
        """Returns the predicted numbers, which are the default, and all predictions."""
        regression = RegressionOutput(predictions["predictions"])
        return with_default(predictions, regression=regression)

    def _build_labels(self, labels: Any, logits: tf.Tensor) -> tf.Tensor:
        numbers = tf.cast(as_numbers(labels, self._title), logits.dtype)
        numbers = with_shape_of(numbers, logits, self._logits_dimension, self._title)
        is_right, rule = self._check(numbers)
        return build_required(numbers, is_right, f"{self._title}: labels must be {rule}")

    def _check(self, labels: tf.Tensor) -> tuple[tf.Tensor, str]:
        """Returns which labels the head can use, and what they must be."""
        return tf.math.is_finite(labels), "finite"

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.math.squared_difference(logits, labels)

    def _build_outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        if self._inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def _metric_rows(self) -> Sequence[MetricRow]:
        return [
            mean_row("prediction/mean", lambda b: b.outputs["predictions"]),
            mean_row("label/mean", lambda b: b.labels),
        ]


class PoissonRegressionHead(RegressionHead):
    """A head for counts: Poisson loss; predictions are exp(logits).

    Shapes are as in `RegressionHead`; labels are not negative.
    """

    def __init__(
        self,
        label_dimension: int = 1,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        compute_full_loss: bool = True,
        name: str | None = None,
    ) -> None:
        """Checks the arguments.

        Args:
          label_dimension: the number of values in an example's label.
          weight_column: see `RegressionHead`.
          loss_reduction: see `RegressionHead`.
          compute_full_loss: whether the loss includes the term that does not depend on the logits;
            see `tf.nn.log_poisson_loss`.
          name: see `Head`.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        check_bool("compute_full_loss", compute_full_loss)
        self._compute_full_loss = compute_full_loss
        super().__init__(
            label_dimension, weight_column, loss_reduction, inverse_link_fn=tf.exp, name=name
        )

    def _check(self, labels: tf.Tensor) -> tuple[tf.Tensor, str]:
        return (labels >= 0) & tf.math.is_finite(labels), "finite and not negative"

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.log_poisson_loss(labels, logits, self._compute_full_loss)


class LogisticRegressionHead(RegressionHead):
    """A head for probabilities: logistic loss; predictions are sigmoid(logits).

    Logits and labels have shape [D0, ..., DN, 1], labels also [D0, ..., DN]; labels are in [0, 1].
    Unlike a BinaryClassHead it predicts no classes, and has none of their metrics.
    """

    def __init__(
        self,
        weight_column: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        name: str | None = None,
    ) -> None:
        """Checks the arguments; see `RegressionHead`, also for errors."""
        super().__init__(
            1, weight_column, loss_reduction, inverse_link_fn=tf.math.sigmoid, name=name
        )

    def _check(self, labels: tf.Tensor) -> tuple[tf.Tensor, str]:
        return (labels >= 0) & (labels <= 1), "in [0, 1]"

    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
