"""Adds metrics to the evaluation of an existing estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    arguments_named,
    check_instance,
    check_needs_only,
)
from estimator.estimators.estimator import Estimator
from estimator.model.replicas import argument_names
from estimator.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec

_ARGUMENTS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable) -> Estimator:
    """Returns an estimator of the same model and `model_dir` whose evaluation has more metrics.

    Args:
      estimator: the original estimator, which is not changed.
      metric_fn: takes any of `features` and `labels`, as passed to `model_fn`, the spec's
        `predictions`, and `config`. It returns a dict from names to (value tensor, update op) or to
        Keras metrics that were updated. These metrics replace the model's metrics of the same
        names.

    Returns:
      An Estimator, or a TPUEstimator with the same batch sizes if it was given one.

    Raises:
      TypeError: `estimator` is not an Estimator, or `metric_fn` is not callable. During evaluation:
        `metric_fn` does not return a dict.
      ValueError: `metric_fn` takes other arguments.
    """
    check_instance("estimator", estimator, Estimator, "an Estimator")
    check_instance("metric_fn", metric_fn, Callable, "a function that returns a dict of metrics")
    check_needs_only("metric_fn", metric_fn, _ARGUMENTS)
    names = arguments_named("metric_fn", metric_fn, _ARGUMENTS)
    original = estimator.model_fn
    original_names = argument_names(original)  # A subclass may define `model_fn` as a method.
    own_params = estimator.params

    def model_fn(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        del params  # `original` gets the original ones.
        given = {"features": features, "labels": labels, "config": config}
        everything = {**given, "mode": mode, "params": own_params}
        spec = original(**{name: everything[name] for name in original_names})
        if mode != ModeKeys.EVAL:
            return spec
        given["predictions"] = getattr(spec, "predictions", None)
        return _with_metrics(spec, metric_fn, {name: given[name] for name in names})

    return estimator.with_model_fn(model_fn)


def _with_metrics(spec: Any, metric_fn: Callable, arguments: dict[str, Any]) -> Any:
    if isinstance(spec, TPUEstimatorSpec):
        return _with_eval_metrics(spec, metric_fn, arguments)
    if not isinstance(spec, EstimatorSpec):
        return spec  # The estimator reports what is wrong with it.
    more = _checked_metrics(metric_fn(**arguments))
    return spec.replace(eval_metric_ops={**spec.eval_metric_ops, **more})


def _with_eval_metrics(
    spec: TPUEstimatorSpec, metric_fn: Callable, arguments: dict[str, Any]
) -> TPUEstimatorSpec:
    """Combines both functions and their tensors into one, called wherever the model's would be."""
    model_metric_fn, tensors = spec.eval_metrics or (dict, [])
    names = list(tensors) if isinstance(tensors, Mapping) else None
    theirs = list(tensors.values()) if isinstance(tensors, Mapping) else list(tensors)
    config = {name: arguments.pop(name) for name in ["config"] if name in arguments}
    ours = [t for t in tf.nest.flatten(arguments, expand_composites=True) if t is not None]

    def all_metrics(*flat: Any) -> dict[str, Any]:
        first, rest = flat[: len(theirs)], iter(flat[len(theirs) :])
        if names is None:
            called = model_metric_fn(*first)
        else:
            called = model_metric_fn(**dict(zip(names, first, strict=True)))
        again = tf.nest.map_structure(
            lambda t: None if t is None else next(rest), arguments, expand_composites=True
        )
        return {**called, **_checked_metrics(metric_fn(**again, **config))}

    return spec.replace(eval_metrics=(all_metrics, [*theirs, *ours]))


def _checked_metrics(metrics: Any) -> Mapping[str, Any]:
    if not isinstance(metrics, Mapping):
        raise WrongTypeError(
            f"`metric_fn` returned {metrics!r}. It must return a dict of name to (value tensor, "
            "update op), or to a Keras metric."
        )
    return metrics
