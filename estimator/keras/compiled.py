"""A copy of a compiled Keras model in the default graph: its loss, metrics and optimizer."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from estimator import _tf

# Of `compile`; what else it takes concerns only Keras's own training.
ARGUMENTS = ("loss", "loss_weights", "metrics", "weighted_metrics")


class CompiledModel(abc.ABC):
    """A model, and what it was compiled with.

    Attributes:
      model: the model.
      optimizer: the optimizer.
    """

    def __init__(self, model: Any, optimizer: Any, arguments: Mapping[str, Any]) -> None:
        """Compiles the model with `ARGUMENTS`; metrics may be None."""
        self.model = model
        self.optimizer = optimizer
        self._compile(arguments)

    @abc.abstractmethod
    def _compile(self, arguments: Mapping[str, Any]) -> None: ...

    @abc.abstractmethod
    def build_loss(self, batch: Mapping[str, Any], is_training: bool) -> Any:
        """Builds the loss: scalar.

        Args:
          batch: x, y, y_pred and sample_weight.
          is_training: whether the step trains.
        """

    @abc.abstractmethod
    def build_metrics(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Updates the metrics with a batch, after `build_loss`; returns them by name."""

    @abc.abstractmethod
    def metrics_so_far(self) -> list[Any]:
        """Returns the metrics that exist after `build_loss`, which makes some."""

    def build_scaled(self, loss: Any) -> Any:
        """Scales the loss if the optimizer divides gradients by a scale."""
        return loss


class CompiledKeras3(CompiledModel):
    """A model of Keras 3."""

    def _compile(self, arguments: Mapping[str, Any]) -> None:
        # An optimizer that scales the loss is there already.
        self.model.compile(self.optimizer, auto_scale_loss=False, **arguments)

    def build_loss(self, batch: Mapping[str, Any], is_training: bool) -> Any:
        """See the base class."""
        return _tf.keras_loss(self.model, dict(batch), is_training)

    def build_metrics(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """See the base class."""
        self.model.compute_metrics(**batch)
        return _tf.compiled_metrics(self.model)

    def metrics_so_far(self) -> list[Any]:
        """See the base class."""
        return list(self.model.metrics)

    def build_scaled(self, loss: Any) -> Any:
        """See the base class."""
        return self.optimizer.scale_loss(loss)


class CompiledTfKeras(CompiledModel):
    """A model of tf-keras, whose own `compile` does not work in a graph."""

    def _compile(self, arguments: Mapping[str, Any]) -> None:
        self._losses, self._metrics = _tf.tf_keras_containers(self.model, arguments)

    def build_loss(self, batch: Mapping[str, Any], is_training: bool) -> Any:
        """See the base class."""
        del is_training
        added = _tf.tf_keras_losses(self.model)
        return self._losses(
            batch["y"], batch["y_pred"], batch["sample_weight"], regularization_losses=added
        )

    def build_metrics(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """See the base class."""
        self._metrics.update_state(batch["y"], batch["y_pred"], batch["sample_weight"])
        own = [*self._metrics.metrics, *self._losses.metrics]
        return {metric.name: metric for metric in own if metric.name != "loss"}

    def metrics_so_far(self) -> list[Any]:
        """See the base class."""
        return list(self._losses.metrics)
