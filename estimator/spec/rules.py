"""The rules for the values of a spec in each mode, checked when it is made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator.spec.outputs import PredictOutput

_DEFAULT_SIGNATURE = tf.compat.v1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_Hook = tf.compat.v1.train.SessionRunHook


class ModeKeys:
    """The mode for which a model is built; the values are those of tf.estimator."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


_NEEDS = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


def check_mode(spec_name: str, mode: Any, given: Mapping[str, Any]) -> None:
    """Raises an error unless the mode exists and its required values are given."""
    if mode not in _NEEDS:
        raise ValueError(
            f"`mode` ({mode!r}) is unknown. Pass on the `mode` that `model_fn` was called "
            "with: ModeKeys.TRAIN, EVAL or PREDICT."
        )
    for argument in _NEEDS[mode]:
        if given[argument] is None:
            raise ValueError(
                f"`{argument}` is missing: mode {mode!r} needs it. Return "
                f"{spec_name}(mode, {argument}=...) from `model_fn`."
            )


def check_field_names(changes: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """Raises an error unless all changed names are fields."""
    unknown = [name for name in changes if name not in fields]
    if unknown:
        raise ValueError(
            f"There is no field {', '.join(map(repr, unknown))} to replace. The fields are "
            f"{', '.join(fields)}."
        )


def checked_predictions(predictions: Any, mode: str) -> Any:
    """Returns the checked predictions, a dict as a copy; `{}` for None."""
    if predictions is None:
        return {}
    if not isinstance(predictions, Mapping):
        _check_tensor("predictions", predictions, "a tensor or a dict of tensors")
        return predictions
    if not predictions and mode == ModeKeys.PREDICT:
        raise ValueError("`predictions` ({}) must name at least one tensor.")
    for key, value in predictions.items():
        _check_tensor(f"predictions[{key!r}]", value)
    return dict(predictions)


def checked_loss(loss: Any, mode: str) -> Any:
    """Returns the checked loss, with shape [] if it is, or must turn out to be, a single number.

    A loss of unknown rank, or the losses of examples, keep their shape.
    """
    _check_tensor("loss", loss)
    shape = tf.TensorShape(loss.shape)
    may_be_one = shape.rank is None or shape.is_compatible_with([1] * shape.rank)
    may_be_vector = mode == ModeKeys.EVAL and shape.rank == 1
    if not may_be_one and not may_be_vector and mode != ModeKeys.PREDICT:
        or_vector = ", or a vector with one loss per example" if mode == ModeKeys.EVAL else ""
        raise ValueError(
            f"`loss` ({loss!r}) has shape {shape}. In mode {mode!r} it must be one number"
            f"{or_vector}. Reduce it with tf.reduce_mean(loss)."
        )
    dtype = tf.as_dtype(loss.dtype)
    if mode != ModeKeys.PREDICT and not (dtype.is_floating or dtype.is_integer):
        raise TypeError(
            f"`loss` ({loss!r}) has dtype {dtype.name}. It must be a number, such as float32."
        )
    is_vector = may_be_vector and tf.compat.dimension_value(shape[0]) != 1
    if shape.rank in (None, 0) or not may_be_one or is_vector:
        return loss
    return tf.reshape(loss, [])


def check_train_op(train_op: Any) -> None:
    """Raises an error unless it is None, or something that a session can run."""
    if train_op is None or isinstance(train_op, tf.distribute.DistributedValues):
        return
    if not (_is_tensor(train_op) or isinstance(train_op, tf.Operation)):
        raise TypeError(
            f"`train_op` ({train_op!r}) must be an op, such as the one that optimizer.minimize "
            "returns. Combine several ops with tf.group."
        )
    _check_graph("train_op", train_op)


def checked_metrics(metrics: Any) -> dict[str, Any]:
    """Returns the checked metrics; `{}` for None."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"`eval_metric_ops` ({metrics!r}) must be a dict from name to (value tensor, update "
            "op)."
        )
    for name, metric in metrics.items():
        _check_metric(name, metric)
    return metrics  # type: ignore[return-value]  # The same object, as in tf.estimator.


def _check_metric(name: Any, metric: Any) -> None:
    argument = f"eval_metric_ops[{name!r}]"
    if not isinstance(name, str):
        raise TypeError(f"`eval_metric_ops` has the name {name!r}. It must be a string.")
    if _is_keras_metric(metric):
        return
    if not isinstance(metric, tuple | list) or len(metric) != 2:
        raise TypeError(
            f"`{argument}` ({metric!r}) must be (value tensor, update op), as tf.compat.v1."
            "metrics return, or a Keras metric that was updated."
        )
    if isinstance(metric[0], tf.Operation):
        raise TypeError(
            f"`{argument}[0]` ({metric[0]!r}) must be the value, a tensor; the update op is "
            "the second of the pair."
        )
    for value in tf.nest.flatten(metric):
        if not isinstance(value, tf.Operation):
            _check_tensor(argument, value, "made of tensors and ops")
        _check_graph(argument, value)


def check_call(argument: str, call: Any) -> None:
    """Raises an error unless `call` is None or (function, tensors) that fit together.

    A tensor may be None.
    """
    if call is None:
        return
    if not isinstance(call, tuple | list) or len(call) != 2 or not callable(call[0]):
        raise TypeError(f"`{argument}` ({call!r}) must be (function, list or dict of tensors).")
    function, tensors = call
    if isinstance(tensors, Mapping):
        args, kwargs = [], dict(tensors)
    elif isinstance(tensors, list | tuple):
        args, kwargs = list(tensors), {}
    else:
        raise TypeError(
            f"`{argument}` has {tensors!r} for its tensors. They must be a list or a dict."
        )
    for key, tensor in [*enumerate(args), *kwargs.items()]:
        if tensor is not None:
            _check_tensor(f"{argument}[1][{key!r}]", tensor)
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some built-in functions have none.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        given = sorted(kwargs) if kwargs else f"{len(args)} by position"
        raise TypeError(
            f"`{argument}`: {error}. Its function takes {signature}, its tensors are {given}."
        ) from error


def checked_export_outputs(outputs: Any, predictions: Any, mode: str) -> dict[str, Any] | None:
    """Returns the checked export outputs, which in PREDICT always include a default one.

    Adds the default to the given dict, as in tf.estimator.
    """
    if outputs is None:
        if mode != ModeKeys.PREDICT:
            return None
        return {_DEFAULT_SIGNATURE: PredictOutput(predictions)}
    _check_export_outputs(outputs)
    if mode == ModeKeys.PREDICT and outputs:
        if len(outputs) == 1:
            outputs.setdefault(_DEFAULT_SIGNATURE, next(iter(outputs.values())))
        if _DEFAULT_SIGNATURE not in outputs:
            raise ValueError(
                f"`export_outputs` has the keys {list(outputs)}; one of several must be "
                f"{_DEFAULT_SIGNATURE!r}, the signature that is served when a request names none. "
                "Rename or add one."
            )
    return outputs


def _check_export_outputs(outputs: Any) -> None:
    if not isinstance(outputs, dict):
        raise TypeError(f"`export_outputs` ({outputs!r}) must be a dict from name to ExportOutput.")
    for name, output in outputs.items():
        if not callable(getattr(output, "as_signature_def", None)):
            raise TypeError(
                f"`export_outputs[{name!r}]` ({output!r}) must be an ExportOutput, such as "
                "estimator.export.PredictOutput(predictions)."
            )


def checked_hooks(argument: str, hooks: Any) -> tuple[tf.compat.v1.train.SessionRunHook, ...]:
    """Returns the checked hooks as a tuple."""
    try:
        hooks = tuple(hooks or ())
    except TypeError as error:
        raise TypeError(f"`{argument}` ({hooks!r}) must be a list of hooks.") from error
    for hook in hooks:
        if not isinstance(hook, _Hook):
            raise TypeError(
                f"`{argument}` holds {hook!r}, which is not an instance of "
                "tf.compat.v1.train.SessionRunHook. Derive its class from that class."
            )
    return hooks


def checked_scaffold(scaffold: Any) -> tf.compat.v1.train.Scaffold:
    """Returns the checked Scaffold; an empty one for None."""
    scaffold_type = tf.compat.v1.train.Scaffold
    if scaffold is None:
        return scaffold_type()
    if not isinstance(scaffold, scaffold_type):
        raise TypeError(f"`scaffold` ({scaffold!r}) must be a tf.compat.v1.train.Scaffold.")
    return scaffold


def check_scaffold_fn(scaffold_fn: Any) -> None:
    """Raises an error unless it is None or callable."""
    if scaffold_fn is not None and not callable(scaffold_fn):
        raise TypeError(
            f"`scaffold_fn` ({scaffold_fn!r}) must be a function that takes nothing and "
            "returns a tf.compat.v1.train.Scaffold."
        )


def _check_tensor(argument: str, value: Any, rule: str = "a tensor") -> None:
    if not _is_tensor(value):
        raise TypeError(f"`{argument}` ({value!r}) must be {rule}.")
    _check_graph(argument, value)


def _check_graph(argument: str, value: Any) -> None:
    """Raises an error unless `value` is in the default graph or in a graph around it."""
    graph = getattr(value, "graph", None)  # Eager tensors and Keras variables have no graph.
    if graph is None or tf.executing_eagerly():
        return
    scope = tf.compat.v1.get_default_graph()
    while scope is not None:
        if scope is graph:
            return
        # The graph of a function or a loop's body can use tensors of the graphs around it.
        scope = getattr(scope, "outer_graph", None)
    raise ValueError(
        f"`{argument}` ({value!r}) is in another graph than the one that `model_fn` is called in. "
        "Make it inside `model_fn`."
    )


def _is_tensor(value: Any) -> bool:
    return tf.is_tensor(value) or isinstance(value, tf.Variable)


def _is_keras_metric(value: Any) -> bool:
    # Duck typing: Keras 3 and tf-keras metrics have no class in common, and neither is imported
    # here.
    return all(hasattr(value, name) for name in ("update_state", "result", "variables"))
