"""What ops wait for only because of the order of a step, and session calls that need no step."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import chain, filterfalse
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import (
    forward_waits_of,
    is_read,
    ops_before,
    waits_of,
    walk,
)

# From what a session call fetches and what it feeds, a function from a tensor or an op to what to
# fetch or feed instead; None if that is the same.
CopiesFor: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Callable[[Any], Any] | None]

# So many of the session calls that hooks have made are remembered.
_MAX_CALLS = 100


@dataclasses.dataclass
class SeparateCall:
    """What a session call runs without some of what it waits for, so as copies.

    Attributes:
      ops: the ops to copy, inputs first.
      control_inputs: those that the copies have, as originals, of the ops that lose some.
      fed: references to the tensors that are fed.
      copies: the copies, by their originals, once they are made.
    """

    ops: Mapping[tf.Operation, None] = dataclasses.field(default_factory=dict)
    control_inputs: Mapping[tf.Operation, list[tf.Operation]] = dataclasses.field(
        default_factory=dict
    )
    fed: Collection[Any] = frozenset()
    copies: dict[tf.Operation, tf.Operation] = dataclasses.field(default_factory=dict)

    def inputs_of(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns the ops that make the inputs of `op`, without those that are fed."""
        return [tensor.op for tensor in op.inputs if tensor.ref() not in self.fed]

    def control_inputs_of(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns what the copy of `op` waits for, as originals."""
        return self.control_inputs.get(op, op.control_inputs)


class Copies:
    """Copies of ops; equal ones are made once, however many session calls need them."""

    def __init__(self) -> None:
        """Begins with none."""
        self._made: dict[Any, tf.Operation] = {}

    def build(
        self, op: tf.Operation, inputs: Sequence[tf.Tensor], waits: Sequence[tf.Operation]
    ) -> tf.Operation:
        """Returns a copy of `op` with these inputs and control inputs, in the default graph."""
        key = (op, tuple(tensor.ref() for tensor in inputs), frozenset(waits))
        if key not in self._made:
            with tf.device(op.device):
                self._made[key] = _tf.copy_op(op, inputs, waits)
        return self._made[key]


class StepWaits:
    """The control inputs that order the ops of a step.

    They make a read of a weight, if the code has it after the `train_op`, wait for the `train_op`.
    A hook may run such a read by itself, to look at the weight between two steps: that must not
    run a step.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self._added: dict[tf.Operation, set[tf.Operation]] = collections.defaultdict(set)
        self._calls: dict[Any, SeparateCall] = {}
        self._copies = Copies()
        self._ends: dict[tuple[tf.Operation, tf.Operation], list[tf.Operation]] = {}
        self._lock = threading.Lock()

    def add(self, op: tf.Operation, others: Iterable[tf.Operation]) -> None:
        """Makes `op` wait for `others`, because of the order of a step."""
        for start, end in _tf.add_control_inputs(op, others):
            self._added[start].add(end)

    def copies_for(self, fetched: Sequence[Any], fed: Sequence[Any]) -> Callable[[Any], Any] | None:
        """Returns a function from ops and tensors to what a session call runs instead.

        Args:
          fetched: the ops and tensors that the call fetches.
          fed: the tensors that it feeds.

        Returns:
          The function; None if the call runs what it is asked for, and if nothing can be added to
          the graph any more.
        """
        call = self.separate_call(fetched, fed)
        if not call.ops or next(iter(call.ops)).graph.finalized:
            return None
        with self._lock:
            if not call.copies:
                call.copies.update(self._build_copies(call))

        def find_copy(value: Any) -> Any:
            if isinstance(value, tf.Operation):
                return call.copies.get(value, value)
            if value.ref() in call.fed or value.op not in call.copies:
                return value
            return call.copies[value.op].outputs[value.value_index]

        return find_copy

    def separate_call(self, fetched: Sequence[Any], fed: Sequence[Any]) -> SeparateCall:
        """Returns what a session call copies to run `fetched` between steps.

        An order between what the call runs anyway holds in it, too.
        """
        tensors = frozenset(tensor.ref() for tensor in fed)
        # A tensor that is fetched and fed needs no op.
        ends = [one for one in fetched if isinstance(one, tf.Operation) or one.ref() not in tensors]
        ops = tuple(dict.fromkeys(getattr(one, "op", one) for one in ends))
        with self._lock:
            if (ops, tensors) not in self._calls:
                if len(self._calls) >= _MAX_CALLS:
                    self._calls.clear()
                self._calls[ops, tensors] = self._plan(ops, SeparateCall(fed=tensors))
            return self._calls[ops, tensors]

    def _plan(self, fetched: Sequence[tf.Operation], call: SeparateCall) -> SeparateCall:
        """Returns the call, with what it copies."""
        running, left_out = self._needed(fetched, call)
        if not left_out or fetched[0].graph.finalized:
            return call
        control_inputs = self._control_inputs_without(left_out, running)

        def waits(op: tf.Operation) -> list[tf.Operation]:
            return [*call.inputs_of(op), *control_inputs.get(op, op.control_inputs)]

        ends = chain.from_iterable(control_inputs.values())
        running |= set(walk(ends, lambda op: filterfalse(running.__contains__, waits(op))))
        ops: dict[tf.Operation, None] = {}
        for op in ops_before(fetched, running.__contains__, waits):
            if op in left_out or not ops.keys().isdisjoint(waits(op)):
                ops[op] = None
        if any(map(_tf.is_in_v1_loop, ops)):  # Cannot be copied.
            return call
        return dataclasses.replace(call, ops=ops, control_inputs=control_inputs)

    def _needed(
        self, fetched: Sequence[tf.Operation], call: SeparateCall
    ) -> tuple[set[tf.Operation], dict[tf.Operation, list[tf.Operation]]]:
        """Returns the ops that the call must run, and which of their control inputs it leaves out.

        Those that change nothing besides need not be left out.
        """

        def own_waits(op: tf.Operation) -> list[tf.Operation]:
            added = self._added.get(op, ())
            return call.inputs_of(op) + [o for o in op.control_inputs if o not in added]

        running = set(walk(fetched, own_waits)) if self._added else set()
        left_out: dict[tf.Operation, list[tf.Operation]] = {}
        for op in running.intersection(self._added):
            for other in self._added[op]:
                besides = _without_effects(other, running)
                if besides is None:
                    left_out.setdefault(op, []).append(other)
                else:
                    running |= besides
        return running, left_out

    def _control_inputs_without(
        self,
        left_out: Mapping[tf.Operation, Sequence[tf.Operation]],
        running: Set[tf.Operation],
    ) -> dict[tf.Operation, list[tf.Operation]]:
        """Returns the control inputs of ops if they do not wait for the ops that are left out.

        Instead, they wait for those `running` ops that the ops left out wait for, and that access a
        variable that the call changes and they access, too.
        """
        control_inputs = {
            op: [other for other in op.control_inputs if other not in others]
            for op, others in left_out.items()
        }
        changed = set().union(*(_variables_of(op) for op in running if _has_effect(op)))
        if not changed:
            return control_inputs
        accessing = (op for op in running if is_read(op) or _has_effect(op))
        ordered = sorted(accessing, key=operator.attrgetter("name"))
        bits = {op: 1 << i for i, op in enumerate(ordered)}
        behind: dict[tf.Operation, int] = {}
        ends = [end for others in left_out.values() for end in others]
        for op in ops_before(ends, lambda op: True, forward_waits_of):
            sets = (behind.get(other, 0) for other in forward_waits_of(op))
            behind[op] = functools.reduce(operator.or_, sets, bits.get(op, 0))
        for op, others in left_out.items():
            before = functools.reduce(operator.or_, (behind[other] for other in others))
            shared = changed & _variables_of(op)
            for other in (other for other in ordered if bits[other] & before):
                if not shared.isdisjoint(_variables_of(other)):
                    control_inputs[op] += self._ends_for(op, other)
        return control_inputs

    def _ends_for(self, op: tf.Operation, other: tf.Operation) -> list[tf.Operation]:
        """Returns what `op` waits for to run after `other`, even if that is in a branch of v1."""
        if (op, other) not in self._ends:
            ends = _tf.ends_of(other)
            self._ends[op, other] = [_tf.after_v1_branches(end, op) for end in ends]
        return self._ends[op, other]

    def _build_copies(self, call: SeparateCall) -> dict[tf.Operation, tf.Operation]:
        copies: dict[tf.Operation, tf.Operation] = {}
        graph = next(iter(call.ops)).graph
        with graph.as_default(), tf.control_dependencies(None), tf.compat.v1.name_scope(None):
            for op in call.ops:
                inputs = [
                    copies[t.op].outputs[t.value_index]
                    if t.op in copies and t.ref() not in call.fed
                    else t
                    for t in op.inputs
                ]
                waits = [copies.get(other, other) for other in call.control_inputs_of(op)]
                copies[op] = self._copies.build(op, inputs, waits)
        return copies


def _variables_of(op: tf.Operation) -> set[Any]:
    """Returns references to the handles, in the outermost graph, that an op takes."""
    handles = (tensor for tensor in op.inputs if tensor.dtype == tf.resource)
    return {_tf.variable_source(handle).ref() for handle in handles}


def _without_effects(end: tf.Operation, running: Set[tf.Operation]) -> set[tf.Operation] | None:
    """Returns what runs for `end` besides the `running` ops; None if that changes anything."""
    besides = set()
    for op in walk({end} - running, lambda op: filterfalse(running.__contains__, waits_of(op))):
        if _has_effect(op):
            return None
        besides.add(op)
    return besides


def _has_effect(op: tf.Operation) -> bool:
    """Returns whether to run `op` once more may change anything."""
    if not _tf.is_stateful(op.type) or is_read(op):
        return False
    return not op.outputs or any(output.dtype != tf.resource for output in op.outputs)
