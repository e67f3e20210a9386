"""What ops wait for only because of the order of a step, and session calls that need no step."""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import filterfalse
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

# From the ops that a session call fetches, a function from a tensor or an op to what it runs or
# feeds instead.
CopiesFor: TypeAlias = Callable[[Sequence[tf.Operation]], Callable[[Any], Any]]


@dataclasses.dataclass(frozen=True)
class SeparateCall:
    """Ops that a session call runs without some of what they wait for, so as copies.

    Attributes:
      ops: the ops to copy, inputs first.
      control_inputs: those that the copies have, as originals, of the ops that lose some.
      copies: the copies made so far.
    """

    ops: Mapping[tf.Operation, None] = dataclasses.field(default_factory=dict)
    control_inputs: Mapping[tf.Operation, list[tf.Operation]] = dataclasses.field(
        default_factory=dict
    )
    copies: dict[tf.Operation, tf.Operation] = dataclasses.field(default_factory=dict)

    def control_inputs_of(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns what the copy of `op` waits for, as originals."""
        return self.control_inputs.get(op, op.control_inputs)


class StepWaits:
    """The control inputs that order the ops of a step.

    They make a read of a weight, if the code has it after the `train_op`, wait for the `train_op`.
    A hook may run such a read by itself, to look at the weight between two steps: that must not
    run a step.
    """

    def __init__(self) -> None:
        """Begins with none."""
        self._added: dict[tf.Operation, set[tf.Operation]] = collections.defaultdict(set)
        self._calls: dict[tuple[tf.Operation, ...], SeparateCall] = {}
        self._as_asked = SeparateCall()  # A call that leaves nothing out.
        self._lock = threading.Lock()

    def add(self, op: tf.Operation, others: Iterable[tf.Operation]) -> None:
        """Makes `op` wait for `others`, because of the order of a step."""
        for start, end in _tf.add_control_inputs(op, others):
            self._added[start].add(end)

    def separate_call(self, fetched: Iterable[tf.Operation]) -> SeparateCall:
        """Returns what a session call copies to run `fetched` between steps.

        An order between what the call runs anyway holds in it, too.
        """
        key = tuple(dict.fromkeys(fetched))
        if key not in self._calls:
            self._calls[key] = self._plan(key)
        return self._calls[key]

    def copies_for(self, fetched: Sequence[tf.Operation]) -> Callable[[Any], Any]:
        """Returns a function from ops and tensors to what a session call runs or feeds instead.

        Args:
          fetched: the ops that the call runs.
        """
        with self._lock:
            call = self.separate_call(fetched)
            if len(call.copies) < len(call.ops):
                _build_copies(call)

        def find_copy(value: Any) -> Any:
            is_op = isinstance(value, tf.Operation)
            copy = call.copies.get(value if is_op else value.op)
            if copy is None:
                return value
            return copy if is_op else copy.outputs[value.value_index]

        return find_copy

    def _plan(self, fetched: Sequence[tf.Operation]) -> SeparateCall:
        running = set(walk(fetched, self._own_waits_of))
        left_out: dict[tf.Operation, list[tf.Operation]] = {}
        for op in running.intersection(self._added):
            for other in self._added[op]:
                besides = _without_effects(other, running)
                if besides is None:
                    left_out.setdefault(op, []).append(other)
                else:
                    running |= besides
        if not left_out:
            return self._as_asked
        control_inputs = _control_inputs_without(left_out, running)

        def waits(op: tf.Operation) -> list[tf.Operation]:
            return forward_waits_of(op) + control_inputs.get(op, [])

        ops: dict[tf.Operation, None] = {}
        for op in ops_before(fetched, running.__contains__, waits):
            if op in left_out or not ops.keys().isdisjoint(waits(op)):
                ops[op] = None
        if any(map(_tf.is_in_v1_loop, ops)):  # Cannot be copied.
            return self._as_asked
        return SeparateCall(ops, control_inputs)

    def _own_waits_of(self, op: tf.Operation) -> list[tf.Operation]:
        """Returns what `op` waits for whether or not it is in a step."""
        added = self._added.get(op)
        return waits_of(op) if added is None else [o for o in waits_of(op) if o not in added]


def _build_copies(call: SeparateCall) -> None:
    graph = next(iter(call.ops)).graph
    copies = call.copies
    with graph.as_default(), tf.control_dependencies(None), tf.compat.v1.name_scope(None):
        for op in call.ops:
            inputs = [
                copies[t.op].outputs[t.value_index] if t.op in copies else t for t in op.inputs
            ]
            waits = [copies.get(other, other) for other in call.control_inputs_of(op)]
            with tf.device(op.device):
                copies[op] = _tf.copy_op(op, inputs, waits)


def _control_inputs_without(
    left_out: Mapping[tf.Operation, Sequence[tf.Operation]], running: Set[tf.Operation]
) -> dict[tf.Operation, list[tf.Operation]]:
    """Returns the control inputs of ops if they do not wait for the ops that are left out.

    Instead, they wait for those of the `running` ops that the ops left out wait for.
    """
    # Placeholders, constants and handles need not be waited for.
    ordered = [op for op in running if op.inputs or _has_effect(op)]
    bits = {op: 1 << i for i, op in enumerate(ordered)}
    behind: dict[tf.Operation, int] = {}
    ends = [end for others in left_out.values() for end in others]
    for op in ops_before(ends, lambda op: op not in running, forward_waits_of):
        sets = (bits.get(other, behind.get(other, 0)) for other in forward_waits_of(op))
        behind[op] = functools.reduce(operator.or_, sets, 0)
    control_inputs = {}
    for op, others in left_out.items():
        before = functools.reduce(operator.or_, (behind[other] for other in others))
        kept = [other for other in op.control_inputs if other not in others]
        control_inputs[op] = kept + [other for other, bit in bits.items() if bit & before]
    return control_inputs


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
