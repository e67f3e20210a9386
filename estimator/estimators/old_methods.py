"""Private methods of `tf.estimator.Estimator` that subclasses in the wild call or override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.estimators.batches import Batches
from estimator.input.input_calls import call_input_fn, get_input
from estimator.model.replicas import Model
from estimator.runtime.strategy import make_runtime

_VERBS = "train, evaluate and predict build and run programs of their own"
_HOOK = f"{_VERBS}: pass hooks or saving_listeners, or override `_call_model_fn`"
_INPUT = "override `_call_input_fn`, or wrap the `input_fn`"
_EXPORT = "override `_call_model_fn`, or return other `export_outputs`"

# What to do instead of methods that tf.estimator calls on the way and this library does not.
_INSTEAD = {
    _HOOK: "_actual_eval _actual_train_model_distributed _evaluate_build_graph _evaluate_run "
    "_train_model _train_model_default _train_model_distributed _train_with_estimator_spec "
    "_train_with_estimator_spec_distributed",
    _EXPORT: "_add_meta_graph_for_mode _export_all_saved_models",
    "override `_call_model_fn`, which is called in all modes": "_call_model_fn_eval",
    "pass `steps` or hooks to evaluate": "_convert_eval_steps_to_hooks",
    "pass `steps`, `max_steps` or hooks to train": "_convert_train_steps_to_hooks",
    "the library creates the global step, int64, in each graph": "_create_global_step",
    "pass `predict_keys` to predict": "_extract_keys",
    _INPUT: "_get_iterator_from_input_fn _validate_features_in_predict_input",
    "pass `warm_start_from`": "_maybe_warm_start",
}
NOT_CALLED = {name: way for way, names in _INSTEAD.items() for name in names.split()}
# These can be called; what overrides them would not be.
_ONLY_CALLED = {
    "_create_and_assert_global_step": "the library creates the global step, int64, in each graph",
    "_get_features_and_labels_from_input_fn": _INPUT,
    "_get_features_from_input_fn": _INPUT,
}
# Attributes of tf.estimator that the config has, by another name.
_OF_CONFIG = {
    "_device_fn": "device_fn",
    "_eval_distribution": "eval_distribute",
    "_session_config": "session_config",
    "_train_distribution": "train_distribute",
}


class OldMethods:
    """The private methods that tf.estimator documents nowhere and many programs rely on.

    A subclass that overrides `_call_model_fn` or `_call_input_fn` is called by `train`, `evaluate`,
    `predict` and, the former, by exports. As with tf.estimator, it must also override
    `_assert_members_are_not_overridden`.
    """

    _model_fn: Callable
    _config: Any
    _input_batches: Batches

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute that tf.estimator had; raises an error for any other.

        Raises:
          AttributeError: with the way out, if tf.estimator has a private method of this name.
        """
        if name in _OF_CONFIG:
            return getattr(self.config, _OF_CONFIG[name])
        instead = NOT_CALLED.get(name)
        if instead is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(f"`{name}` of tf.estimator is not provided: {instead}.")

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> Any:
        """Calls `model_fn` in the default graph, with only the arguments that it takes."""
        params = self._input_batches.model_params(make_runtime(self._config, mode))
        return Model(self._model_fn, params, config).call(features, labels, mode)

    def _call_input_fn(
        self, input_fn: Callable, mode: str, input_context: tf.distribute.InputContext | None = None
    ) -> Any:
        """Calls `input_fn` in the default graph, with only the arguments that it takes."""
        context = input_context or tf.distribute.InputContext()
        params = self._input_batches.input_params(make_runtime(self._config, mode), context)
        given = {"params": params, "mode": mode, "config": self._config, "input_context": context}
        with tf.device("/cpu:0"):
            return call_input_fn(input_fn, given)

    def _get_features_and_labels_from_input_fn(
        self, input_fn: Callable, mode: str
    ) -> tuple[Any, Any, list]:
        """Returns a batch's tensors in the default graph, and hooks, of which none are needed.

        The iterator of a dataset is initialized with the graph's tables.
        """
        source = get_input(
            lambda: self._call_input_fn(input_fn, mode),
            mode=mode,
            params=None,
            config=self._config,
            input_context=tf.distribute.InputContext(),
        ).build()
        if source.initializer is not None:
            collection = tf.compat.v1.GraphKeys.TABLE_INITIALIZERS
            tf.compat.v1.add_to_collection(collection, source.initializer)
        (batch,), _ = source.build_batches(1)
        return (*batch, [])

    def _get_features_from_input_fn(self, input_fn: Callable, mode: str) -> tuple[Any, list]:
        """Returns a batch's features, as `_get_features_and_labels_from_input_fn` does."""
        features, _, hooks = self._get_features_and_labels_from_input_fn(input_fn, mode)
        return features, hooks

    def _create_and_assert_global_step(self, graph: tf.Graph) -> tf.Variable:
        """Creates the global step of a graph."""
        return tf.compat.v1.train.create_global_step(graph)


def check_old_methods(model: OldMethods) -> None:
    """Raises an error if a subclass overrides a method that would never be called.

    Raises:
      ValueError: it does.
    """
    for name, instead in {**NOT_CALLED, **_ONLY_CALLED}.items():
        if overrides(model, name):
            raise ValueError(
                f"{type(model).__name__} overrides `{name}`, which the library does not call: "
                f"{instead}."
            )


def overrides(model: OldMethods, name: str) -> bool:
    """Returns whether a subclass, or the program on this object, replaced a method."""
    is_inherited = getattr(type(model), name, None) is getattr(OldMethods, name, None)
    return name in vars(model) or not is_inherited


def calling_model_fn(call_model_fn: Callable) -> Callable:
    """Returns a `model_fn` of all four arguments that calls a model's `_call_model_fn`."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        return call_model_fn(features, labels, mode, config)

    return model_fn


def calling_input_fn(call_input_fn: Callable, input_fn: Callable) -> Callable:
    """Returns an `input_fn` that calls a model's `_call_input_fn` with another."""

    def called_input_fn(mode: str, input_context: tf.distribute.InputContext) -> Any:
        return call_input_fn(input_fn, mode, input_context)

    return called_input_fn
