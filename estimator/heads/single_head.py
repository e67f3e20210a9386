"""What all heads but MultiHead share: weights, the reduction of the loss, metrics, checks."""

from __future__ import annotations

import abc
import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    arguments_named,
    check_callable,
    check_choice,
    check_needs_only,
    check_type,
    parameters_of,
)
from estimator.heads import head_metrics
from estimator.heads.head import with_suffix
from estimator.heads.head_metrics import Evaluated, MetricRow, mean_row
from estimator.heads.labels import build_weights, check_weight_column, weight_key
from estimator.heads.regularized_head import RegularizedHead
from estimator.spec import ModeKeys

V1 = tf.compat.v1
_V1_REDUCTION = V1.losses.Reduction
# The names of `tf.losses.Reduction`, and those of `tf.compat.v1.losses.Reduction`.
REDUCTIONS = {
    "auto": _V1_REDUCTION.SUM_OVER_BATCH_SIZE,
    "sum": _V1_REDUCTION.SUM,
    "sum_over_batch_size": _V1_REDUCTION.SUM_OVER_BATCH_SIZE,
    **{name: name for name in _V1_REDUCTION.all() if name != _V1_REDUCTION.NONE},
}


class SingleHead(RegularizedHead):
    """A head with one kind of labels, which a subclass defines.

    Attributes:
      loss_fn: the function of examples' losses that was given to the head; None for its own.
      weight_key: the feature that has the weights; None without a `weight_column`.
    """

    _loss_dimension = 1  # The size of the last dimension of examples' losses.

    def __init__(
        self,
        logits_dimension: int,
        weight_column: Any,
        loss_reduction: str,
        name: str | None,
        loss_fn: Callable | None = None,
    ) -> None:
        """Checks the arguments that all heads have."""
        check_weight_column(weight_column)
        _check_name(name)
        check_choice("loss_reduction", loss_reduction, REDUCTIONS)
        _check_loss_fn(loss_fn)
        self._logits_dimension = logits_dimension
        self._weight_column = weight_column
        self._loss_reduction = loss_reduction
        self._name = name
        self.loss_fn = loss_fn
        self.weight_key = weight_key(weight_column)

    @property
    def name(self) -> str | None:
        """The head's name; see `Head`."""
        return self._name

    @property
    def logits_dimension(self) -> int:
        """The size of the last dimension of the logits."""
        return self._logits_dimension

    @property
    def loss_reduction(self) -> str:
        """How a batch's loss is made of its examples' losses."""
        return self._loss_reduction

    def _build_loss(self, labels: Any, logits: Any, features: Any, mode: str | None) -> tf.Tensor:
        logits = self._checked_logits(logits)
        scope = self.loss_scope
        with contextlib.nullcontext() if scope is None else tf.name_scope(scope):
            numbers = self._build_labels(labels, logits)
            losses = self._build_losses(numbers, logits, features)
            weights = self._weights(features, logits)
            weights = 1.0 if weights is None else weights
            reduction = REDUCTIONS[self._loss_reduction]
            loss = V1.losses.compute_weighted_loss(
                losses, weights, loss_collection=None, reduction=reduction
            )
            # As the heads of v1 in 2.15, which alone take this name.
            if mode == ModeKeys.TRAIN and self._loss_reduction == _V1_REDUCTION.SUM:
                average = loss / tf.reduce_sum(weights * tf.ones_like(losses))
                with V1.name_scope(None):
                    V1.summary.scalar(with_suffix("average_loss", self.name), average)
            return loss

    def _build_predictions(self, logits: Any) -> dict[Any, tf.Tensor]:
        logits = self._checked_logits(logits)
        with tf.name_scope("predictions"):
            return self._build_outputs(logits)

    def _make_metrics(self) -> dict[str, Any]:
        return {with_suffix(row.key, self.name): row.make() for row in self._rows()}

    def _update_metrics(
        self, metrics: dict[str, Any], features: Any, logits: Any, labels: Any, mode: str | None
    ) -> None:
        logits = self._checked_logits(logits)
        with tf.name_scope("metrics"):
            numbers = self._build_labels(labels, logits)
            losses = self._build_losses(numbers, logits, features)
            weights, outputs = self._weights(features, logits), self._build_outputs(logits)
            batch = Evaluated(numbers, losses, weights, outputs)
            for row in self._rows():
                metric = metrics[with_suffix(row.key, self.name)]
                head_metrics.update(metric, row.values(batch), batch.weights)

    # --- Defined by subclasses --------------------------------------------------------------------

    @abc.abstractmethod
    def _build_labels(self, labels: Any, logits: tf.Tensor) -> tf.Tensor:
        """Returns the labels as checked numbers, of the rank of the logits."""

    @abc.abstractmethod
    def _build_default_losses(self, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example, of the rank of the logits."""

    @abc.abstractmethod
    def _build_outputs(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns all predictions, by key."""

    @abc.abstractmethod
    def _metric_rows(self) -> Sequence[MetricRow]:
        """Returns the metrics besides the losses."""

    # --- Shared -----------------------------------------------------------------------------------

    def _rows(self) -> list[MetricRow]:
        return [mean_row("average_loss", lambda batch: batch.losses), *self._metric_rows()]

    def build_targets(
        self, features: Any, logits: tf.Tensor, labels: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the label and the weight of each example of one logit: [batch size]."""
        weights = self._weights(features, logits)
        weights = (
            tf.ones_like(logits) if weights is None else tf.broadcast_to(weights, tf.shape(logits))
        )
        labels = self._build_labels(labels, logits)
        return tf.reshape(labels, [-1]), tf.reshape(weights, [-1])

    def _checked_logits(self, logits: Any) -> tf.Tensor:
        logits = tf.convert_to_tensor(logits)
        shape, size = logits.shape, self._logits_dimension
        # After `tf.disable_v2_behavior()`, dimensions are `Dimension` objects.
        last = tf.compat.dimension_value(shape[-1]) if shape.rank else None
        if not logits.dtype.is_floating:
            raise WrongTypeError(f"{self._title}: `logits` are {logits.dtype.name}, not floats.")
        if shape.rank is None or shape.rank < 2 or last not in (None, size):
            raise ValueError(
                f"{self._title}: `logits` have shape {shape}; it must be [batch size, {size}], "
                "with any more dimensions between."
            )
        if last is None:
            logits = tf.ensure_shape(logits, [*shape[:-1], size])
        return logits

    def _weights(self, features: Any, logits: tf.Tensor) -> tf.Tensor | None:
        allowed = sorted({1, self._loss_dimension})
        return build_weights(features, self._weight_column, logits, allowed, self._title)

    def _build_losses(self, labels: tf.Tensor, logits: tf.Tensor, features: Any) -> tf.Tensor:
        if self.loss_fn is None:
            return self._build_default_losses(labels, logits)
        given = {
            "labels": labels,
            "logits": logits,
            "features": features,
            "loss_reduction": self._loss_reduction,
        }
        taken = arguments_named("loss_fn", self.loss_fn, list(given))
        losses = tf.convert_to_tensor(self.loss_fn(**{name: given[name] for name in taken}))
        expected = logits.shape[:-1].concatenate([self._loss_dimension])
        if not losses.shape.is_compatible_with(expected):
            raise ValueError(
                f"{self._title}: `loss_fn` ({self.loss_fn!r}) returned losses of shape "
                f"{losses.shape}; it must be {expected}: do not reduce them over the batch."
            )
        return losses


def _check_name(name: Any) -> None:
    check_type("name", name, str, "a string")
    if name and not re.fullmatch(r"[A-Za-z0-9.][\w./>\\-]*", name, re.ASCII):
        raise ValueError(
            f"`name` ({name!r}) must be a name scope: letters, digits and any of _ . / -, and a "
            "letter or digit first."
        )


def _check_loss_fn(loss_fn: Any) -> None:
    if loss_fn is None:
        return
    check_callable("loss_fn", loss_fn)
    names = ("labels", "logits", "features", "loss_reduction")
    if not set(names[:2]) <= set(arguments_named("loss_fn", loss_fn, names)):
        raise ValueError(
            "`loss_fn` must take `labels` and `logits`; it takes "
            f"{', '.join(parameters_of('loss_fn', loss_fn))}."
        )
    check_needs_only("loss_fn", loss_fn, names)
