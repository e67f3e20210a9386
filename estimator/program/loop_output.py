"""Passes values of a loop's last step to the host: summaries and logged tensors.

A loop returns only its loop variables. What is wanted from its last step alone is computed and
written to a resource in a branch that only the last step takes, and read afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import is_read, ops_before, ops_behind, waits_of
from estimator.rewrite.subgraph_copy import build_copy
from estimator.runtime.ps_placement import on_own_task

# What a body captures, a v1 loop in it, and what a TPU's program returns.
_STAYING = ("Placeholder", "Exit", "TPUReplicatedOutput")


@dataclasses.dataclass(frozen=True)
class LoopOutput:
    """A value that outlives a loop. Read it only after the loop, with control inputs."""

    handle: tf.Tensor
    dtype: tf.DType
    initializer: tf.Operation

    def build_read(self) -> tf.Tensor:
        """Reads the value written last; before any write, the initial value."""
        return tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)

    def build_write(self, value: tf.Tensor) -> tf.Operation:
        """Replaces the value."""
        return tf.raw_ops.AssignVariableOp(resource=self.handle, value=value)

    def build_add(self, value: tf.Tensor) -> tf.Operation:
        """Adds to the value."""
        return tf.raw_ops.AssignAddVariableOp(resource=self.handle, value=value)


# A predicate (scalar, bool), and tensors with their outputs.
Stage: TypeAlias = tuple[tf.Tensor, Sequence[tuple[tf.Tensor, LoopOutput]]]


def build_loop_output(
    dtype: tf.DType, name: str, initial: tf.Tensor | None = None, device: str | None = "/cpu:0"
) -> LoopOutput:
    """Creates the resource in the graph around the loop, outside any strategy.

    Args:
      dtype: the dtype of the values.
      name: the name of the resource.
      initial: the value before any write; an empty tensor if None.
      device: where the resource is: by default on the host; None if TensorFlow chooses.
    """
    with tf.init_scope(), tf.device(device), on_own_task(), tf.name_scope("training/"):
        unique = tf.compat.v1.get_default_graph().unique_name(name)
        handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=tf.TensorShape(None), shared_name=unique, name=name
        )
        if initial is None:
            initial = tf.zeros([0], dtype) if dtype != tf.string else tf.constant([], tf.string)
        initializer = tf.raw_ops.AssignVariableOp(resource=handle, value=initial)
    return LoopOutput(handle, dtype, initializer)


def build_writes(stages: Sequence[Stage], running: Iterable[tf.Operation]) -> tf.Operation:
    """Writes the tensors of each stage to their outputs if its predicate holds.

    Each stage is in the branch of the one before it. Ops that serve these tensors alone are moved
    there, with their side effects: a metric that only a summary updates is updated when it is
    recorded.

    Args:
      stages: at least one; each predicate implies those before it.
      running: the ops that run whatever the predicates are; those behind them do so, too.

    Returns:
      The op to run.
    """
    (predicate, pairs), *others = stages
    tensors = [tensor for _, every in stages for tensor, _ in every]
    moved = _ops_that_serve_only(tensors, running)

    def write() -> tf.Tensor:
        copies = iter(build_copy(tensors, moved.__contains__, copies_waits=True))
        writes = [place.build_write(next(copies)) for _, place in pairs]
        inner = [
            (is_due, [(next(copies), place) for _, place in every]) for is_due, every in others
        ]
        with tf.control_dependencies([*writes, *([build_writes(inner, writes)] if inner else [])]):
            return tf.constant(1)

    waits = {other for op in moved for other in op.control_inputs} - moved
    with tf.control_dependencies(sorted(waits, key=lambda op: op.name)):
        return _tf.cond(predicate, write, lambda: tf.constant(0), name="written_if_due").op


def _ops_that_serve_only(
    tensors: Sequence[tf.Tensor], running: Iterable[tf.Operation]
) -> set[tf.Operation]:
    """Returns the ops to move: those behind `tensors` that would not run without them.

    A read stays where it is ordered, unless it waits for an op that is moved.
    """
    staying = [op for op in ops_behind(tensor.op for tensor in tensors) if op.type in _STAYING]
    others = ops_behind([*running, *staying])
    graph = tf.compat.v1.get_default_graph()
    moved: set[tf.Operation] = set()
    for op in ops_before(tensors, lambda op: op.graph is graph and op not in others, waits_of):
        if not is_read(op) or not moved.isdisjoint(waits_of(op)):
            moved.add(op)
    return moved
