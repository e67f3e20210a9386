"""Builds evaluation and prediction programs for a single batch size; the last batch is padded.

A TPU's program is compiled for one shape, and all cores run it together. So each replica is fed the
number of real rows in its batch, and on the host the padding rows are cut off from the outputs
before a metric or a prediction sees them. An output for the whole batch cannot be cut: for a scalar
loss, the last batch is split into parts whose size divides the batch size, and each part is
repeated until it fills a batch, so that a mean over the rows of the batch is the mean over the
part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.model.reduction import build_metrics, check_metric_names, keep_metrics_local
from estimator.model.replicas import Model, Replica
from estimator.program import host_call
from estimator.program.graph_scope import build_step_before, building, create_resource
from estimator.program.programs import EvalProgram, Padding, PredictProgram, build_feeds
from estimator.program.tpu_replicas import build_program, check_static
from estimator.runtime.local import Runtime
from estimator.spec import ModeKeys


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of a replica's batch that count.

    Attributes:
      count: scalar, int32, fed: the number of real rows, which come first.
      weight: scalar, float32, fed: the fraction of a batch that a scalar loss represents.
    """

    count: tf.Tensor
    weight: tf.Tensor


def build_padded_eval_program(
    model: Model,
    element: Any,
    runtime: Runtime,
    names: Mapping[str, int] | None = None,
    *,
    batch_size: int | None = None,
) -> EvalProgram:
    """Builds `model` in evaluation mode for a single batch size.

    The last two feeds of each replica are the number of its real rows and the weight of its loss;
    its loss is [sum, weight].

    Args:
      model: the model to evaluate, which returns a TPUEstimatorSpec with `eval_metrics`.
      element: (features, labels) as type specs.
      runtime: where the replicas run.
      names: those that ops of the input have taken.
      batch_size: the rows of a replica's batch, if `element` does not determine it.

    Raises:
      ValueError: the batch size or a shape is unknown, or the model's outputs do not have one row
        per example.
    """
    fixed, padding = _fixed(element, batch_size, "eval_batch_size")
    with building(runtime, runtime.make_device_fn(), names) as (graph, global_step):
        feeds, batches = build_feeds(fixed, runtime.num_replicas)
        replicas = build_program(runtime, model, batches, ModeKeys.EVAL).outputs
        rows = [_build_rows() for _ in feeds]
        current_step = build_step_before(global_step)
    is_one_number = replicas[0].spec.loss.shape.rank == 0
    with graph.as_default(), tf.device("/cpu:0"), tf.variable_creator_scope(create_resource):
        is_sum = _tf.last_loss_is_sum(graph)
        # Outside the strategy, because these run on the host once for all replicas.
        metric_ops = _build_host_metrics(replicas, rows, padding.batch_size)
        metrics = build_metrics([metric_ops], graph.get_operations())
        first, *others = _build_host_calls(replicas, rows, padding.batch_size)
        return EvalProgram(
            graph=graph,
            spec=replicas[0].spec,
            current_step=current_step,
            feeds=[[*feed, row.count, row.weight] for feed, row in zip(feeds, rows, strict=True)],
            losses=[
                _build_loss(one.spec.loss, row, padding.batch_size, is_sum)
                for one, row in zip(replicas, rows, strict=True)
            ],
            updates=[[*metrics.updates[0], *first], *others],
            reset=tf.group(tf.compat.v1.local_variables_initializer()),
            values=metrics.values,
            runtime=runtime,
            padding=dataclasses.replace(padding, in_parts=is_one_number),
        )


def build_padded_predict_program(
    model: Model,
    element: Any,
    runtime: Runtime,
    names: Mapping[str, int] | None = None,
    *,
    batch_size: int | None = None,
) -> PredictProgram:
    """Builds `model` in prediction mode for a single batch size."""
    fixed, padding = _fixed(element, batch_size, "predict_batch_size")
    with building(runtime, runtime.make_device_fn(), names) as (graph, global_step):
        feeds, batches = build_feeds(fixed, runtime.num_replicas)
        replicas = build_program(runtime, model, batches, ModeKeys.PREDICT).outputs
        rows = [_build_rows() for _ in feeds]
        with tf.device("/cpu:0"):
            predictions = [
                _first_rows("predictions", one.spec.predictions, row.count, padding.batch_size)
                for one, row in zip(replicas, rows, strict=True)
            ]
        return PredictProgram(
            graph=graph,
            spec=replicas[0].spec,
            current_step=build_step_before(global_step),
            feeds=[[*feed, row.count, row.weight] for feed, row in zip(feeds, rows, strict=True)],
            predictions=predictions,
            host_ops=_build_host_calls(replicas, rows, padding.batch_size),
            runtime=runtime,
            padding=padding,
        )


def _fixed(element: Any, batch_size: int | None, argument: str) -> tuple[Any, Padding]:
    """Returns the element with all shapes known, and which of its tensors need padding.

    Raises:
      ValueError: the batch size is unknown, or a TPU cannot take such an element.
    """
    flat = [spec for spec in tf.nest.flatten(element) if spec is not None]
    is_padded = [_lacks_batch_size(spec) for spec in flat]
    if any(is_padded) and batch_size is None:
        raise ValueError(
            "`input_fn` yields batches whose size is not known before they come, and programs of "
            f"fixed shapes are compiled for one. Pass `{argument}` to the TPUEstimator, or batch "
            "with drop_remainder=True."
        )
    fixed = tf.nest.map_structure(lambda spec: _with_batch_size(spec, batch_size), element)
    check_static(fixed)
    shapes = [spec.shape.as_list() for spec in tf.nest.flatten(fixed) if spec is not None]
    sizes = {shape[0] for shape in shapes if shape}
    size: Any = batch_size if batch_size in sizes else min(sizes, default=1)
    return fixed, Padding(int(size), is_padded)


def _lacks_batch_size(spec: Any) -> bool:
    is_dense = isinstance(spec, tf.TensorSpec)
    return is_dense and bool(spec.shape.rank) and spec.shape.as_list()[0] is None


def _with_batch_size(spec: Any, batch_size: int | None) -> Any:
    if spec is None or not _lacks_batch_size(spec):
        return spec
    return tf.TensorSpec([batch_size, *spec.shape[1:]], spec.dtype, spec.name)


def _build_rows() -> _Rows:
    placeholder = tf.compat.v1.placeholder
    return _Rows(placeholder(tf.int32, [], "num_rows"), placeholder(tf.float32, [], "weight"))


def _build_loss(loss: tf.Tensor, rows: _Rows, batch_size: int, is_sum: bool) -> tf.Tensor:
    """Returns [sum, weight], float32, of the rows that count."""
    loss = tf.cast(loss, tf.float32)
    if loss.shape.rank == 0:
        # With repeated rows a mean is unchanged, but a sum is not.
        share = tf.cast(rows.count, tf.float32) / batch_size if is_sum else rows.weight
        return tf.stack([loss * share, rows.weight])
    return tf.stack([tf.reduce_sum(loss[: rows.count]), tf.cast(rows.count, tf.float32)])


def _build_host_metrics(
    replicas: Sequence[Replica], rows: Sequence[_Rows], batch_size: int
) -> dict[str, Any]:
    """Calls `metric_fn` once, on the real rows of all replicas."""
    first = replicas[0].eval_metrics
    if first is None:
        return {}
    metric_fn = first[0]
    cut = [
        _first_rows("eval_metrics", one.eval_metrics[1], row.count, batch_size)
        for one, row in zip(replicas, rows, strict=True)
        if one.eval_metrics is not None
    ]
    tensors = tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *cut)
    is_named = isinstance(tensors, Mapping)
    metrics = metric_fn(**tensors) if is_named else metric_fn(*tensors)
    # Validates the metrics as for any other model.
    metrics = replicas[0].spec.replace(eval_metric_ops=metrics).eval_metric_ops
    check_metric_names(metrics)
    keep_metrics_local(metrics)
    return dict(metrics)


def _build_host_calls(
    replicas: Sequence[Replica], rows: Sequence[_Rows], batch_size: int
) -> list[list[Any]]:
    """Calls each replica's `host_call`, if any, on the real rows of its tensors."""

    def real_rows(tensor: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        has_rows = bool(tensor.shape.rank) and tensor.shape.as_list()[0] == batch_size
        return tensor[:count] if has_rows else tensor

    ops = []
    for replica, row in zip(replicas, rows, strict=True):
        call = replica.host_call
        if call is not None:
            call = (call[0], tf.nest.map_structure(lambda t, n=row.count: real_rows(t, n), call[1]))
        ops.append(host_call.build_host_call([call]))
    return ops


def _first_rows(argument: str, tensors: Any, count: tf.Tensor, batch_size: int) -> Any:
    """Cuts off the padding rows of a batch.

    Raises:
      ValueError: a tensor does not have one row for each row of the batch.
    """
    named = dict(tensors) if isinstance(tensors, Mapping) else None
    for key, tensor in (named or dict(enumerate(tf.nest.flatten(tensors)))).items():
        if tensor.shape.rank == 0 or tf.compat.dimension_value(tensor.shape[0]) != batch_size:
            raise ValueError(
                f"`{argument}` has {key!r} with the shape {tensor.shape}, but each of its tensors "
                f"must have one row for each of the {batch_size} rows of a batch: the last batch "
                "is filled up, and the rows that are not real are cut off. Return a value for "
                "each example."
            )
    return tf.nest.map_structure(lambda tensor: tensor[:count], tensors)
