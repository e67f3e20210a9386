"""A copy of a compiled Keras model in the default graph: its loss, metrics and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf

# Of `compile`; what else it takes concerns only Keras's own training.
ARGUMENTS = ("loss", "loss_weights", "metrics", "weighted_metrics")


class CompiledKeras3:
    """A model of Keras 3, and what it was compiled with.

    Attributes:
      model: the model.
      optimizer: the optimizer.
    """

    def __init__(self, model: Any, optimizer: Any, arguments: Mapping[str, Any]) -> None:
        """Compiles the model with `ARGUMENTS`; metrics may be None."""
        self.model, self.optimizer = model, optimizer
        # An optimizer that scales the loss is there already.
        model.compile(optimizer, auto_scale_loss=False, **arguments)

    def build_loss(self, batch: Mapping[str, Any], is_training: bool) -> Any:
        """Builds the loss: scalar, whose mean over the replicas is the loss of the whole batch.

        Args:
          batch: x, y, y_pred and sample_weight.
          is_training: whether the step trains.
        """
        with _tf.keras_sums_over_replicas(_num_replicas()):
            return _tf.keras_loss(self.model, dict(batch), is_training)

    def build_metrics(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Updates the metrics with a batch, after `build_loss`; returns them by name."""
        self.model.compute_metrics(**batch)
        return _tf.compiled_metrics(self.model)

    def older_names(self) -> dict[str, str]:
        """Returns other names of metrics that `metric_names_map` may use, after `build_metrics`."""
        return {}

    def metrics_so_far(self) -> list[Any]:
        """Returns the metrics that exist after `build_loss`, which makes some."""
        return list(self.model.metrics)

    def build_scaled(self, loss: Any) -> Any:
        """Scales the loss if the optimizer divides gradients by a scale."""
        return self.optimizer.scale_loss(loss)


class CompiledTfKeras:
    """The same for a model of tf-keras, whose own `compile` does not work in a graph."""

    def __init__(self, model: Any, optimizer: Any, arguments: Mapping[str, Any]) -> None:
        """Makes what computes the losses and the metrics."""
        self.model, self.optimizer = model, optimizer
        self._losses, self._metrics = _tf.tf_keras_containers(model, arguments)

    def build_loss(self, batch: Mapping[str, Any], is_training: bool) -> Any:
        """Builds the loss; see `CompiledKeras3`, as for the other methods."""
        with _tf.tf_keras_means_over_replicas(_num_replicas()):
            loss = self._losses(
                batch["y"],
                batch["y_pred"],
                batch["sample_weight"],
                regularization_losses=self.model.losses,
            )
        return loss * _num_replicas()

    def build_metrics(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Updates and returns the metrics."""
        self._metrics.update_state(batch["y"], batch["y_pred"], batch["sample_weight"])
        of_losses = {m.name: m for m in self._losses.metrics if m.name != "loss"}
        return of_losses | {metric.name: metric for metric in self._metrics.metrics}

    def older_names(self) -> dict[str, str]:
        """Returns the names of tf-keras's `evaluate`, by which this library called the metrics."""
        return self._metrics.older_names

    def metrics_so_far(self) -> list[Any]:
        """Returns the metrics of the losses."""
        return list(self._losses.metrics)

    def build_scaled(self, loss: Any) -> Any:
        """Returns the loss: an optimizer that scales it is refused."""
        return loss


def _num_replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


CompiledModel: TypeAlias = CompiledKeras3 | CompiledTfKeras
