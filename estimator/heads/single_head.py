"""What all heads but MultiHead share: weights, the reduction of the loss, metrics, checks."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    arguments_needed,
    arguments_taken,
    check_type,
    did_you_mean,
    parameters_of,
)
from estimator.heads import head_metrics
from estimator.heads.head import Head, with_losses, with_suffix
from estimator.heads.head_metrics import Evaluated, MetricRow, mean_row
from estimator.heads.labels import check_weight_column, weights_of

V1 = tf.compat.v1
_V1_REDUCTION = V1.losses.Reduction
# The names of `tf.losses.Reduction`, and those of `tf.compat.v1.losses.Reduction`.
_REDUCTIONS = {
    "auto": _V1_REDUCTION.SUM_OVER_BATCH_SIZE,
    "sum": _V1_REDUCTION.SUM,
    "sum_over_batch_size": _V1_REDUCTION.SUM_OVER_BATCH_SIZE,
    **{name: name for name in _V1_REDUCTION.all() if name != _V1_REDUCTION.NONE},
}


class SingleHead(Head):
    """A head with one kind of labels; a subclass says what is particular to them."""

    _weight_dimensions: tuple[int, ...] = (1,)  # The sizes that weights' last dimension may have.

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
        check_type("name", name, str, "a string")
        if loss_reduction not in _REDUCTIONS:
            raise ValueError(
                f"`loss_reduction` ({loss_reduction!r}) is unknown. "
                f"{did_you_mean(loss_reduction, _REDUCTIONS)}"
            )
        _check_loss_fn(loss_fn)
        self._logits_dimension = logits_dimension
        self._weight_column = weight_column
        self._loss_reduction = loss_reduction
        self._name = name
        self._loss_fn = loss_fn

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

    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch; see `Head`."""
        del mode
        logits = self._checked_logits(logits)
        with tf.name_scope("losses"):
            numbers = self._build_labels(labels, logits)
            losses = self._build_losses(numbers, logits, features)
            weights = self._weights(features, logits)
            loss = V1.losses.compute_weighted_loss(
                losses,
                1.0 if weights is None else weights,
                loss_collection=None,
                reduction=_REDUCTIONS[self._loss_reduction],
            )
            return with_losses(loss, regularization_losses)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, tf.Tensor]:
        """Returns the predictions by key; see `Head`."""
        logits = self._checked_logits(logits)
        with tf.name_scope("predictions"):
            outputs = self._build_outputs(logits)
        if keys is None:
            return outputs
        for key in keys:
            if key not in outputs:
                raise ValueError(
                    f"`keys` has {key!r}, which is no prediction of {self._title}. "
                    f"{did_you_mean(key, outputs)}"
                )
        return {key: outputs[key] for key in keys}

    def metrics(self, regularization_losses: Sequence[tf.Tensor] | None = None) -> dict[str, Any]:
        """Returns new Keras metrics by key; see `Head`."""
        rows = self._rows(with_regularization=regularization_losses is not None)
        return {with_suffix(row.key, self._name): row.make() for row in rows}

    def update_metrics(
        self,
        eval_metrics: dict[str, Any],
        features: Any,
        logits: Any,
        labels: Any,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Adds a batch to the metrics; see `Head`."""
        del mode
        logits = self._checked_logits(logits)
        with tf.name_scope("metrics"):
            numbers = self._build_labels(labels, logits)
            losses = self._build_losses(numbers, logits, features)
            weights, outputs = self._weights(features, logits), self._build_outputs(logits)
            batch = Evaluated(numbers, losses, weights, outputs)
            for row in self._rows(with_regularization=False):
                metric = eval_metrics[with_suffix(row.key, self._name)]
                head_metrics.update(metric, row.values(batch), batch.weights)
            if regularization_losses is not None:
                metric = eval_metrics[with_suffix("regularization_loss", self._name)]
                metric.update_state(tf.add_n(regularization_losses))
        return eval_metrics

    # --- What a subclass says ---------------------------------------------------------------------

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

    @property
    def _title(self) -> str:
        """The head in errors."""
        return type(self).__name__ + (f" {self._name!r}" if self._name else "")

    def _rows(self, *, with_regularization: bool) -> list[MetricRow]:
        rows = [mean_row("average_loss", lambda batch: batch.losses), *self._metric_rows()]
        if with_regularization:
            rows.append(mean_row("regularization_loss", lambda batch: batch.losses))
        return rows

    def _checked_logits(self, logits: Any) -> tf.Tensor:
        logits = tf.convert_to_tensor(logits)
        shape, size = logits.shape, self._logits_dimension
        if not logits.dtype.is_floating:
            raise WrongTypeError(f"{self._title}: `logits` are {logits.dtype.name}, not floats.")
        if shape.rank is None or shape.rank < 2 or shape[-1] not in (None, size):
            raise ValueError(
                f"{self._title}: `logits` have shape {shape}; it must be [batch size, {size}], "
                "with any more dimensions between."
            )
        return logits

    def _weights(self, features: Any, logits: tf.Tensor) -> tf.Tensor | None:
        allowed = self._weight_dimensions
        return weights_of(features, self._weight_column, logits, allowed, self._title)

    def _build_losses(self, labels: tf.Tensor, logits: tf.Tensor, features: Any) -> tf.Tensor:
        if self._loss_fn is None:
            return self._build_default_losses(labels, logits)
        given = {
            "labels": labels,
            "logits": logits,
            "features": features,
            "loss_reduction": self._loss_reduction,
        }
        taken = arguments_taken("loss_fn", self._loss_fn, list(given))
        losses = tf.convert_to_tensor(self._loss_fn(**{name: given[name] for name in taken}))
        default = self._build_default_losses(labels, logits).shape
        if not losses.shape.is_compatible_with(default):
            raise ValueError(
                f"{self._title}: `loss_fn` ({self._loss_fn!r}) returned losses of shape "
                f"{losses.shape}; it must be {default}: do not reduce them over the batch."
            )
        return losses


def _check_loss_fn(loss_fn: Any) -> None:
    if loss_fn is None:
        return
    check_type("loss_fn", loss_fn, object if callable(loss_fn) else (), "a function, or None")
    names = ("labels", "logits", "features", "loss_reduction")
    taken = arguments_taken("loss_fn", loss_fn, names)
    missing = [name for name in names[:2] if name not in taken]
    unknown = arguments_needed("loss_fn", loss_fn, names)
    if missing or unknown:
        raise ValueError(
            f"`loss_fn` must take `labels` and `logits`, and may take `features` and "
            f"`loss_reduction`; it takes {', '.join(parameters_of('loss_fn', loss_fn))}."
        )
