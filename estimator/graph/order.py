"""In which order ops run."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def waits_of(op: tf.Operation) -> list[tf.Operation]:
    """What runs before `op`: what it reads, and what else it waits for."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


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
