"""The Keras model that an Estimator is made from: checked once, and built anew in each graph."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from estimator import _tf
from estimator.config.checks import WrongTypeError
from estimator.spec import ModeKeys


class KerasSource:
    """A snapshot of a compiled model of Keras 3.

    Attributes:
      weights: the values of the model's weights, in the order of `model.weights`.
      input_names: the names of a functional model's inputs; empty for other models.
      takes_dict: whether the model is called with a dict of inputs.
    """

    def __init__(self, model: Any, custom_objects: Mapping[str, Any]) -> None:
        """Checks and copies the model; later changes of it have no effect.

        Raises:
          TypeError: it is no Keras model.
          ValueError: it is not compiled or not built, or cannot be copied.
        """
        library = _library_of(model)
        _check_model(model, library)
        self._custom_objects = dict(custom_objects)
        self._library = library
        self.weights = [np.asarray(value) for value in model.get_weights()]
        is_functional = _is_functional(model)
        self.takes_dict = is_functional and isinstance(getattr(model, "input", None), dict)
        self.input_names = [tensor.name for tensor in model.inputs] if is_functional else []
        # Made here, where configs can be read: in a v1 graph, variables have no values.
        arguments = _tf.compile_arguments(model)
        self._optimizer = type(model.optimizer), model.optimizer.get_config()
        names = ("loss", "loss_weights", "metrics", "weighted_metrics")
        self._arguments = {name: arguments.get(name) for name in names}
        self._template = self._copied(model)

    def build(self, mode: str) -> Any:
        """Returns a new model of the same structure, in the default graph, compiled if needed."""
        model = self._copied(self._template)
        if mode == ModeKeys.PREDICT:
            return model
        optimizer_class, config = self._optimizer
        arguments = dict(self._arguments)
        for name in ("metrics", "weighted_metrics"):
            arguments[name] = self._fresh(arguments[name]) if mode == ModeKeys.EVAL else None
        with self._scope():
            model.compile(optimizer=optimizer_class.from_config(dict(config)), **arguments)
        return model

    def _copied(self, model: Any) -> Any:
        """Returns a model of the same structure with new variables, not compiled."""
        with self._scope(), _tf.clones_uncompiled(model):
            if _is_functional(model):
                copy = self._library.models.clone_model(model, clone_function=self._copied_layer)
            else:
                copy = type(model).from_config(model.get_config())
        # Not every config says which layers are frozen.
        for ours, theirs in zip(_layers_of(copy), _layers_of(model), strict=True):
            ours.trainable = theirs.trainable
        return copy

    def _copied_layer(self, layer: Any) -> Any:
        """Returns a layer of the same class, which need not be registered with Keras."""
        if isinstance(layer, self._library.Model):
            return self._copied(layer)
        return type(layer).from_config(layer.get_config())

    def _fresh(self, metrics: Any) -> Any:
        """Returns the same structure with new metrics in the place of metric objects."""
        if isinstance(metrics, dict):
            return {name: self._fresh(metric) for name, metric in metrics.items()}
        if isinstance(metrics, list | tuple):
            return [self._fresh(metric) for metric in metrics]
        if isinstance(metrics, self._library.metrics.Metric):
            return type(metrics).from_config(metrics.get_config())
        return metrics

    def _scope(self) -> contextlib.AbstractContextManager[Any]:
        return self._library.utils.custom_object_scope(self._custom_objects)


def _library_of(model: Any) -> Any:
    """Returns the module of Keras 3, if the model is of it."""
    library = sys.modules.get("keras")
    if library is not None and isinstance(model, library.Model):
        return library
    legacy = sys.modules.get("tf_keras")
    if legacy is not None and isinstance(model, legacy.Model):
        raise ValueError(
            f"`keras_model` ({model.name!r}) is a model of tf-keras, which is not supported. Make "
            "it with Keras 3, or call its layers in a `model_fn`."
        )
    raise WrongTypeError(f"`keras_model` ({model!r}) must be a model of Keras 3.")


def _is_functional(model: Any) -> bool:
    """Returns whether a model knows its inputs; Keras copies others by their config only."""
    return bool(getattr(model, "inputs", None))


def _layers_of(model: Any) -> Iterator[Any]:
    """Yields all layers, those of layers too."""
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers_of(layer)


def _check_model(model: Any, library: Any) -> None:
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"`keras_model` ({model.name!r}) is not compiled. Call its `compile` with an optimizer "
            "and a loss first."
        )
    if not model.built:
        raise ValueError(
            f"`keras_model` ({model.name!r}) is not built: its weights do not exist. Give it an "
            "Input, or call it on a batch."
        )
    for name in ("train_step", "test_step", "predict_step"):
        if getattr(type(model), name) is not getattr(library.Model, name):
            raise ValueError(
                f"`keras_model` ({model.name!r}) has a `{name}` of its own, which an Estimator "
                "does not call. Override `compute_loss`, or write a `model_fn`."
            )
    for layer in _layers_of(model):
        if getattr(layer, "stateful", False) and hasattr(layer, "cell"):
            raise ValueError(
                f"The layer {layer.name!r} of `keras_model` is stateful: it would carry its state "
                "from any batch to the next. Make it with `stateful=False`."
            )
