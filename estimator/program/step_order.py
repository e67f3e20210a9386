"""Orders the ops of a step that no tensor orders.

The rule: every write to a variable in a step waits for all accesses to it that come before the
write in the Python code. `updates.build_updates` orders the ops of `model_fn` if Keras or a branch
assigns, and this module orders them if v1 code assigns; it also orders what the library itself
reads before it calls `model_fn`, such as the global step. Code that adds a read or a write to a
step must connect it to the others by tensors or control inputs, or pass it to one of these two.
`tests/program/test_step_order.py` finds pairs that no path connects.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input import input_calls
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import (
    forward_waits_of,
    in_order,
    is_read,
    ops_behind,
    walk,
)

# An update has fewer ops between its read and its write; a layer that also keeps state, such as a
# spectral norm, has more behind its read: the model and its gradients.
_MAX_OPS_OF_UPDATE = 60

# Ops after which nothing is left of what a variable, or a part of it, was.
_REPLACING = {
    *("AssignVariableOp", "ResourceScatterUpdate", "ResourceScatterNdUpdate"),
    "ResourceStridedSliceAssign",
}


def order_assignments(
    step_ops: Sequence[tf.Operation],
    step: tf.Tensor,
    global_step: tf.Variable,
    batches: Any,
    branches: Sequence[tf.Operation] = (),
    *,
    add_waits: updates.AddWaits,
) -> None:
    """Makes every change of a variable wait until all replicas have their batches.

    The input may be at its end. The global step also does not change before it is read.

    Args:
      step_ops: the ops that each step runs.
      step: the library's read of the global step before the step.
      global_step: the global step's variable.
      batches: the replicas' batches.
      branches: conds that may advance the global step.
      add_waits: makes an op wait for others.
    """
    assigning = updates.assignments(step_ops)
    for op in [*updates.writes_to(assigning, global_step), *branches]:
        add_waits(op, [_read_behind(step)])
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
            add_waits(op, sorted(taken - known, key=lambda other: other.name))
            known = taken
        waited_for[op] = known


def order_accesses(
    new_ops: Sequence[tf.Operation],
    results: Sequence[tf.Operation],
    *,
    add_waits: updates.AddWaits,
) -> None:
    """Orders the reads and writes of each variable that nothing else orders.

    A write waits for the reads and the write before it in the Python code. A read after a write
    sees the value from before it, unless a write that was made later still is behind the read: then
    chance decides. But a read whose value replaces that of its variable, as `power * beta` does,
    waits for the write before, which would be lost; unless very many ops depend on the read.

    Args:
      new_ops: the ops that `model_fn` made, in order of creation.
      results: what runs in each step or is reported from it.
      add_waits: makes an op wait for others.
    """
    if not new_ops:
        return
    made = new_ops[0].graph.get_operations()
    made = made[made.index(new_ops[0]) :]  # Since then; also what waits for branches of v1.
    running = ops_behind(results, set(made))
    own = [op for op in new_ops if op in running]
    assigning = set(updates.assignments(own))
    order = _Order([op for op in made if op in running], assigning, add_waits)
    accesses: dict[Any, _Accesses] = collections.defaultdict(_Accesses)
    for op in own:
        # In order, so that the ops of `ends_of` have the same names in every process.
        resources = [t for t in op.inputs if t.dtype == tf.resource]
        # In a branch or a loop of v1, an op takes a tensor of its own for a handle outside.
        handles = dict.fromkeys(_tf.variable_source(t).ref() for t in resources)
        changed = _changed(op) if op in assigning else []
        for handle in changed:
            order.add_write(op, accesses[handle])
        if is_read(op) or _tf.runs_a_function(op):
            for handle in (handle for handle in handles if handle not in changed):
                order.add_read(op, handle, accesses[handle])


@dataclasses.dataclass
class _Accesses:
    """The ops so far that access a variable.

    Attributes:
      writes: those that write it.
      reads: those that only read it.
      num_waited_for: how many of the reads the last write waits for.
      besides: what the last write waits for, if it is in a branch of v1 control flow: where that
        does not run, only what waits for these itself comes after them.
    """

    writes: list[tf.Operation] = dataclasses.field(default_factory=list)
    reads: list[tf.Operation] = dataclasses.field(default_factory=list)
    num_waited_for: int = 0
    besides: list[tf.Operation] = dataclasses.field(default_factory=list)

    @property
    def ends(self) -> list[tf.Operation]:
        """What to wait for to come after the last write, and all that it waits for."""
        return [*self.writes[-1:], *self.besides]


class _Order:
    """What waits for what in a step, and the control inputs that are added to that.

    They make no cycle. The rank of an op is the place of the last write that is behind it, or that
    it is itself. What waits has no lower rank than what it waits for; control inputs are added to
    ops of a higher rank only, and so leave all ranks as they are. (The reads before a write are
    older than it, and so is what is behind them.) Only a read for an update may wait for a write of
    a higher rank, and has that rank from then on.
    """

    def __init__(
        self,
        ops: Sequence[tf.Operation],
        assigning: set[tf.Operation],
        add_waits: updates.AddWaits,
    ) -> None:
        """Takes the ops of a step, in order of creation, and those of them that assign."""
        self._add_waits = add_waits
        self._place = {op: i for i, op in enumerate(ops)}
        topological = in_order(ops)
        self._before = self._surely_before = _ops_before(self._place, topological, forward_waits_of)
        if any(map(_is_unsure, ops)):
            self._surely_before = _ops_before(self._place, topological, _sure_waits_of)
        self._assigning = assigning
        self._writes = functools.reduce(operator.or_, (1 << self._place[w] for w in assigning), 0)
        self._early: set[tf.Operation] = set()  # Reads that a write made before them waits for.
        self._ends_of = functools.cache(_tf.ends_of)
        self._is_replacing = functools.cache(_is_replacing)

    def add_write(self, write: tf.Operation, so_far: _Accesses) -> None:
        """Makes a write wait for the reads of the variable before it, and for the last write."""
        reads, ends = so_far.reads, so_far.ends
        if ends and all(self._may_precede(end, write) for end in ends):
            waits = [*reads[so_far.num_waited_for :], *ends]
        else:
            waits = [*reads]
        self._connect(write, waits)
        so_far.num_waited_for = len(reads)
        so_far.besides = waits if _tf.is_in_v1_cond(write) else []
        so_far.writes.append(write)

    def add_read(self, read: tf.Operation, handle: Any, so_far: _Accesses) -> None:
        """Orders a read and the writes of the variable before it."""
        so_far.reads.append(read)
        if not so_far.writes:
            return
        ends = so_far.ends
        if all(self._may_follow(read, end) for end in ends) and self._is_for_update(read, handle):
            self._connect(read, ends)
            self._raise_rank(read, ends)
            return
        for write in (write for write in so_far.writes if self._may_precede(read, write)):
            self._connect(write, [read])
            self._early.add(read)
            if not _tf.is_in_v1_cond(write):
                break  # The writes after it wait for it.

    def _may_precede(self, op: tf.Operation, other: tf.Operation) -> bool:
        """Returns whether `other` may be made to wait for `op`.

        A loop of v1 is entered as a whole, and left as a whole, so its ops are left alone.
        """
        return self._rank(op) < self._rank(other) and not any(map(_tf.is_in_v1_loop, (op, other)))

    def _may_follow(self, read: tf.Operation, op: tf.Operation) -> bool:
        """Returns whether a read may be made to wait for an older op, whatever their ranks.

        Of what waits for the read, nothing has been looked at so far, so no write waits for that.
        """
        is_behind = self._before[op] >> self._place[read] & 1
        is_in_loop = any(map(_tf.is_in_v1_loop, (read, op)))
        return not (is_behind or is_in_loop or read in self._early)

    def _raise_rank(self, read: tf.Operation, others: Sequence[tf.Operation]) -> None:
        """Notes that a read, and what waits for it, now waits for other ops."""
        bit = 1 << self._place[read]
        behind = functools.reduce(operator.or_, (self._before[other] for other in others))
        for op in itertools.islice(self._place, self._place[read], None):
            if self._before[op] & bit:
                self._before[op] |= behind

    def _rank(self, op: tf.Operation) -> int:
        return (self._before[op] & self._writes).bit_length()

    def _is_for_update(self, read: tf.Operation, handle: Any) -> bool:
        """Returns whether a value is read to replace it in the variable, and for little else.

        An op such as AssignAdd, or that of an optimizer, has the newest value anyway.
        """

        def users_of(op: tf.Operation) -> Iterable[tf.Operation]:
            users = (user for output in op.outputs for user in output.consumers())
            return () if op in self._assigning else filter(self._place.__contains__, users)

        found = list(itertools.islice(walk([read], users_of), _MAX_OPS_OF_UPDATE + 1))
        if len(found) > _MAX_OPS_OF_UPDATE:
            return False
        writes = (op for op in found if op in self._assigning and self._is_replacing(op))
        return any(handle in _changed(write) for write in writes)

    def _connect(self, op: tf.Operation, others: Sequence[tf.Operation]) -> None:
        """Makes `op` wait for those of `others` that no path orders with it.

        A path through what TensorFlow inlines may be none in the end.
        """
        unordered = [
            other
            for other in dict.fromkeys(others)
            if _is_unsure(other) or not self._surely_before[op] >> self._place[other] & 1
            if not self._before[other] >> self._place[op] & 1
        ]
        self._add_waits(op, [end for other in unordered for end in self._ends_of(other)])


def _is_replacing(op: tf.Operation) -> bool:
    """Returns whether `op` replaces values of a variable, maybe in a branch or a function."""
    return any(inner.type in _REPLACING for inner in (op, *_tf.ops_inside(op)))


def _changed(op: tf.Operation) -> list[Any]:
    """Returns references to the handles, in the outermost graph, of the variables `op` writes."""
    return list(dict.fromkeys(_tf.variable_source(h).ref() for h in _tf.written_handles(op)))


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
    return list(op.control_inputs) if _is_unsure(op) else forward_waits_of(op)


def _is_unsure(op: tf.Operation) -> bool:
    """Returns whether an output of `op` may be there before all of its inputs are.

    TensorFlow replaces some ops; then each output waits only for what it needs. The end of a v1
    cond or loop has one of its inputs.
    """
    return op.type in ("IdentityN", "Merge") or _tf.runs_a_function(op)


def _read_behind(step: tf.Tensor) -> tf.Operation:
    """Returns the op that reads the variable, on the variable's task."""
    op = step.op
    while op.type != "ReadVariableOp" and op.inputs:
        op = op.inputs[0].op
    return op if op.type == "ReadVariableOp" else step.op
