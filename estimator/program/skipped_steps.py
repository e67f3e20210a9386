"""Implements the NaN policy "skip": reverts a step that leaves a non-finite number."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import build_any
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.program.step_models import StepModels
from estimator.program.step_ops import all_parts
from estimator.program.step_plan import StepPlan
from estimator.rewrite import updates

# The most elements of several variables that are read together: 64 MiB of float32.
_MAX_JOINED = 2**24


def build_skip_counter() -> LoopOutput:
    """Builds the counter of skipped steps: scalar, int64."""
    return build_loop_output(tf.int64, "skipped_steps", tf.zeros([], tf.int64, "training/zero"))


def build_revert(
    plan: StepPlan,
    models: StepModels,
    step_ops: Sequence[tf.Operation],
    loss: tf.Tensor,
    done: Sequence[Any],
) -> tf.Operation:
    """Reverts the variables that a step changes if the loss or any of them is not finite after it.

    Counters, such as the global step, are not reverted. They count skipped steps too: the batch is
    used up, and schedules continue.

    Args:
      plan: what the step is built from; all workers revert the step if any of them has to.
      models: the models of the step.
      step_ops: the ops of the step.
      loss: the step's loss: scalar.
      done: everything that the step does.

    Returns:
      The op that the step must run last.
    """
    counters = [plan.global_step, *(one.num_taken for one in models.accumulations)]
    snapshots = _build_snapshots(step_ops, counters, plan.runtime.only_gpu is not None)
    with tf.control_dependencies(all_parts(done)):
        is_bad = tf.logical_not(_build_is_finite(loss, snapshots))
    with tf.device("/cpu:0"):
        is_bad = build_any(plan.workers, is_bad)

    def revert() -> tf.Tensor:
        written = [op for snapshot in snapshots for op in snapshot.build_writes()]
        counted = plan.skipped_steps.build_add(tf.ones([], tf.int64))
        with tf.control_dependencies([*written, counted]):
            return tf.constant(True)

    return _tf.cond(is_bad, revert, lambda: tf.constant(False), name="revert").op


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """What variables were before the step.

    Attributes:
      variables: one, or several of the same dtype and device.
      before: the value of the only variable, or of all of them as one vector.
    """

    variables: list[tf.Variable]
    before: tf.Tensor

    def build_writes(self) -> list[tf.Operation]:
        """Sets the variables to what they were."""
        values = [self.before]
        if len(self.variables) > 1:
            shapes = [variable.shape for variable in self.variables]
            with tf.device(self.before.device):
                parts = tf.split(self.before, [shape.num_elements() for shape in shapes])
                values = [tf.reshape(*pair) for pair in zip(parts, shapes, strict=True)]
        pairs = zip(self.variables, values, strict=True)
        return [variable.assign(value, read_value=False) for variable, value in pairs]


def _build_read(variables: Sequence[tf.Variable]) -> tf.Tensor:
    """Reads the only variable, or all of them as one vector."""
    values = [variable.read_value() for variable in variables]
    if len(values) == 1:
        return values[0]
    with tf.device(variables[0].device):
        return tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)


def _build_is_finite(loss: tf.Tensor, snapshots: Sequence[_Snapshot]) -> tf.Tensor:
    """Builds whether the loss, and all that the variables are now, is finite."""
    ends = {loss.dtype: [loss]}
    for snapshot in snapshots:
        before = snapshot.before
        if before.dtype.is_floating and before.shape.num_elements() != 0:
            value = _build_read(snapshot.variables)
            # Where the variables are: a GPU's would be copied to the host in every step.
            with tf.device(snapshot.variables[0].device):
                for end in _build_ends(value):
                    ends.setdefault(end.dtype, []).append(end)
    are_finite = [tf.reduce_all(tf.math.is_finite(tf.stack(every))) for every in ends.values()]
    return functools.reduce(tf.logical_and, are_finite)


def _build_ends(value: tf.Tensor) -> list[tf.Tensor]:
    """Builds the largest and the smallest number: both are finite only if all of `value` is.

    NaN counts as both, on a GPU, too. Unlike `is_finite`, this needs no memory for each element.
    """
    if value.dtype.size < 4:  # Not every device compares these.
        value = tf.cast(value, tf.float32)
    if value.shape.num_elements() is None:  # It may have no elements.
        value = tf.concat([tf.reshape(value, [-1]), tf.zeros([1], value.dtype)], axis=0)
    return [tf.reduce_max(value), tf.reduce_min(value)]


def _build_snapshots(
    step_ops: Sequence[tf.Operation], counters: Sequence[tf.Variable], is_on_gpu: bool
) -> list[_Snapshot]:
    """Reads the variables that the step may change, before it does; costs a copy of them per step.

    Args:
      step_ops: the ops of the step.
      counters: variables to leave out.
      is_on_gpu: whether variables without a device are on a GPU.

    Returns:
      The values, each replica's copy separate.
    """
    variables = _tf.variables_by_handle()
    for copy in [copy for counter in counters for copy in _tf.copies(counter)]:
        variables.pop(copy.handle.ref(), None)
    writes: dict[Any, list[tf.Operation]] = {}
    for op in updates.assignments(step_ops):
        for handle in [_tf.variable_source(handle).ref() for handle in _tf.written_handles(op)]:
            if handle in variables:
                writes.setdefault(handle, []).append(op)
    snapshots: list[_Snapshot] = []
    for joined in _joined([variables[handle] for handle in writes], is_on_gpu):
        before = _build_read(joined)
        for variable in joined:
            for op in writes[variable.handle.ref()]:
                _tf.add_control_inputs(op, [before.op])
        snapshots.append(_Snapshot(joined, before))
    return snapshots


def _joined(variables: Sequence[tf.Variable], is_on_gpu: bool) -> Iterator[list[tf.Variable]]:
    """Yields the variables, those of a GPU in as few lists as possible.

    A GPU takes longer to start an op than to read a variable of usual size.
    """
    joined: dict[Any, list[tf.Variable]] = {}
    sizes: collections.Counter[Any] = collections.Counter()
    for variable in variables:
        size = variable.shape.num_elements()
        is_there = "GPU" in variable.device if variable.device else is_on_gpu
        if size is None or not is_there or not variable.dtype.is_floating:
            yield [variable]
            continue
        key = variable.device, variable.dtype
        if key in joined and sizes[key] + size > _MAX_JOINED:
            yield joined.pop(key)
            del sizes[key]
        joined.setdefault(key, []).append(variable)
        sizes[key] += size
    yield from joined.values()
