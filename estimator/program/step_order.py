"""What of a step runs before what, where no tensor says so.

The rule: whatever writes a variable in a step waits for all of the step that read it before, in the
order of the Python code. What `model_fn` wrote is ordered by `updates.build_updates` if Keras
assigns or a branch may, and here if v1 code assigns; what the library itself reads before it calls
`model_fn`, as the global step, is ordered here. Whoever adds a read or a write to a step either
puts it on a path of tensors and control inputs to the others, or gives it to one of these two.
`tests/program/test_step_order.py` finds pairs that are on no path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input import input_calls
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import in_order, ops_behind, waits_of

_READS = ("ReadVariableOp", "ResourceGather")


def order_assignments(
    step_ops: Sequence[tf.Operation],
    step: tf.Tensor,
    global_step: tf.Variable,
    batches: Any,
    branches: Sequence[tf.Operation] = (),
) -> None:
    """No variable changes before every replica has its batch: the input may be at its end.

    And the global step does not change before it was read.

    Args:
      step_ops: what each step runs.
      step: the global step as the library read it before the step.
      global_step: its variable.
      batches: of the replicas.
      branches: conds that may count the global step.
    """
    assigning = updates.assignments(step_ops)
    for op in [*updates.writes_to(assigning, global_step), *branches]:
        _tf.add_control_inputs(op, [_read_behind(step)])
    graph = tf.compat.v1.get_default_graph()
    # What is made outside of the loop, as constants are, is there before the loop starts.
    taken = {tensor.op for tensor in input_calls.batch_tensors(batches) if tensor.graph is graph}
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


def order_reads(new_ops: Sequence[tf.Operation], results: Sequence[tf.Operation]) -> None:
    """No variable changes before what was read of it, by what was written before the change.

    A loss or a summary may read a weight that no gradient needs, as that of w * x does not.

    Args:
      new_ops: what `model_fn` made, in that order.
      results: what runs in each step, or gives what people see of it.
    """
    running = ops_behind(results, set(new_ops))
    ops = [op for op in new_ops if op in running]
    place = {op: i for i, op in enumerate(ops)}
    before: dict[tf.Operation, int] = {}  # Sets of bits.
    for op in in_order(ops):
        others = [other for other in waits_of(op) if other in before]
        before[op] = 1 << place[op]
        for other in others:
            before[op] |= before[other]
    reads: dict[Any, list[tf.Operation]] = {}
    assigning = set(updates.assignments(ops))
    for op in ops:
        handles = [_tf.capture_source(t).ref() for t in op.inputs if t.dtype == tf.resource]
        if op in assigning:
            earlier = [read for handle in handles for read in reads.get(handle, ())]
            unordered = [r for r in earlier if not before[op] >> place[r] & 1]
            # Those that wait for it already stay as they are.
            _tf.add_control_inputs(op, [r for r in unordered if not before[r] >> place[op] & 1])
        elif op.type.startswith(_READS):
            for handle in handles:
                reads.setdefault(handle, []).append(op)


def _read_behind(step: tf.Tensor) -> tf.Operation:
    """What reads the variable, on the task that has it."""
    op = step.op
    while op.type != "ReadVariableOp" and op.inputs:
        op = op.inputs[0].op
    return op if op.type == "ReadVariableOp" else step.op
