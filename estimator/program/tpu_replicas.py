"""Builds one program for all replicas, as a TPU needs, and returns its outputs to the host.

Otherwise `model_fn` is called for each replica, and all its tensors are accessible. A TPU has one
program that every core runs: `model_fn` is called once, nothing inside is accessible from outside,
and everything needed outside must be an output: losses, the tensors of `host_call` and
`eval_metrics`, predictions, and what summaries and logging hooks show.

`build_program` does this for any strategy, by `strategy.run`: all programs of a TPU are built this
way, and everywhere those that pad their batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.model.precision import computing_in
from estimator.model.reduction import place_metrics
from estimator.model.replicas import (
    Model,
    Replica,
    Replicas,
    VariableWatch,
    watching_variables,
    with_one_scaffold,
)
from estimator.program.deferred_summaries import DeferredSummaries
from estimator.program.step_summaries import tensor_of
from estimator.rewrite.xla_support import warn_of_uncompilable_ops
from estimator.runtime.local import Runtime
from estimator.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec, with_none_bound

_Logging = tf.compat.v1.train.LoggingTensorHook
_Saving = tf.compat.v1.train.SummarySaverHook
_NOT_ON_TPU = (tf.string, tf.resource, tf.variant)

Finish = Callable[[EstimatorSpec, VariableWatch], Sequence[Any]]


def build_program(
    runtime: Runtime,
    model: Model,
    batches: Sequence[tuple[Any, Any]],
    mode: str,
    finish: Finish = lambda spec, watch: [],
) -> Replicas:
    """Builds the model as one program, which each replica runs on its batch.

    Args:
      runtime: where the replicas run; the caller has entered its scope.
      model: the model.
      batches: (features, labels) for each replica, dense and of fixed shapes.
      mode: a ModeKeys value.
      finish: called inside the program after `model_fn`; returns the ops that must run before the
        replica outputs its loss.

    Returns:
      For each replica, its tensors on the host that the mode has: the loss, those of `host_call`
      and `eval_metrics`, and predictions. There are no new ops to order and to run: they are
      inside, and run with the loss.
    """
    strategy = runtime.strategy
    made: list[_Inside] = []
    summaries = DeferredSummaries()

    @tf.autograph.experimental.do_not_convert
    def build_one(*tensors: tf.Tensor) -> list[tf.Tensor]:
        features, labels = _filled(batches[0], tensors)
        with watching_variables(mode) as watch, _tf.replica_reaches_outer_graphs():
            replica = _call(model, features, labels, mode)
            place_metrics(watch.metric_variables, [replica.spec])
            done = finish(replica.spec, watch)
        made.append(_leave(replica, mode, done, summaries))
        return _tensors_in(made[-1].given)

    with summaries.deferring(), computing_in(model.config.compute_dtype):
        flat = [_tensors_in(batch) for batch in batches]
        inputs = [_tf.per_replica(strategy, list(each)) for each in zip(*flat, strict=True)]
        outputs = strategy.run(build_one, args=tuple(inputs))
    _tf.free_tpu_handles(tf.compat.v1.get_default_graph())
    warn_of_uncompilable_ops(tf.compat.v1.get_default_graph())
    per_output = [strategy.experimental_local_results(output) for output in outputs]
    replicas = [
        made[0].as_seen_outside([values[i] for values in per_output]) for i in range(len(batches))
    ]
    if mode == ModeKeys.TRAIN:
        made[0].show([values[0] for values in per_output], summaries)
    else:
        summaries.drop()
    replicas[0] = with_one_scaffold(replicas[:1])
    return Replicas(outputs=replicas, new_ops=[], keras_variables=[])


def check_static(element: Any) -> None:
    """Raises an error unless a TPU can take batches like `element`: dense, numeric, fixed shapes.

    Args:
      element: (features, labels) as type specs or tensors.
    """
    for name, value in [*_named("features", element[0]), *_named("labels", element[1])]:
        if value is None:
            continue
        shape: Any = getattr(value, "shape", None)
        if not isinstance(value, tf.Tensor | tf.TensorSpec) or value.dtype in _NOT_ON_TPU:
            raise ValueError(
                f"`input_fn` yields {name} ({_show(value)}), and a TPU takes dense numbers only. "
                "Let `input_fn` look words up, parse and decode, and make sparse and ragged "
                "tensors dense (tf.sparse.to_dense, `to_tensor`)."
            )
        if shape.rank and shape.as_list()[0] is None:
            raise ValueError(
                f"`input_fn` yields {name} with the shape {shape}, whose batch dimension is "
                "unknown, and a TPU's program is compiled for one shape. Batch with "
                'dataset.batch(params["batch_size"], drop_remainder=True).'
            )
        if not shape.is_fully_defined():
            raise ValueError(
                f"`input_fn` yields {name} with the shape {shape}, and a TPU's program is compiled "
                "for one shape. Give every dimension a size: dataset.padded_batch(..., "
                "padded_shapes=..., drop_remainder=True), or tf.ensure_shape."
            )


@dataclasses.dataclass(frozen=True)
class _Inside:
    """The outputs of a program, as the tensors inside it.

    Attributes:
      replica: the result of its model.
      given: by purpose, a nested structure of the tensors that the program outputs.
    """

    replica: Replica
    given: dict[str, Any]

    def as_seen_outside(self, values: Sequence[tf.Tensor]) -> Replica:
        """Returns the replica with the tensors inside replaced by their values on the host."""
        given, spec = _filled(self.given, values), self.replica.spec
        changes = {key: given[key] for key in ("loss", "predictions")}
        if spec.mode == ModeKeys.TRAIN:
            changes["train_op"] = given["loss"].op
        calls: dict[str, Any] = {
            key: None if call is None else (call[0], given[key])
            for key in ("host_call", "eval_metrics")
            for call in [getattr(self.replica, key)]
        }
        spec = spec.replace(**changes, export_outputs=None)
        return dataclasses.replace(self.replica, spec=spec, **calls)

    def show(self, values: Sequence[tf.Tensor], summaries: DeferredSummaries) -> None:
        """Builds the summaries, and redirects the model's hooks to the values outside."""
        given = _filled(self.given, values)
        summaries.build(given["summaries"])
        for hook, tensors in zip(_hooks(self.replica.spec), given["logged"], strict=True):
            if isinstance(hook, _Logging):
                _tf.replace_logging_hook_tensors(hook, tensors)
            elif isinstance(hook, _Saving):
                ones = _tf.summary_tensors(hook)
                _tf.set_summary_tensors(hook, [getattr(one, "built", one) for one in ones])


def _tensors_in(structure: Any) -> list[tf.Tensor]:
    return [tensor for tensor in tf.nest.flatten(structure) if tensor is not None]


def _filled(structure: Any, tensors: Sequence[tf.Tensor]) -> Any:
    """Returns a structure with other tensors in the place of `_tensors_in(structure)`."""
    left = iter(tensors)
    return tf.nest.map_structure(lambda part: None if part is None else next(left), structure)


def _call(model: Model, features: Any, labels: Any, mode: str) -> Replica:
    """Calls the model for one replica; its metrics are not computed inside."""
    num_written = len(tf.compat.v1.summary.all_v2_summary_ops())
    spec = model(features, labels, mode)
    if len(tf.compat.v1.summary.all_v2_summary_ops()) > num_written:
        raise ValueError(
            "`model_fn` writes with tf.summary, which a TPU's program cannot. Use tf.compat.v1."
            "summary there, or write in a `host_call`, which runs on the host."
        )
    if isinstance(spec, TPUEstimatorSpec):
        rest: dict[str, Any] = dict.fromkeys(("scaffold_fn", "eval_metrics", "host_call"))
        plain = spec.replace(**rest).as_estimator_spec()
        calls = with_none_bound(spec.host_call), with_none_bound(spec.eval_metrics)
        return Replica(plain, calls[0], spec.scaffold_fn, calls[1])
    if mode == ModeKeys.EVAL and spec.eval_metric_ops:
        raise ValueError(
            f"`model_fn` returned an EstimatorSpec with `eval_metric_ops` ("
            f"{', '.join(spec.eval_metric_ops)}), but these would count the rows that fill up the "
            "last batch. Return TPUEstimatorSpec(eval_metrics=(metric_fn, tensors)), whose metrics "
            "are computed on the host, or evaluate there: TPUEstimator(eval_on_tpu=False)."
        )
    return Replica(spec)


def _leave(
    replica: Replica, mode: str, done: Sequence[Any], summaries: DeferredSummaries
) -> _Inside:
    """Determines the program's outputs; the loss waits for `done`."""
    spec = replica.spec
    given: dict[str, Any] = dict.fromkeys(
        ("loss", "predictions", "host_call", "eval_metrics", "logged", "summaries")
    )
    if mode == ModeKeys.TRAIN:
        loss = tf.cast(tf.reshape(spec.loss, []), tf.float32)
        with tf.control_dependencies(list(done)):
            # An identity of the loss: a graph optimizer may drop a reshape with its control inputs.
            given["loss"] = tf.identity(loss)
        given["logged"] = [_logged(hook) for hook in _hooks(spec)]
        given["summaries"] = summaries.tensors()
    elif mode == ModeKeys.EVAL:
        given["loss"] = tf.cast(spec.loss, tf.float32)
        given["eval_metrics"] = _tensors(replica.eval_metrics)
    else:
        given["predictions"] = spec.predictions
    given["host_call"] = _tensors(replica.host_call)
    return _Inside(replica, given)


def _tensors(call: tuple[Callable, Any] | None) -> Any:
    if call is None:
        return None
    _, tensors = call
    return tf.nest.map_structure(tf.convert_to_tensor, tensors)


def _hooks(spec: EstimatorSpec) -> list[Any]:
    return [*(spec.training_hooks or ()), *(spec.training_chief_hooks or ())]


def _logged(hook: Any) -> dict[str, tf.Tensor]:
    """Returns, by tag, the tensors of the program that a hook logs."""
    if not isinstance(hook, _Logging):
        return {}
    named = _tf.logging_hook_tensors(hook).items()
    tensors = {tag: tensor_of(t) for tag, t in named if isinstance(t, str | tf.Tensor)}
    return {tag: tensor for tag, tensor in tensors.items() if _tf.is_in_tpu_program(tensor)}


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns the parts of a structure with their names for the user."""
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in _named(f"{name}[{key!r}]", part)]
    if isinstance(value, list | tuple):
        return [pair for i, part in enumerate(value) for pair in _named(f"{name}[{i}]", part)]
    return [(name, value)]


def _show(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    kind = type(value).__name__
    return f"{kind} of {dtype.name}" if isinstance(dtype, tf.DType) else kind
