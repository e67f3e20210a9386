"""Implements the NaN policy "skip": reverts a step that leaves a non-finite number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import build_any
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.program.step_models import StepModels
from estimator.program.step_ops import all_parts
from estimator.program.step_plan import StepPlan
from estimator.rewrite import updates


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
    before = _build_snapshot(step_ops, counters)
    with tf.control_dependencies(all_parts(done)):
        after = [v.read_value() for v, _ in before if v.dtype.is_floating]
        # Where the variables are: a GPU's would be copied to the host in every step.
        finite = [tf.reduce_all(tf.math.is_finite(value)) for value in [loss, *after]]
        is_finite = tf.reduce_all(tf.stack(finite))
    with tf.device("/cpu:0"):
        is_bad = tf.logical_not(is_finite)
        is_bad = build_any(plan.workers, is_bad)

    def revert() -> tf.Tensor:
        written = [variable.assign(value, read_value=False) for variable, value in before]
        counted = plan.skipped_steps.build_add(tf.ones([], tf.int64))
        with tf.control_dependencies([*written, counted]):
            return tf.constant(True)

    return _tf.cond(is_bad, revert, lambda: tf.constant(False), name="revert").op


def _build_snapshot(
    step_ops: Sequence[tf.Operation], counters: Sequence[tf.Variable]
) -> list[tuple[tf.Variable, tf.Tensor]]:
    """Reads the variables that the step may change, before it does; costs a copy of them per step.

    Returns:
      The variables but the `counters`, each replica's copy separate, with their values.
    """
    variables = _tf.variables_by_handle()
    for copy in [copy for counter in counters for copy in _tf.copies(counter)]:
        variables.pop(copy.handle.ref(), None)
    values: dict[Any, tf.Tensor] = {}
    for op in updates.assignments(step_ops):
        for handle in [_tf.variable_source(handle).ref() for handle in _tf.written_handles(op)]:
            if handle not in variables:
                continue
            if handle not in values:
                values[handle] = variables[handle].read_value()
            _tf.add_control_inputs(op, [values[handle].op])
    return [(variables[handle], value) for handle, value in values.items()]
