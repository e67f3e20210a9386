"""Evaluation and prediction programs: a built graph and what is needed to run it.

A session sees a program, never an `input_fn` or a `model_fn`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.input.packed_batches import pack_batch
from estimator.model import reduction
from estimator.model.replicas import Model, build_replicas
from estimator.model.state_changes import leaves_state
from estimator.model.summable_metrics import check_sums
from estimator.program import host_call
from estimator.program.graph_scope import build_step_before, building
from estimator.rewrite.graph_walk import ops_behind
from estimator.runtime.local import Runtime
from estimator.spec import EstimatorSpec, ModeKeys


@dataclasses.dataclass(frozen=True)
class Padding:
    """How batches are padded for a program that takes a single batch size.

    Attributes:
      batch_size: the number of rows of a replica's batch.
      is_padded: for each component tensor of a batch, whether it may have fewer rows.
      in_parts: whether an incomplete batch is cut into parts that divide `batch_size`.
    """

    batch_size: int
    is_padded: list[bool]
    in_parts: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class FedProgram:
    """A model on each replica. A session runs as many replicas as it feeds batches to.

    Attributes:
      graph: the graph of the program.
      spec: the first replica's EstimatorSpec.
      current_step: scalar, int64: the global step of the weights.
      feeds: for each replica, the placeholders for its batch's component tensors.
      runtime: where the replicas run.
      padding: how batches are padded if all must have the same size; else None.
      leaves_state: whether a call leaves something that changes the next one, such as the rows of a
        table, or the place in its stream of a random op with a seed.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    current_step: tf.Tensor
    feeds: list[list[tf.Tensor]]
    runtime: Runtime
    padding: Padding | None = None
    leaves_state: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalProgram(FedProgram):
    """An evaluation step.

    Attributes:
      losses: for each replica, its batch's loss: a scalar or rank 1.
      updates: for each replica, the metrics' update ops and its `host_call`.
      reset: initializes the local variables, which sets the metrics to zero.
      values: the metrics, by name.
    """

    losses: list[tf.Tensor]
    updates: list[list[Any]]
    reset: tf.Operation
    values: dict[str, tf.Tensor]

    @functools.cached_property
    def reads_batch(self) -> bool:
        """Whether the value of a metric is computed from a batch, and not from variables."""
        tensors = tf.nest.flatten(self.values, expand_composites=True)
        behind = ops_behind(tensor.op for tensor in tensors)
        return any(feed.op in behind for feed in itertools.chain(*self.feeds))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictProgram(FedProgram):
    """A prediction step.

    Attributes:
      predictions: for each replica, a tensor or a dict of tensors.
      host_ops: for each replica, what its `host_call` runs.
    """

    predictions: list[Any]
    host_ops: list[list[Any]]


def build_eval_program(
    model: Model, element: Any, runtime: Runtime, names: Mapping[str, int] | None = None
) -> EvalProgram:
    """Builds `model` in evaluation mode, fed with batches shaped like `element`.

    Args:
      model: the model to evaluate.
      element: (features, labels) as type specs.
      runtime: where the replicas run.
      names: those that ops of the input have taken.

    Raises:
      NotSummableError: a metric may be wrong on several replicas.
    """
    with building(runtime, runtime.make_device_fn(), names) as (graph, global_step):
        current_step = build_step_before(global_step)
        feeds, batches = build_feeds(element, runtime.num_replicas)
        replicas = build_replicas(runtime.strategy, model, batches, ModeKeys.EVAL)
        specs = [output.spec for output in replicas.outputs]
        reduction.check_metric_names(specs[0].eval_metric_ops)
        metrics = reduction.build_metrics(
            [dict(spec.eval_metric_ops) for spec in specs], replicas.new_ops
        )
        losses = [spec.loss for spec in specs]
        updates = [
            [*updates, *host_call.build_host_call([output.host_call])]
            for updates, output in zip(metrics.updates, replicas.outputs, strict=True)
        ]
        if len(specs) > 1:
            check_sums(metrics.values, [losses, updates], replicas)
        return EvalProgram(
            graph=graph,
            spec=specs[0],
            current_step=current_step,
            feeds=feeds,
            losses=losses,
            updates=updates,
            # Built before the first session call, after which the graph's ops must not change.
            reset=tf.group(tf.compat.v1.local_variables_initializer()),
            values=metrics.values,
            runtime=runtime,
            leaves_state=leaves_state(
                [losses, metrics.updates], replicas.new_ops, tf.compat.v1.local_variables()
            ),
        )


def build_predict_program(
    model: Model, element: Any, runtime: Runtime, names: Mapping[str, int] | None = None
) -> PredictProgram:
    """Builds `model` in prediction mode, fed with batches shaped like `element`.

    Args:
      model: the model that predicts.
      element: (features, None) as type specs.
      runtime: where the replicas run.
      names: those that ops of the input have taken.
    """
    with building(runtime, runtime.make_device_fn(), names) as (graph, global_step):
        current_step = build_step_before(global_step)
        feeds, batches = build_feeds(element, runtime.num_replicas)
        replicas = build_replicas(runtime.strategy, model, batches, ModeKeys.PREDICT)
        predictions = [output.spec.predictions for output in replicas.outputs]
        return PredictProgram(
            graph=graph,
            spec=replicas.outputs[0].spec,
            current_step=current_step,
            feeds=feeds,
            predictions=predictions,
            host_ops=[host_call.build_host_call([out.host_call]) for out in replicas.outputs],
            runtime=runtime,
            leaves_state=leaves_state(predictions, replicas.new_ops, ()),
        )


def build_feeds(element: Any, num_replicas: int) -> tuple[list[list[tf.Tensor]], list[Any]]:
    """Builds, for each replica, placeholders for a batch's component tensors.

    Returns:
      For each replica its placeholders, and for each replica the batch that is made of them.

    Raises:
      TypeError: a component is a variant, which cannot be fed.
    """
    flat_specs = tf.nest.flatten(element, expand_composites=True)
    if any(spec is not None and spec.dtype == tf.variant for spec in flat_specs):
        raise WrongTypeError(
            f"`input_fn` yields {element}. `evaluate` and `predict` cannot pass on what holds no "
            "numbers, such as a tf.experimental.Optional: take the tensors out of it in `input_fn`."
        )
    feeds, batches = [], []
    for _ in range(num_replicas):
        flat = [
            None if spec is None else tf.compat.v1.placeholder(spec.dtype, spec.shape, "input/feed")
            for spec in flat_specs
        ]
        feeds.append([tensor for tensor in flat if tensor is not None])
        batches.append(pack_batch(element, flat))
    return feeds, batches
