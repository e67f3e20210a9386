"""What a `model_fn` returns: frozen data, checked when it is made."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_Hook = tf.compat.v1.train.SessionRunHook


class ModeKeys:
    """What a model is built for; the values are those of tf.estimator."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


# What `evaluate` returns besides the metrics.
_RESULTS = ("loss", "global_step")

_NEEDS = {
    ModeKeys.TRAIN: ("loss", "train_op"),
    ModeKeys.EVAL: ("loss",),
    ModeKeys.PREDICT: ("predictions",),
}


# Not compared by value: `==` of tensors is an op.
@dataclass(frozen=True, eq=False)
class EstimatorSpec:
    """A model in one mode.

    Attributes:
      mode: a `ModeKeys`.
      predictions: a tensor or a dict of tensors, whose first dimension is the batch's; needed to
        predict.
      loss: needed to train and to evaluate. To train, a scalar (a shape of [1] becomes []); to
        evaluate, a scalar or the losses of the examples, of shape [batch size].
      train_op: what makes one step; needed to train.
      eval_metric_ops: name to (value tensor, update op), or to a Keras metric.
      export_outputs: name to `estimator.export.ExportOutput`; the dict may be changed later.
      training_chief_hooks: hooks of the chief only.
      training_hooks: hooks of every worker.
      scaffold: a `tf.compat.v1.train.Scaffold`; an empty one if None is given.
      evaluation_hooks: hooks around evaluation.
      prediction_hooks: hooks around prediction.

    Raises:
      ValueError: something that the mode needs is missing, a shape is wrong, or a tensor is in
        another graph.
      TypeError: a value is of the wrong type.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] | None = None
    export_outputs: dict[str, Any] | None = None
    training_chief_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None
    training_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None
    scaffold: tf.compat.v1.train.Scaffold | None = None
    evaluation_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None
    prediction_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None

    def __post_init__(self) -> None:
        """Checks every value."""
        _complete(self)
        _check_eval_metric_ops(self.eval_metric_ops)
        scaffold_type = tf.compat.v1.train.Scaffold
        if self.scaffold is None:
            object.__setattr__(self, "scaffold", scaffold_type())
        elif not isinstance(self.scaffold, scaffold_type):
            raise TypeError(
                f"`scaffold` ({self.scaffold!r}) must be a tf.compat.v1.train.Scaffold."
            )

    def replace(self, **changes: Any) -> EstimatorSpec:
        """A copy with these values instead, checked again."""
        return dataclasses.replace(self, **changes)

    _replace = replace


@dataclass(frozen=True, eq=False)
class TPUEstimatorSpec:
    """A model in one mode, as TPUEstimator's model functions describe it.

    The attributes are those of `EstimatorSpec`, but for these:

    Attributes:
      eval_metrics: (metric_fn, tensors); `metric_fn` takes the tensors of a list by position or
        those of a dict by name, and returns what `EstimatorSpec.eval_metric_ops` takes.
      scaffold_fn: takes nothing and returns a `tf.compat.v1.train.Scaffold`.
      host_call: (host_fn, tensors), called likewise; what it returns is run once a step. In
        training, `host_fn` is called once, with the tensors of all replicas, joined along their
        first dimension; in evaluation and prediction once a replica, of which the last step may
        have fewer.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: tuple[Callable, Any] | None = None
    export_outputs: dict[str, Any] | None = None
    scaffold_fn: Callable[[], tf.compat.v1.train.Scaffold] | None = None
    host_call: tuple[Callable, Any] | None = None
    training_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None
    evaluation_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None
    prediction_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] | None = None

    def __post_init__(self) -> None:
        """Checks every value."""
        _complete(self)
        _check_call("eval_metrics", self.eval_metrics)
        _check_call("host_call", self.host_call)
        if self.scaffold_fn is not None and not callable(self.scaffold_fn):
            raise TypeError(
                f"`scaffold_fn` ({self.scaffold_fn!r}) must be a function that takes nothing and "
                "returns a tf.compat.v1.train.Scaffold."
            )

    def as_estimator_spec(self) -> EstimatorSpec:
        """The same as an `EstimatorSpec`: calls `metric_fn`, `host_fn` and `scaffold_fn`.

        What `host_fn` returns becomes a part of the `train_op`, and is run by a hook in evaluation
        and prediction. Where this is called by `model_fn`, the functions see the tensors of one
        replica.
        """
        eval_metric_ops = None
        if self.mode == ModeKeys.EVAL and self.eval_metrics is not None:
            eval_metric_ops = call_on_tensors(self.eval_metrics)
        train_op = self.train_op
        hooks: list[tf.compat.v1.train.SessionRunHook] = []
        if self.host_call is not None:
            ops = [op for op in tf.nest.flatten(call_on_tensors(self.host_call)) if op is not None]
            if self.mode == ModeKeys.TRAIN:
                train_op = tf.group(train_op, *ops)
            else:
                hooks = [_RunningHook(ops)]
        return EstimatorSpec(
            mode=self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=train_op,
            eval_metric_ops=eval_metric_ops,
            export_outputs=self.export_outputs,
            training_hooks=self.training_hooks,
            scaffold=None if self.scaffold_fn is None else self.scaffold_fn(),
            evaluation_hooks=(*(self.evaluation_hooks or ()), *hooks),
            prediction_hooks=(*(self.prediction_hooks or ()), *hooks),
        )

    def replace(self, **changes: Any) -> TPUEstimatorSpec:
        """A copy with these values instead, checked again."""
        return dataclasses.replace(self, **changes)

    _replace = replace


def call_on_tensors(call: tuple[Callable, Any]) -> Any:
    """What the function of (function, list or dict of tensors) makes of the tensors."""
    function, tensors = call
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


class _RunningHook(tf.compat.v1.train.SessionRunHook):
    """Runs ops along with each session call."""

    def __init__(self, ops: list[Any]) -> None:
        self._ops = ops

    def before_run(self, run_context: Any) -> Any:
        del run_context
        return tf.compat.v1.train.SessionRunArgs(self._ops)


def _complete(spec: EstimatorSpec | TPUEstimatorSpec) -> None:
    """Checks what both specs have; makes the loss a scalar and the hooks tuples."""
    _check_mode(spec)
    _check_predictions(spec.predictions, spec.mode)
    _check_train_op(spec.train_op)
    _check_export_outputs(spec.export_outputs)
    # The one moment at which a frozen spec is written to: while it is made.
    if spec.loss is not None:
        object.__setattr__(spec, "loss", _checked_loss(spec.loss, spec.mode))
    for field in dataclasses.fields(spec):
        if field.name.endswith("_hooks"):
            hooks = _checked_hooks(field.name, getattr(spec, field.name))
            object.__setattr__(spec, field.name, hooks)


def _check_mode(spec: EstimatorSpec | TPUEstimatorSpec) -> None:
    if spec.mode not in _NEEDS:
        raise ValueError(
            f"`mode` ({spec.mode!r}) is unknown. Pass on the `mode` that `model_fn` was called "
            "with: ModeKeys.TRAIN, EVAL or PREDICT."
        )
    for argument in _NEEDS[spec.mode]:
        if getattr(spec, argument) is None:
            raise ValueError(
                f"`{argument}` is missing: mode {spec.mode!r} needs it. Return "
                f"{type(spec).__name__}(mode, {argument}=...) from `model_fn`."
            )


def _check_predictions(predictions: Any, mode: str) -> None:
    if predictions is None:
        return
    if not isinstance(predictions, Mapping):
        _check_tensor("predictions", predictions, "a tensor or a dict of tensors")
        return
    if not predictions and mode == ModeKeys.PREDICT:
        raise ValueError("`predictions` ({}) must name at least one tensor.")
    for key, value in predictions.items():
        _check_tensor(f"predictions[{key!r}]", value)


def _checked_loss(loss: Any, mode: str) -> Any:
    """The loss, with shape [] if it is one number to train on."""
    _check_tensor("loss", loss)
    shape = tf.TensorShape(loss.shape)
    if mode == ModeKeys.TRAIN and shape.rank == 1 and shape[0] == 1:
        return tf.reshape(loss, [])
    max_rank, rule = {
        ModeKeys.TRAIN: (0, "a scalar"),
        ModeKeys.EVAL: (1, "a scalar or of rank 1, one loss an example"),
        ModeKeys.PREDICT: (math.inf, "anything"),
    }[mode]
    if shape.rank is not None and shape.rank > max_rank:
        raise ValueError(
            f"`loss` ({loss!r}) has shape {shape}. In mode {mode!r} it must be {rule}. Reduce it "
            "with tf.reduce_mean(loss)."
        )
    dtype = tf.as_dtype(loss.dtype)
    if mode != ModeKeys.PREDICT and not (dtype.is_floating or dtype.is_integer):
        raise TypeError(
            f"`loss` ({loss!r}) has dtype {dtype.name}. It must be a number, such as float32."
        )
    return loss


def _check_train_op(train_op: Any) -> None:
    if train_op is None:
        return
    if isinstance(train_op, tf.distribute.DistributedValues):
        return
    if not (_is_tensor(train_op) or isinstance(train_op, tf.Operation)):
        raise TypeError(
            f"`train_op` ({train_op!r}) must be an op, such as the one that optimizer.minimize "
            "returns. Several are made one with tf.group."
        )
    _check_graph("train_op", train_op)


def _check_eval_metric_ops(metrics: Any) -> None:
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"`eval_metric_ops` ({metrics!r}) must be a dict from name to (value tensor, update "
            "op)."
        )
    for name, metric in metrics.items():
        _check_metric(name, metric)


def _check_metric(name: Any, metric: Any) -> None:
    argument = f"eval_metric_ops[{name!r}]"
    if not isinstance(name, str):
        raise TypeError(f"`eval_metric_ops` has the name {name!r}. It must be a string.")
    if name in _RESULTS:
        raise ValueError(
            f"`eval_metric_ops` has the name {name!r}, under which `evaluate` returns its own "
            f"result. Rename it, as in 'my_{name}'."
        )
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


def _check_call(argument: str, call: Any) -> None:
    """Raises unless `call` is None or (function, tensors), where the function takes the tensors."""
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


def _check_export_outputs(outputs: Any) -> None:
    if outputs is None:
        return
    if not isinstance(outputs, dict):
        raise TypeError(f"`export_outputs` ({outputs!r}) must be a dict from name to ExportOutput.")
    for name, output in outputs.items():
        if not callable(getattr(output, "as_signature_def", None)):
            raise TypeError(
                f"`export_outputs[{name!r}]` ({output!r}) must be an ExportOutput, such as "
                "estimator.export.PredictOutput(predictions)."
            )


def _checked_hooks(argument: str, hooks: Any) -> tuple[tf.compat.v1.train.SessionRunHook, ...]:
    if hooks is None:
        return ()
    if not isinstance(hooks, list | tuple):
        raise TypeError(f"`{argument}` ({hooks!r}) must be a list of hooks.")
    for hook in hooks:
        if not isinstance(hook, _Hook):
            raise TypeError(
                f"`{argument}` holds {hook!r}, which is no instance of "
                "tf.compat.v1.train.SessionRunHook. Derive its class from that one."
            )
    return tuple(hooks)


def _check_tensor(argument: str, value: Any, rule: str = "a tensor") -> None:
    if not _is_tensor(value):
        raise TypeError(f"`{argument}` ({value!r}) must be {rule}.")
    _check_graph(argument, value)


def _check_graph(argument: str, value: Any) -> None:
    """Raises unless `value` is in the default graph, or in one that the default graph is in."""
    graph = getattr(value, "graph", None)  # Eager tensors and Keras variables have none.
    if graph is None or tf.executing_eagerly():
        return
    scope = tf.compat.v1.get_default_graph()
    while scope is not None:
        if scope is graph:
            return
        # The graph of a function or of a loop's body sees the tensors around it.
        scope = getattr(scope, "outer_graph", None)
    raise ValueError(
        f"`{argument}` ({value!r}) is in another graph than the one that `model_fn` is called in. "
        "Make it inside `model_fn`."
    )


def _is_tensor(value: Any) -> bool:
    return tf.is_tensor(value) or isinstance(value, tf.Variable)


def _is_keras_metric(value: Any) -> bool:
    # By its methods: Keras 3 and tf-keras have no class in common, and neither is imported here.
    return all(hasattr(value, name) for name in ("update_state", "result", "variables"))
