"""Finds which of the ops that `model_fn` made a step runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.model.replicas import Replicas
from estimator.rewrite.graph_walk import ops_behind

# The parts of a Scaffold that no step runs.
_FOR_SESSIONS = ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op")


def ops_run_for(values: Sequence[Any], among: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns the ops of `among` that run when `values` are fetched; a saver's ops do not.

    So do those that only ops outside of `among` need, such as those of a `host_call`.
    """
    behind = ops_behind(as_ops(values))
    return [op for op in among if op in behind]


def without_ops_for_sessions(replicas: Replicas) -> list[tf.Operation]:
    """Returns the new ops without those that only the Scaffold uses, which no step runs."""
    scaffold = replicas.outputs[0].spec.scaffold or tf.compat.v1.train.Scaffold()
    parts = [getattr(scaffold, name) for name in _FOR_SESSIONS]
    alone = set(ops_run_for([part for part in parts if part is not None], replicas.new_ops))
    if alone:
        specs = [output.spec for output in replicas.outputs]
        wired = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        steps = [*wired, *(value for spec in specs for value in (spec.train_op, spec.loss))]
        alone.difference_update(ops_run_for(steps, replicas.new_ops))
    return [op for op in replicas.new_ops if op not in alone]


def as_ops(values: Sequence[Any]) -> list[tf.Operation]:
    """Returns the ops among `values`, and the ops that make the tensors among them."""
    return [getattr(value, "op", value) for value in all_parts(values)]


def all_parts(values: Sequence[Any]) -> list[Any]:
    """Returns `values` with each distributed value replaced by its parts on all replicas."""
    parts: list[Any] = []
    for value in values:
        is_distributed = isinstance(value, tf.distribute.DistributedValues)
        parts.extend(value.values if is_distributed else [value])
    return parts
