"""The ready-made models of `tf.compat.v1.estimator`.

They sum the losses of a batch, train with optimizers of `tf.compat.v1.train`, whose slots have
other names, and take a partitioner of variables over ps tasks.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import tensorflow as tf

from estimator.canned import baseline, combined, dnn, linear
from estimator.canned.parts import Form

_train = tf.compat.v1.train
_OPTIMIZERS = {
    "Adagrad": _train.AdagradOptimizer,
    "Adam": _train.AdamOptimizer,
    "Ftrl": _train.FtrlOptimizer,
    "RMSProp": _train.RMSPropOptimizer,
    "SGD": _train.GradientDescentOptimizer,
}


def _make_optimizer(name: str, learning_rate: float, *, counts_itself: bool) -> Any:
    del counts_itself  # None of them counts.
    return _OPTIMIZERS[name](learning_rate)


_FORM = Form(make_optimizer=_make_optimizer, dnn_rate=0.05, partitions=True)
# A combined model divides its variables only over ps tasks, and trains its parts slower.
_COMBINED = dataclasses.replace(_FORM, dnn_rate=0.001, partitions=False)


def _signature_of(model: type, partitioner: str | None, before: str | None) -> inspect.Signature:
    """Returns the signature of a model's constructor in this form."""
    parameters = []
    for parameter in inspect.signature(model.__init__).parameters.values():  # type: ignore[misc]
        if parameter.name == before:
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(inspect.Parameter(str(partitioner), kind, default=None))
        if parameter.name == "loss_reduction":
            parameters.append(parameter.replace(default=tf.compat.v1.losses.Reduction.SUM))
        else:
            parameters.append(parameter)
    return inspect.Signature(parameters)


def _v1_form(
    model: type, form: Form, partitioner: str | None = None, before: str | None = None
) -> Any:
    """Returns the class of a model in this form.

    Args:
      model: the class of the model in the form of `tf.estimator`.
      form: what differs.
      partitioner: the argument with the partitioner, if there is one.
      before: the argument that follows it.
    """
    signature = _signature_of(model, partitioner, before)

    @functools.wraps(model.__init__)  # type: ignore[misc]
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes the method
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        divides = given.arguments.pop(partitioner) if partitioner else None
        partitions = form.partitions or divides is not None
        self._form = dataclasses.replace(form, partitions=partitions, partitioner=divides)
        model.__init__(**given.arguments)  # type: ignore[misc]

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    doc = f"{model.__doc__}\n\n    In the form of `tf.compat.v1.estimator`."
    return type(model.__name__, (model,), {"__init__": __init__, "__doc__": doc})


_unpartitioned = dataclasses.replace(_FORM, partitions=False)
BaselineClassifier = _v1_form(baseline.BaselineClassifier, _unpartitioned)
BaselineEstimator = _v1_form(baseline.BaselineEstimator, _unpartitioned)
BaselineRegressor = _v1_form(baseline.BaselineRegressor, _unpartitioned)

_layer = {"form": _FORM, "partitioner": "input_layer_partitioner", "before": "config"}
DNNClassifier = _v1_form(dnn.DNNClassifier, **_layer)  # type: ignore[arg-type]
DNNEstimator = _v1_form(dnn.DNNEstimator, **_layer)  # type: ignore[arg-type]
DNNRegressor = _v1_form(dnn.DNNRegressor, **_layer)  # type: ignore[arg-type]

_both = {**_layer, "form": _COMBINED}
DNNLinearCombinedClassifier = _v1_form(combined.DNNLinearCombinedClassifier, **_both)  # type: ignore[arg-type]
DNNLinearCombinedEstimator = _v1_form(combined.DNNLinearCombinedEstimator, **_both)  # type: ignore[arg-type]
DNNLinearCombinedRegressor = _v1_form(combined.DNNLinearCombinedRegressor, **_both)  # type: ignore[arg-type]

# The partitioner is the argument after `config`.
LinearClassifier = _v1_form(linear.LinearClassifier, _FORM, "partitioner", "warm_start_from")
LinearEstimator = _v1_form(linear.LinearEstimator, _FORM, "partitioner", "sparse_combiner")
LinearRegressor = _v1_form(linear.LinearRegressor, _FORM, "partitioner", "warm_start_from")
