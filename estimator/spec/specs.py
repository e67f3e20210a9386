"""`EstimatorSpec` and `TPUEstimatorSpec`: named tuples, checked when they are made."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from estimator.spec import rules
from estimator.spec.rules import ModeKeys


class _EstimatorSpec(NamedTuple):
    """The fields of an `EstimatorSpec`, documented there."""

    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: dict[str, Any]
    export_outputs: dict[str, Any] | None
    training_chief_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    training_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    scaffold: tf.compat.v1.train.Scaffold
    evaluation_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    prediction_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]


class EstimatorSpec(_EstimatorSpec):
    """The ops of a model in one mode: a named tuple of eleven fields, in order of the arguments.

    Attributes:
      mode: a `ModeKeys`.
      predictions: a tensor or a dict of tensors, whose first dimension is the batch's; required to
        predict, `{}` if not given in other modes.
      loss: required to train and to evaluate. A single number, of any shape with one element (it
        becomes []); in evaluation, also the losses of the examples, with shape [batch size].
      train_op: the op that performs one step; required to train.
      eval_metric_ops: maps names to (value tensor, update op) or to Keras metrics; `{}` if not
        given.
      export_outputs: maps names to `estimator.export.ExportOutput`s; the dict may be changed later.
        In PREDICT, a dict with one output also gets it under "serving_default"; without a dict, the
        predictions are exported under that name.
      training_chief_hooks: training hooks for the chief only.
      training_hooks: training hooks for every worker.
      scaffold: a `tf.compat.v1.train.Scaffold`; an empty one if None is given.
      evaluation_hooks: hooks around evaluation.
      prediction_hooks: hooks around prediction.

    Raises:
      ValueError: a value that the mode requires is missing, a shape is wrong, a tensor is in
        another graph, or none of several `export_outputs` is called "serving_default".
      TypeError: a value has the wrong type.
    """

    def __new__(  # noqa: PLR0913 - the documented signature
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: dict[str, Any] | None = None,
        training_chief_hooks: Any = None,
        training_hooks: Any = None,
        scaffold: tf.compat.v1.train.Scaffold | None = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> EstimatorSpec:
        """Checks every value."""
        common = _checked_common(cls, mode, predictions, loss, train_op, export_outputs)
        return super().__new__(
            cls,
            **common,
            eval_metric_ops=rules.checked_metrics(eval_metric_ops),
            training_chief_hooks=rules.checked_hooks("training_chief_hooks", training_chief_hooks),
            training_hooks=rules.checked_hooks("training_hooks", training_hooks),
            scaffold=rules.checked_scaffold(scaffold),
            evaluation_hooks=rules.checked_hooks("evaluation_hooks", evaluation_hooks),
            prediction_hooks=rules.checked_hooks("prediction_hooks", prediction_hooks),
        )

    def replace(self, **changes: Any) -> EstimatorSpec:
        """Returns a checked copy with other values of some fields.

        Raises:
          ValueError: a name is unknown, the mode would change, or a value is wrong.
        """
        if changes.get("mode", self.mode) != self.mode:
            raise ValueError(
                f"`mode` ({changes['mode']!r}) of an EstimatorSpec cannot change: its tensors were "
                f"made for mode {self.mode!r}. Make another EstimatorSpec."
            )
        rules.check_field_names(changes, self._fields)
        return EstimatorSpec(**{**self._asdict(), **changes})

    _replace = replace


class _TPUEstimatorSpec(NamedTuple):
    """The fields of a `TPUEstimatorSpec`, documented there."""

    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metrics: tuple[Callable, Any] | None
    export_outputs: dict[str, Any] | None
    scaffold_fn: Callable[[], tf.compat.v1.train.Scaffold] | None
    host_call: tuple[Callable, Any] | None
    training_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    evaluation_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    prediction_hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]


class TPUEstimatorSpec(_TPUEstimatorSpec):
    """The ops of a model in one mode, as returned by TPUEstimator's model functions.

    A named tuple. The attributes are those of `EstimatorSpec`, except for these:

    Attributes:
      eval_metrics: (metric_fn, tensors): `metric_fn` takes the tensors of a list by position, or
        those of a dict by name, and returns what `EstimatorSpec.eval_metric_ops` takes.
      scaffold_fn: takes no arguments and returns a `tf.compat.v1.train.Scaffold`.
      host_call: (host_fn, tensors), called in the same way; the ops that it returns run in every
        step. In training, `host_fn` is called once, with the tensors of all replicas concatenated
        along their first dimension; in evaluation and prediction, once for each replica with a
        batch, of which the last step may have fewer.
    """

    def __new__(  # noqa: PLR0913 - the documented signature
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metrics: tuple[Callable, Any] | None = None,
        export_outputs: dict[str, Any] | None = None,
        scaffold_fn: Callable[[], tf.compat.v1.train.Scaffold] | None = None,
        host_call: tuple[Callable, Any] | None = None,
        training_hooks: Any = None,
        evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> TPUEstimatorSpec:
        """Checks every value."""
        common = _checked_common(cls, mode, predictions, loss, train_op, export_outputs)
        rules.check_call("eval_metrics", eval_metrics)
        rules.check_call("host_call", host_call)
        rules.check_scaffold_fn(scaffold_fn)
        return super().__new__(
            cls,
            **common,
            eval_metrics=eval_metrics,
            scaffold_fn=scaffold_fn,
            host_call=host_call,
            training_hooks=rules.checked_hooks("training_hooks", training_hooks),
            evaluation_hooks=rules.checked_hooks("evaluation_hooks", evaluation_hooks),
            prediction_hooks=rules.checked_hooks("prediction_hooks", prediction_hooks),
        )

    def as_estimator_spec(self) -> EstimatorSpec:
        """Converts to an `EstimatorSpec`: calls `metric_fn`, `host_fn` and `scaffold_fn`.

        The result of `host_fn` becomes part of the `train_op`, and is run by a hook in evaluation
        and prediction. When `model_fn` calls this, the functions get the tensors of one replica.
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
            evaluation_hooks=(*self.evaluation_hooks, *hooks),
            prediction_hooks=(*self.prediction_hooks, *hooks),
        )

    def replace(self, **changes: Any) -> TPUEstimatorSpec:
        """Returns a checked copy with other values of some fields; `_replace` does not check."""
        rules.check_field_names(changes, self._fields)
        return TPUEstimatorSpec(**{**self._asdict(), **changes})


def call_on_tensors(call: tuple[Callable, Any]) -> Any:
    """Calls the function of (function, list or dict of tensors) on its tensors."""
    function, tensors = call
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


def with_none_bound(call: tuple[Callable, Any] | None) -> tuple[Callable, Any] | None:
    """Binds what is None in (function, list or dict of tensors) to the function."""
    if call is None:
        return None
    function, tensors = call
    if isinstance(tensors, Mapping):
        bound = {name: None for name, tensor in tensors.items() if tensor is None}
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return (functools.partial(function, **bound), given) if bound else call
    is_given = [tensor is not None for tensor in tensors]
    if all(is_given):
        return call

    def fill(*given: Any) -> Any:
        rest = iter(given)
        return function(*[next(rest) if is_one else None for is_one in is_given])

    return fill, [tensor for tensor in tensors if tensor is not None]


class _RunningHook(tf.compat.v1.train.SessionRunHook):
    """Runs ops with each session call."""

    def __init__(self, ops: list[Any]) -> None:
        self._ops = ops

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._ops)


def _checked_common(
    cls: type, mode: Any, predictions: Any, loss: Any, train_op: Any, export_outputs: Any
) -> dict[str, Any]:
    """Returns the fields that both specs have, checked and completed."""
    given = {"predictions": predictions, "loss": loss, "train_op": train_op}
    rules.check_mode(cls.__name__, mode, given)
    predictions = rules.checked_predictions(predictions, mode)
    rules.check_train_op(train_op)
    return {
        "mode": mode,
        "predictions": predictions,
        "loss": None if loss is None else rules.checked_loss(loss, mode),
        "train_op": train_op,
        "export_outputs": rules.checked_export_outputs(export_outputs, predictions, mode),
    }
