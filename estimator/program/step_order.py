"""Orders the ops of a step that no tensor orders.

The rule: every write to a variable in a step waits for all reads of it that come before the write
in the Python code. `updates.build_updates` orders the ops of `model_fn` if Keras or a branch
assigns, and this module orders them if v1 code assigns; it also orders what the library itself
reads before it calls `model_fn`, such as the global step. Code that adds a read or a write to a
step must connect it to the others by tensors or control inputs, or pass it to one of these two.
`tests/program/test_step_order.py` finds pairs that no path connects.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input import input_calls
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import forward_waits_of, in_order, is_read, ops_behind


def order_assignments(
    step_ops: Sequence[tf.Operation],
    step: tf.Tensor,
    global_step: tf.Variable,
    batches: Any,
    branches: Sequence[tf.Operation] = (),
) -> None:
    """Makes every change of a variable wait until all replicas have their batches.

    The input may be at its end. The global step also does not change before it is read.

    Args:
      step_ops: the ops that each step runs.
      step: the library's read of the global step before the step.
      global_step: the global step's variable.
      batches: the replicas' batches.
      branches: conds that may advance the global step.
    """
    assigning = updates.assignments(step_ops)
    for op in [*updates.writes_to(assigning, global_step), *branches]:
        _tf.add_control_inputs(op, [_read_behind(step)])
    graph = tf.compat.v1.get_default_graph()
    # Tensors from outside the loop, such as constants, exist before the loop starts.
    taken = {tensor.op for tensor in input_calls.batch_tensors(batches) if tensor.graph is graph}
    if not taken:
        return
    # Omits redundant control inputs, because each one between tasks is a message.
    waited_for: dict[tf.Operation, set[tf.Operation]] = {}
    ends = set(assigning)
    for op in in_order(step_ops):
        before = _sure_waits_of(op)
        known = taken.intersection(before).union(*(waited_for.get(o, ()) for o in before))
        if op in ends:
            _tf.add_control_inputs(op, sorted(taken - known, key=lambda other: other.name))
            known = taken
        waited_for[op] = known


def order_reads(new_ops: Sequence[tf.Operation], results: Sequence[tf.Operation]) -> None:
    """Makes every change of a variable wait for the reads of it that were written before.

    A loss or a summary may read a weight that no gradient needs, as for w * x.

    Args:
      new_ops: the ops that `model_fn` made, in order of creation.
      results: what runs in each step or is reported from it.
    """
    running = ops_behind(results, set(new_ops))
    ops = [op for op in new_ops if op in running]
    place = {op: i for i, op in enumerate(ops)}
    topological = in_order(ops)
    before = surely_before = _ops_before(place, topological, forward_waits_of)
    if any(map(_is_inlined, ops)):
        surely_before = _ops_before(place, topological, _sure_waits_of)
    ends_of = functools.cache(_tf.ends_of)
    reads: dict[Any, list[tf.Operation]] = {}
    assigning = set(updates.assignments(ops))
    for op in ops:
        # In order, so that the ops of `ends_of` have the same names in every process.
        resources = [t for t in op.inputs if t.dtype == tf.resource]
        # In a branch or a loop of v1, an op takes a tensor of its own for a handle outside.
        handles = dict.fromkeys(_tf.variable_source(t).ref() for t in resources)
        if op in assigning:
            earlier = [read for handle in handles for read in reads.get(handle, ())]
            unordered = [
                r for r in earlier if _is_inlined(r) or not surely_before[op] >> place[r] & 1
            ]
            # Reads that already wait for the assignment stay as they are.
            unordered = [r for r in unordered if not before[r] >> place[op] & 1]
            _tf.add_control_inputs(
                op, [end for r in dict.fromkeys(unordered) for end in ends_of(r)]
            )
            for written in _tf.written_handles(op):
                handles.pop(_tf.variable_source(written).ref(), None)
        if is_read(op) or _tf.runs_a_function(op):
            for handle in handles:
                reads.setdefault(handle, []).append(op)


def _ops_before(
    place: dict[tf.Operation, int],
    topological: Sequence[tf.Operation],
    waits: Callable[[tf.Operation], list[tf.Operation]],
) -> dict[tf.Operation, int]:
    """Returns the places of each op and of the ops before it as a bit set."""
    before: dict[tf.Operation, int] = {}
    for op in topological:
        sets = [before[other] for other in waits(op) if other in before]
        before[op] = functools.reduce(operator.or_, sets, 1 << place[op])
    return before


def _sure_waits_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that every output of `op` waits for."""
    return list(op.control_inputs) if _is_inlined(op) else forward_waits_of(op)


def _is_inlined(op: tf.Operation) -> bool:
    """Returns whether TensorFlow replaces `op`: each output then waits only for what it needs."""
    return op.type == "IdentityN" or _tf.runs_a_function(op)


def _read_behind(step: tf.Tensor) -> tf.Operation:
    """Returns the op that reads the variable, on the variable's task."""
    op = step.op
    while op.type != "ReadVariableOp" and op.inputs:
        op = op.inputs[0].op
    return op if op.type == "ReadVariableOp" else step.op
