"""Which ops run before others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import tensorflow as tf


def waits_of(op: tf.Operation) -> list[tf.Operation]:
    """What runs before `op`: what it reads, and what else it waits for."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def ops_behind(
    ops: Iterable[tf.Operation], among: Collection[tf.Operation] | None = None
) -> dict[tf.Operation, None]:
    """What runs when `ops` run, themselves included, in the order it was found.

    Args:
      ops: where to begin.
      among: a set: only what is in it counts, and is looked behind. None is every op.
    """
    found = {op: None for op in ops if among is None or op in among}
    stack = list(found)
    while stack:
        for other in waits_of(stack.pop()):
            if other not in found and (among is None or other in among):
                found[other] = None
                stack.append(other)
    return found


def in_order(ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The ops, each after those of them that it waits for: not always as they were made."""
    remaining, ordered = set(ops), []
    stack = list(reversed(ops))
    while stack:
        op = stack[-1]
        ahead = [other for other in waits_of(op) if other in remaining] if op in remaining else []
        if ahead and not _closes_a_loop(op):
            stack += ahead
        else:
            stack.pop()
            if op in remaining:
                remaining.remove(op)
                ordered.append(op)
    return ordered


def _closes_a_loop(op: tf.Operation) -> bool:
    return op.type == "NextIteration"
