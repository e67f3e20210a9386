"""Losses of Keras 3 and tf-keras: how they are reduced over a batch and over replicas."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator._tf.keras_metrics import tf_keras_metrics
from estimator._tf.patches import Patch, patched, together

_of_thread = threading.local()


def unscaled_keras_losses(strategy: tf.distribute.Strategy) -> Patch:
    """Inside, a loss of Keras 3 is that of the replica's batch, not divided by the replicas.

    Keras divides what its loss classes reduce, and what layers add in a Model, by the number of
    replicas, as its optimizers sum gradients. Here their mean is applied (`mean_gradients`), so a
    step would be too small by that factor, and so would the loss that is reported.
    `keras.src.losses.loss` of Keras 3.12 to 3.15.
    """
    modules = ("keras.src.losses.loss", "tf_keras.src.utils.losses_utils")

    def unscaled(original: Callable) -> Callable:
        def scale(value: Any) -> Any:
            return value if tf.distribute.get_strategy() is strategy else original(value)

        return scale

    names = ("scale_loss_for_distribution", "unscale_loss_for_distribution")
    return together(
        patched(module, name, unscaled)
        for module in map(sys.modules.get, modules)
        for name in names
        if hasattr(module, name)
    )


@contextlib.contextmanager
def keras_sums_over_replicas(num_replicas: int) -> Iterator[None]:
    """Inside, a loss of Keras 3 that is a sum is that of the replica's batch times the replicas.

    The mean over the replicas is then the sum of the whole batch; losses that are means, which may
    be added to it, stay what they are. A loss that another one calls is part of that one. Holds for
    this thread: `keras.src.losses.loss` of Keras 3.12 to 3.15.
    """

    def outermost(original: Callable) -> Callable:
        def call(loss: Any, *args: Any, **kwargs: Any) -> Any:
            factor = getattr(_of_thread, "factor_of_sums", None) or 1
            with _on_thread("factor_of_sums", 1):
                value = original(loss, *args, **kwargs)
            return value * factor if factor > 1 and loss.reduction == "sum" else value

        return call

    module = sys.modules["keras.src.losses.loss"]
    with patched(module.Loss, "__call__", outermost), _on_thread("factor_of_sums", num_replicas):
        yield


@contextlib.contextmanager
def tf_keras_means_over_replicas(num_replicas: int) -> Iterator[None]:
    """Inside, compiled losses of tf-keras are divided by the replicas as in `fit`: all but sums.

    Their sum over the replicas is then the loss of the whole batch. Holds for this thread:
    `tf_keras.src.utils.losses_utils` 2.16 to 2.21.
    """

    def scaling(original: Callable) -> Callable:
        def scale(value: Any) -> Any:
            divisor = getattr(_of_thread, "divisor_of_means", None)
            return original(value) if divisor is None else value / divisor

        return scale

    utils = sys.modules["tf_keras.src.utils.losses_utils"]
    with (
        patched(utils, "scale_loss_for_distribution", scaling),
        _on_thread("divisor_of_means", num_replicas),
    ):
        yield


@contextlib.contextmanager
def _on_thread(name: str, value: Any) -> Iterator[None]:
    values = vars(_of_thread)
    before, values[name] = values.get(name), value
    try:
        yield
    finally:
        values[name] = before


def keras_loss(model: Any, batch: dict[str, Any], is_training: bool) -> Any:
    """Returns a model's loss of a batch, a dict of the arguments of `compute_loss`.

    `_compute_loss` leaves `training` out for a model whose `compute_loss` does not take it. Keras
    3.12 to 3.15.
    """
    return model._compute_loss(**batch, training=is_training)


def tf_keras_containers(model: Any, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns what computes the losses and the metrics of a compiled model of tf-keras.

    In a v1 graph, `compile` would make the placeholders and the loop of tf-keras's v1 training:
    2.16 to 2.21.
    """
    utils = importlib.import_module("tf_keras.src.engine.compile_utils")
    names = getattr(model, "output_names", None)
    losses = utils.LossesContainer(
        arguments["loss"], loss_weights=arguments["loss_weights"], output_names=names
    )
    return losses, tf_keras_metrics(arguments, names)


def forget_tf_keras_losses(model: Any) -> None:
    """Forgets the losses that the layers of a model of tf-keras have added in earlier calls.

    A copy that is made in a v1 graph has been called on placeholders. 2.16 to 2.21.
    """
    for layer in model._flatten_layers():
        layer._losses.clear()


def last_loss_is_sum(graph: tf.Graph) -> bool:
    """Returns whether the last loss of `graph` by a function or class of v1 or Keras is a sum.

    Those of v1 and of tf-keras note it in their graph (2.16 to 2.21), and Keras's by
    `keras_loss_reductions_noted`.
    """
    return graph._last_loss_reduction in (tf.compat.v1.losses.Reduction.SUM, "sum")


def keras_loss_reductions_noted() -> Patch:
    """Inside, a loss class of Keras 3 notes its reduction in the graph, as tf-keras's do.

    `keras.src.losses.loss` of Keras 3.12 to 3.15.
    """

    def noting(original: Callable) -> Callable:
        def reduce(
            values: Any,
            sample_weight: Any = None,
            mask: Any = None,
            reduction: str | None = "sum_over_batch_size",
            dtype: Any = None,
        ) -> Any:
            tf.compat.v1.get_default_graph()._last_loss_reduction = reduction
            return original(values, sample_weight, mask, reduction, dtype)

        return reduce

    module = sys.modules.get("keras.src.losses.loss")
    return together([patched(module, "reduce_weighted_values", noting)] if module else [])
