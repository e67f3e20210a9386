"""What of a step runs before what, where no tensor says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.graph import input, updates
from estimator.graph.order import in_order, waits_of


def order_assignments(
    step_ops: Sequence[tf.Operation], step: tf.Tensor, global_step: tf.Variable, batches: Any
) -> None:
    """No variable changes before every replica has its batch: the input may be at its end.

    And the global step does not change before it was read.
    """
    assigning = updates.assignments(step_ops)
    for op in updates.writes_to(assigning, global_step):
        _tf.add_control_inputs(op, [_read_behind(step)])
    graph = tf.compat.v1.get_default_graph()
    # What is made outside of the loop, as constants are, is there before the loop starts.
    taken = {tensor.op for tensor in input.batch_tensors(batches) if tensor.graph is graph}
    # What an op waits for anyway is left out: from one task to another, each wait is a message.
    waited_for: dict[tf.Operation, set[tf.Operation]] = {}
    ends = set(assigning)
    for op in in_order(step_ops):
        before = waits_of(op)
        known = taken.intersection(before).union(*(waited_for.get(o, ()) for o in before))
        if op in ends:
            _tf.add_control_inputs(op, sorted(taken - known, key=lambda other: other.name))
            known = taken
        waited_for[op] = known


def _read_behind(step: tf.Tensor) -> tf.Operation:
    """What reads the variable, on the task that has it."""
    op = step.op
    while op.type != "ReadVariableOp" and op.inputs:
        op = op.inputs[0].op
    return op if op.type == "ReadVariableOp" else step.op
