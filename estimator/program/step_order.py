"""Orders the ops of a step that no tensor orders.

The rule: of any two accesses to a variable in a step, at least one of which writes, one waits for
the other. `updates.build_updates` orders the ops of `model_fn` if Keras or a branch assigns, and
this module orders them if v1 code assigns; it also orders what the library itself reads before it
calls `model_fn`, such as the global step. Code that adds a read or a write to a step must connect
it to the others by tensors or control inputs, or pass it to one of these two.
`tests/program/test_step_order.py` finds pairs that no path connects.
"""

from __future__ import annotations

import collections
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


def order_accesses(new_ops: Sequence[tf.Operation], results: Sequence[tf.Operation]) -> None:
    """Orders the reads and writes of each variable that nothing else orders.

    A read that waits for no write, such as a loss's of a weight that no gradient needs, sees the
    value from before the step. All others follow each other as in the Python code: of two updates
    that read a variable, change the value and assign it, none is lost.

    Args:
      new_ops: the ops that `model_fn` made, in order of creation.
      results: what runs in each step or is reported from it.
    """
    running = ops_behind(results, set(new_ops))
    ops = [op for op in new_ops if op in running]
    assigning = set(updates.assignments(ops))
    order = _Order(ops, assigning)
    reads: dict[Any, list[tf.Operation]] = collections.defaultdict(list)
    writes: dict[Any, list[tf.Operation]] = collections.defaultdict(list)
    for op in ops:
        # In order, so that the ops of `ends_of` have the same names in every process.
        resources = [t for t in op.inputs if t.dtype == tf.resource]
        # In a branch or a loop of v1, an op takes a tensor of its own for a handle outside.
        handles = dict.fromkeys(_tf.variable_source(t).ref() for t in resources)
        written = _tf.written_handles(op) if op in assigning else []
        changed = dict.fromkeys(_tf.variable_source(handle).ref() for handle in written)
        order.add_waits(op, [o for handle in changed for o in (*reads[handle], *writes[handle])])
        if is_read(op) or _tf.runs_a_function(op):
            unchanged = [handle for handle in handles if handle not in changed]
            order.place_read(op, [write for handle in unchanged for write in writes[handle]])
            for handle in unchanged:
                reads[handle].append(op)
        for handle in changed:
            writes[handle].append(op)


class _Order:
    """What waits for what in a step, and the control inputs that are added to that.

    They make no cycle: the ops of a step are made after what they wait for. Later ones are made to
    wait for earlier ones, and earlier ones for reads alone that no write is behind, so that nothing
    behind such a read is made to wait.
    """

    def __init__(self, ops: Sequence[tf.Operation], assigning: set[tf.Operation]) -> None:
        """Takes the ops of a step, in order of creation, and those that assign."""
        self._place = {op: i for i, op in enumerate(ops)}
        topological = in_order(ops)
        self._before = self._surely_before = _ops_before(self._place, topological, forward_waits_of)
        if any(map(_is_inlined, ops)):
            self._surely_before = _ops_before(self._place, topological, _sure_waits_of)
        self._writes = functools.reduce(operator.or_, (1 << self._place[w] for w in assigning), 0)
        self._ends_of = functools.cache(_tf.ends_of)

    def place_read(self, read: tf.Operation, writes: Sequence[tf.Operation]) -> None:
        """Orders a read and the writes before it: it waits for them if it waits for any write."""
        if self._before[read] & self._writes:
            self.add_waits(read, writes)
        elif not _tf.is_in_v1_loop(read):  # What waits for it waits for all of the loop.
            for write in writes:
                self.add_waits(write, [read])

    def add_waits(self, op: tf.Operation, others: Sequence[tf.Operation]) -> None:
        """Makes `op` wait for those of `others` that no path orders with it.

        A path through what TensorFlow inlines may be none in the end.
        """
        unordered = [
            other
            for other in dict.fromkeys(others)
            if _is_inlined(other) or not self._surely_before[op] >> self._place[other] & 1
            if not self._before[other] >> self._place[op] & 1
        ]
        _tf.add_control_inputs(op, [end for other in unordered for end in self._ends_of(other)])


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
