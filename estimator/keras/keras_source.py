"""The Keras model that an Estimator is made from: checked once, and built anew in each graph."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError
from estimator.console import log
from estimator.keras.compiled import ARGUMENTS, CompiledKeras3, CompiledModel, CompiledTfKeras
from estimator.optimizer.cross_shard import optimizer_maker
from estimator.spec import ModeKeys

# Methods that an Estimator does not call, or calls with arguments of its own.
_NOT_CALLED = ("compile", "train_step", "test_step", "predict_step")
_NOT_CALLED_OF_TF_KERAS = (*_NOT_CALLED, "compute_loss", "compute_metrics")
_OWN_LOSS = "Override `compute_loss`, or write a `model_fn`"
# What `compile` takes and an Estimator does not use: the default, and what to set instead.
_UNUSED = {
    "jit_compile": ("auto", "Set `jit_compile` of the RunConfig."),
    "run_eagerly": (False, "Training always runs in a graph."),
    "steps_per_execution": (1, "Set `iterations_per_loop` of the RunConfig."),
}


class KerasSource:
    """A snapshot of a compiled model of Keras 3 or tf-keras.

    Attributes:
      weights: the values of the model's weights, in the order of `model.weights`.
      is_trained: whether each of them is trained.
      input_names: the names by which features are matched to a functional model's inputs; empty for
        other models.
      takes_dict: whether the model is called with a dict of inputs.
    """

    def __init__(self, model: Any, custom_objects: Mapping[str, Any]) -> None:
        """Checks and copies the model; later changes of it have no effect.

        Raises:
          TypeError: it is not a Keras model.
          ValueError: it is not compiled or not built, or cannot be copied.
        """
        self._library = _library_of(model)
        self._is_tf_keras = self._library.__name__ == "tf_keras"
        self._custom_objects = dict(custom_objects)
        _check_model(model, self._library)
        # Read here, where variables have values: in a v1 graph they have none.
        arguments = _tf.compile_arguments(model)
        _warn_of_unused(model, arguments)
        self._arguments = {name: arguments.get(name) for name in ARGUMENTS}
        self._make_optimizer = _optimizer_maker(model.optimizer)
        self._undecayed = _tf.names_without_weight_decay(model.optimizer)
        self.weights = [np.asarray(value) for value in model.get_weights()]
        trained = {id(weight) for weight in model.trainable_weights}
        self.is_trained = [id(weight) in trained for weight in model.weights]
        is_functional = _is_functional(model)
        self.takes_dict = is_functional and isinstance(getattr(model, "input", None), dict)
        tensors = model.inputs if is_functional else []
        # Without TensorFlow's v2 behavior, a tensor of tf-keras is one of a graph, such as "x:0".
        names = [tensor.name.partition(":")[0] for tensor in tensors]
        self.input_names = list(model.input) if self.takes_dict else names
        # A graph of its own, if TensorFlow runs as version 1.
        with contextlib.nullcontext() if tf.executing_eagerly() else tf.Graph().as_default():
            self._template = self._copied(model, {})

    def build(self) -> Any:
        """Returns a new model of the same structure, in the default graph."""
        model = self._copied(self._template, {})
        if self._is_tf_keras:
            _tf.forget_tf_keras_losses(model)
        return model

    def compile(self, model: Any, mode: str) -> CompiledModel:
        """Compiles what `build` has returned, to train or evaluate it."""
        arguments = dict(self._arguments)
        with self._scope():
            for name in ("metrics", "weighted_metrics"):
                is_needed = mode == ModeKeys.EVAL
                arguments[name] = self._copied_metrics(arguments[name]) if is_needed else None
            optimizer = self._make_optimizer()
            if self._undecayed:
                inner = getattr(optimizer, "inner_optimizer", optimizer)
                inner.exclude_from_weight_decay(var_names=self._undecayed)
            compiled = CompiledTfKeras if self._is_tf_keras else CompiledKeras3
            return compiled(model, optimizer, arguments)

    def _copied(self, model: Any, copies: dict[int, Any]) -> Any:
        """Returns a model of the same structure with new variables, not compiled.

        Args:
          model: the model.
          copies: the copies of layers so far, by the id of the layer: nested models may share them.
        """

        def copied_layer(layer: Any) -> Any:
            if id(layer) not in copies:
                is_model = isinstance(layer, self._library.Model)
                copies[id(layer)] = (
                    self._copied(layer, copies) if is_model else _copied_layer(layer)
                )
            return copies[id(layer)]

        copy = None
        with self._scope(), _tf.clones_uncompiled(model):
            if _is_functional(model):
                copy = self._library.models.clone_model(model, clone_function=copied_layer)
            if type(copy) is not type(model):
                copy = type(model).from_config(model.get_config())
        if type(copy) is not type(model):
            raise ValueError(
                f"`keras_model` ({model.name!r}) of class {type(model).__name__} cannot be copied: "
                f"its `from_config` returns a {type(copy).__name__}, without its methods. Give the "
                "class `get_config` and `from_config`, or write a `model_fn`."
            )
        _tf.copy_trainable(model, copy)
        return copy

    def _copied_metrics(self, metrics: Any) -> Any:
        """Returns the same structure with new metrics in the place of metric objects."""
        if isinstance(metrics, dict):
            return {name: self._copied_metrics(metric) for name, metric in metrics.items()}
        if isinstance(metrics, list | tuple):
            return [self._copied_metrics(metric) for metric in metrics]
        if isinstance(metrics, self._library.metrics.Metric):
            return type(metrics).from_config(metrics.get_config())
        return metrics

    @contextlib.contextmanager
    def _scope(self) -> Iterator[None]:
        custom_objects = self._library.utils.custom_object_scope(self._custom_objects)
        with custom_objects, _tf.keras_functions_trusted():
            yield


def _optimizer_maker(optimizer: Any) -> Callable[[], Any]:
    """Returns a function that makes one like a compiled model's optimizer."""
    inside = getattr(optimizer, "optimizer", None)
    if isinstance(inside, tf.compat.v1.train.Optimizer):
        # tf-keras wraps one of TensorFlow 1, which has no config, but can be used in any graph.
        return lambda: inside
    return optimizer_maker(optimizer)


def _copied_layer(layer: Any) -> Any:
    """Returns a layer of the same class, which need not be registered with Keras."""
    if hasattr(layer, "get_vocabulary"):
        return _tf.copied_lookup(layer)
    return type(layer).from_config(layer.get_config())


def _library_of(model: Any) -> Any:
    """Returns the module that the model is of."""
    for name in ("keras", "tf_keras"):
        library = sys.modules.get(name)
        if library is not None and isinstance(model, library.Model):
            return library
    raise WrongTypeError(f"`keras_model` ({model!r}) must be a model of Keras 3 or tf-keras.")


def _is_functional(model: Any) -> bool:
    """Returns whether a model knows its inputs; Keras copies others by their config only."""
    return bool(getattr(model, "inputs", None))


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
    is_tf_keras = library.__name__ == "tf_keras"
    for name in _NOT_CALLED_OF_TF_KERAS if is_tf_keras else _NOT_CALLED:
        if not getattr(type(model), name).__module__.startswith(f"{library.__name__}."):
            way_out = "Write a `model_fn`" if is_tf_keras else _OWN_LOSS
            raise ValueError(
                f"`keras_model` ({model.name!r}) has a `{name}` of its own, which an Estimator "
                f"does not call. {way_out}."
            )
    if is_tf_keras:
        _check_tf_keras(model, library)
    if not model.trainable_weights:
        raise ValueError(
            f"`keras_model` ({model.name!r}) has no weights to train. Set `trainable` of a layer."
        )
    for layer in _tf.keras_layers(model):
        if getattr(layer, "stateful", False) and hasattr(layer, "cell"):
            raise ValueError(
                f"The layer {layer.name!r} of `keras_model` ({model.name!r}) is stateful: it would "
                "carry its state from one batch to the next. Make it with `stateful=False`."
            )


def _check_tf_keras(model: Any, library: Any) -> None:
    """Refuses what a model of tf-keras can do eagerly only."""
    if hasattr(model.optimizer, "get_scaled_loss"):
        raise ValueError(
            f"The optimizer of `keras_model` ({model.name!r}) scales the loss, which is not "
            'supported with tf-keras. Train in "mixed_bfloat16", which needs no scale.'
        )
    for layer in _tf.keras_layers(model):
        if type(layer).__name__ in ("TFOpLambda", "SlicingOpLambda"):
            raise ValueError(
                f"`keras_model` ({model.name!r}) applies an op of TensorFlow to the output of a "
                f"layer ({layer.name!r}), which cannot be copied. Call the op in a Lambda layer."
            )
        if layer.metrics and not isinstance(layer, library.Model):
            raise ValueError(
                f"The layer {layer.name!r} of `keras_model` ({model.name!r}) adds metrics, which "
                "is not supported. Pass them to `compile`."
            )


def _warn_of_unused(model: Any, arguments: Mapping[str, Any]) -> None:
    for name, (default, advice) in _UNUSED.items():
        if (value := arguments.get(name, default)) not in (default, None, False):
            log.warning(
                "`%s=%r`, which the Keras model %r was compiled with, has no effect. %s",
                name,
                value,
                model.name,
                advice,
            )
