"""Implements the NaN policy "skip": reverts a step that leaves a non-finite number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import ONE_WORKER, Workers, build_any
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.rewrite import updates


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The values of a step's variables before the step.

    Attributes:
      variables: the variables that the step may change, with each replica's copy separate.
      values: their values, in the same order.
    """

    variables: list[tf.Variable]
    values: list[tf.Tensor]


def build_skip_counter() -> LoopOutput:
    """Builds the counter of skipped steps: scalar, int64."""
    return build_loop_output(tf.int64, "skipped_steps", tf.zeros([], tf.int64, "training/zero"))


def build_snapshot(step_ops: Sequence[tf.Operation], counters: Sequence[tf.Variable]) -> Snapshot:
    """Reads the variables that the step may change, before it does; costs a copy of them per step.

    Args:
      step_ops: the ops of the step.
      counters: variables that are not reverted, such as the global step. They count skipped steps
        too: the batch is used up, and schedules continue.
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
    return Snapshot([variables[handle] for handle in values], list(values.values()))


def build_revert(
    before: Snapshot,
    loss: tf.Tensor,
    done: Sequence[Any],
    counter: LoopOutput,
    workers: Workers = ONE_WORKER,
) -> tf.Operation:
    """Reverts the variables if the loss or any of them is not finite after `done`.

    Args:
      before: the snapshot taken before the step.
      loss: the step's loss: scalar.
      done: everything that the step does.
      counter: counts the reverted steps.
      workers: all workers revert the step if any of them has to.

    Returns:
      The op that the step must run last.
    """
    with tf.device("/cpu:0"), tf.control_dependencies(done):
        after = [v.read_value() for v in before.variables if v.dtype.is_floating]
        finite = [tf.reduce_all(tf.math.is_finite(value)) for value in [loss, *after]]
        is_bad = tf.logical_not(tf.reduce_all(tf.stack(finite)))
        is_bad = build_any(workers, is_bad)

    def revert() -> tf.Tensor:
        pairs = zip(before.variables, before.values, strict=True)
        written = [variable.assign(value, read_value=False) for variable, value in pairs]
        with tf.control_dependencies([*written, counter.build_add(tf.ones([], tf.int64))]):
            return tf.constant(True)

    return _tf.cond(is_bad, revert, lambda: tf.constant(False), name="revert").op
