"""Passes values of a loop's last step to the host: summaries and logged tensors.

A loop returns only its loop variables. What is wanted from its last step alone is computed and
written to a resource in a branch that only the last step takes, and read afterwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_before
from estimator.rewrite.subgraph_copy import build_copy
from estimator.runtime.ps_placement import on_own_task


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


def build_loop_output(dtype: tf.DType, name: str, initial: tf.Tensor | None = None) -> LoopOutput:
    """Creates the resource in the graph around the loop, on the host, outside any strategy.

    Args:
      dtype: the dtype of the values.
      name: the name of the resource.
      initial: the value before any write; an empty tensor if None.
    """
    with tf.init_scope(), tf.device("/cpu:0"), on_own_task(), tf.name_scope("training/"):
        unique = tf.compat.v1.get_default_graph().unique_name(name)
        handle = tf.raw_ops.VarHandleOp(
            dtype=dtype, shape=tf.TensorShape(None), shared_name=unique, name=name
        )
        if initial is None:
            initial = tf.zeros([0], dtype) if dtype != tf.string else tf.constant([], tf.string)
        initializer = tf.raw_ops.AssignVariableOp(resource=handle, value=initial)
    return LoopOutput(handle, dtype, initializer)


def build_write_if(
    predicate: tf.Tensor, tensors: Sequence[tf.Tensor], places: Sequence[LoopOutput], name: str
) -> tf.Operation:
    """Writes each tensor to its output if `predicate` holds.

    Ops that serve only these tensors are moved into the branch, so that they run only then.

    Args:
      predicate: scalar, bool.
      tensors: tensors of the default graph, made before this call.
      places: an output for each tensor.
      name: the name of the cond.

    Returns:
      The op to run.
    """
    exclusive = _ops_that_serve_only(tensors)

    def write() -> tf.Tensor:
        copies = build_copy(list(tensors), exclusive.__contains__)
        writes = [place.build_write(copy) for place, copy in zip(places, copies, strict=True)]
        with tf.control_dependencies(writes):
            return tf.constant(1)

    return _tf.cond(predicate, write, lambda: tf.constant(0), name=name).op


def _ops_that_serve_only(tensors: Sequence[tf.Tensor]) -> set[tf.Operation]:
    """Returns the stateless ops that are needed for `tensors` only."""
    before = ops_before(tensors, _may_move)
    targets = {tensor.op for tensor in tensors}
    exclusive: set[tf.Operation] = set()
    for op in reversed(before):
        consumers = {c for output in op.outputs for c in output.consumers()}
        serves_only = consumers.union(_tf.control_outputs(op)) <= exclusive
        if serves_only and (consumers or op in targets):
            exclusive.add(op)
    return exclusive


def _may_move(op: tf.Operation) -> bool:
    """Returns whether an op may move: no side effects, no placeholder, no TPU output."""
    return not op.op_def.is_stateful and op.type not in ("Placeholder", "TPUReplicatedOutput")
