"""The ready-made models of `tf.compat.v1.estimator`.

They sum the losses of a batch, and train with optimizers of `tf.compat.v1.train`, whose slots have
other names. They partition variables over ps tasks: those of layers in slices of at least 256 KiB,
those of columns as the given partitioner says, or in slices of at least 64 MiB. Under a strategy
other than central storage, nothing is partitioned.
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
OPTIMIZERS = {
    "Adagrad": _train.AdagradOptimizer,
    "Adam": _train.AdamOptimizer,
    "Ftrl": _train.FtrlOptimizer,
    "RMSProp": _train.RMSPropOptimizer,
    "SGD": _train.GradientDescentOptimizer,
}


def _make_optimizer(name: str, learning_rate: float, head: Any, *, before: Any) -> Any:
    del head, before  # Their slots have other names, and none of them counts.
    return OPTIMIZERS[name](learning_rate)


_FORM = Form(
    make_optimizer=_make_optimizer,
    dnn_rate=0.05,
    keeps_slashes=False,
    partitions=True,
    scopes_slots=True,
    trains_in_head=True,
    scopes_summaries=True,
)
_COMBINED = dataclasses.replace(_FORM, dnn_rate=0.001, scopes_slots=False)
_BASELINE = dataclasses.replace(_FORM, partitions=False, scopes_slots=False)


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
        given_partitioner = given.arguments.pop(partitioner) if partitioner else None
        makes_head = "head" not in signature.parameters
        self._form = dataclasses.replace(
            form, partitioner=given_partitioner, scopes_loss=not makes_head
        )
        model.__init__(**given.arguments)  # type: ignore[misc]

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    doc = f"{model.__doc__}\n\n    In the form of `tf.compat.v1.estimator`."
    if partitioner is not None:
        doc += f"""

    `{partitioner}` partitions the variables of feature columns over ps tasks. It is ignored under a
    strategy, as with several replicas.
    """
    return type(model.__name__, (model,), {"__init__": __init__, "__doc__": doc})


BaselineClassifier = _v1_form(baseline.BaselineClassifier, _BASELINE)
BaselineEstimator = _v1_form(
    baseline.BaselineEstimator, dataclasses.replace(_BASELINE, trains_in_head=False)
)
BaselineRegressor = _v1_form(baseline.BaselineRegressor, _BASELINE)

_partitioned = functools.partial(_v1_form, partitioner="input_layer_partitioner", before="config")
DNNClassifier = _partitioned(dnn.DNNClassifier, _FORM)
DNNEstimator = _partitioned(dnn.DNNEstimator, _FORM)
DNNRegressor = _partitioned(dnn.DNNRegressor, _FORM)
DNNLinearCombinedClassifier = _partitioned(combined.DNNLinearCombinedClassifier, _COMBINED)
DNNLinearCombinedEstimator = _partitioned(
    combined.DNNLinearCombinedEstimator, dataclasses.replace(_COMBINED, trains_in_head=False)
)
DNNLinearCombinedRegressor = _partitioned(combined.DNNLinearCombinedRegressor, _COMBINED)

# The partitioner is the argument after `config`.
LinearClassifier = _v1_form(linear.LinearClassifier, _FORM, "partitioner", "warm_start_from")
LinearEstimator = _v1_form(linear.LinearEstimator, _FORM, "partitioner", "sparse_combiner")
LinearRegressor = _v1_form(linear.LinearRegressor, _FORM, "partitioner", "warm_start_from")
