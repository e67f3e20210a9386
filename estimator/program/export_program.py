"""Builds the program of an export: the model on placeholders, in any mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.model import reduction
from estimator.model.replicas import Model, Replicas, build_replicas
from estimator.optimizer import accumulation
from estimator.program.graph_scope import building
from estimator.program.step_ops import ops_run_for
from estimator.rewrite import updates
from estimator.runtime.local import Runtime
from estimator.spec import EstimatorSpec, ModeKeys


@dataclasses.dataclass(frozen=True)
class ExportProgram:
    """A model fed by the placeholders of an input receiver.

    Attributes:
      mode: a `ModeKeys`.
      graph: the program's graph.
      spec: the spec of the single replica.
      receiver: the result of the receiver function.
      loss: scalar; None in PREDICT.
      metrics: maps names to (value, update op).
      train_op: runs a whole step, including updates that no op of `model_fn` waits for; None except
        in TRAIN.
    """

    mode: str
    graph: tf.Graph
    spec: EstimatorSpec
    receiver: Any
    loss: tf.Tensor | None
    metrics: dict[str, tuple[Any, Any]]
    train_op: tf.Operation | None


def build_export_program(
    model: Model, receiver_fn: Callable[[], Any], runtime: Runtime
) -> ExportProgram:
    """Builds `model` on the features of an input receiver, and on its labels if there are any.

    Args:
      model: the model to export.
      receiver_fn: returns the receiver; its placeholders are the model's inputs.
      runtime: a runtime with one replica.
    """
    mode = runtime.mode
    with building(runtime) as (graph, global_step):
        receiver = receiver_fn()
        batch = (receiver.features, getattr(receiver, "labels", None))
        with accumulation.collecting_accumulations() as accumulations:
            replicas = build_replicas(runtime.strategy, model, [batch], mode)
        spec = replicas.outputs[0].spec
        is_train = mode == ModeKeys.TRAIN
        has_loss = mode != ModeKeys.PREDICT
        return ExportProgram(
            mode=mode,
            graph=graph,
            spec=spec,
            receiver=receiver,
            # In evaluation, a model may return the loss of each example.
            loss=tf.reduce_mean(spec.loss) if has_loss and spec.loss.shape.rank != 0 else spec.loss,
            metrics=_build_metrics(replicas) if has_loss else {},
            train_op=_build_train_op(replicas, global_step, accumulations) if is_train else None,
        )


def _build_metrics(replicas: Replicas) -> dict[str, tuple[Any, Any]]:
    """Returns the model's (value, update) pairs, and makes such a pair for each Keras metric."""
    pairs = {}
    for name, metric in replicas.outputs[0].spec.eval_metric_ops.items():
        if isinstance(metric, tuple | list):
            pairs[name] = tuple(metric)
            continue
        joined = reduction.build_metrics([{name: metric}], replicas.new_ops)
        pairs[name] = joined.values[name], tf.group(joined.updates[0])
    return pairs


def _build_train_op(
    replicas: Replicas, global_step: tf.Variable, accumulations: Sequence[accumulation.Accumulation]
) -> tf.Operation:
    spec = replicas.outputs[0].spec
    conditional = [one.update for one in accumulations]
    run = set(ops_run_for([spec.train_op, spec.loss], replicas.new_ops))
    others = updates.build_updates(
        replicas.new_ops, replicas.keras_variables, global_step, run, conditional
    )
    return tf.group(spec.train_op, *others)
