"""What all heads of the library share: regularization losses, and the choice of predictions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import did_you_mean
from estimator.heads.head import Head, with_suffix


class RegularizedHead(Head):
    """Adds regularization losses to the loss and the metrics that a subclass defines."""

    def loss(
        self,
        labels: Any,
        logits: Any,
        features: Any = None,
        mode: str | None = None,
        regularization_losses: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch; see `Head`."""
        loss = self._build_loss(labels, logits, features, mode)
        if not regularization_losses:
            return loss
        return tf.add_n([loss, *(tf.cast(one, loss.dtype) for one in regularization_losses)])

    def predictions(self, logits: Any, keys: Sequence[Any] | None = None) -> dict[Any, tf.Tensor]:
        """Returns the predictions by key; see `Head`."""
        outputs = self._build_predictions(logits)
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
        metrics = self._make_metrics()
        if regularization_losses:
            metrics[with_suffix("regularization_loss", self.name)] = tf.keras.metrics.Mean()
        return metrics

    # In tf.estimator, the base class alone has `mode` before the losses.
    def update_metrics(  # type: ignore[override]
        self,
        eval_metrics: dict[str, Any],
        features: Any,
        logits: Any,
        labels: Any,
        regularization_losses: Sequence[tf.Tensor] | None = None,
        mode: str | None = None,
    ) -> dict[str, Any]:
        """Adds a batch to the metrics; see `Head`."""
        self._update_metrics(eval_metrics, features, logits, labels, mode)
        if regularization_losses:
            metric = eval_metrics[with_suffix("regularization_loss", self.name)]
            metric.update_state(tf.add_n(regularization_losses))
        return eval_metrics

    @property
    def _title(self) -> str:
        """How errors name the head."""
        return type(self).__name__ + (f" {self.name!r}" if self.name else "")

    # --- Defined by subclasses --------------------------------------------------------------------

    @abc.abstractmethod
    def _build_loss(self, labels: Any, logits: Any, features: Any, mode: str | None) -> tf.Tensor:
        """Returns the loss of a batch without regularization losses."""

    @abc.abstractmethod
    def _build_predictions(self, logits: Any) -> dict[Any, tf.Tensor]:
        """Returns all predictions, by key."""

    @abc.abstractmethod
    def _make_metrics(self) -> dict[str, Any]:
        """Returns new Keras metrics by key."""

    @abc.abstractmethod
    def _update_metrics(
        self, metrics: dict[str, Any], features: Any, logits: Any, labels: Any, mode: str | None
    ) -> None:
        """Adds a batch to the metrics that `_make_metrics` returned."""
