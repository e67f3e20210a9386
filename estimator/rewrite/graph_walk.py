"""Walks over graphs: which ops run before others, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import tensorflow as tf


def waits_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that `op` waits for: those of its inputs and its control inputs."""
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def inputs_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops of the inputs of `op`."""
    return [tensor.op for tensor in op.inputs]


def walk(
    ops: Iterable[tf.Operation], behind: Callable[[tf.Operation], Iterable[tf.Operation]] = waits_of
) -> Iterator[tf.Operation]:
    """Yields `ops` and all ops behind them, each once, as soon as it is found.

    Args:
      ops: the ops to start from.
      behind: returns the ops behind an op, to walk to next; empty to go no further. Called after
        its op was yielded.
    """
    found = dict.fromkeys(ops)
    stack = list(found)
    yield from stack
    while stack:
        for other in behind(stack.pop()):
            if other not in found:
                found[other] = None
                stack.append(other)
                yield other


def ops_behind(
    ops: Iterable[tf.Operation], among: Collection[tf.Operation] | None = None
) -> dict[tf.Operation, None]:
    """Returns all ops that run when `ops` run, themselves included, in the order of discovery.

    Args:
      ops: the ops to start from.
      among: a set that the walk does not leave; None for all ops.
    """
    if among is None:
        return dict.fromkeys(walk(ops))
    inside = among.__contains__
    return dict.fromkeys(walk(filter(inside, ops), lambda op: filter(inside, waits_of(op))))


def ops_of_type(last: tf.Operation, kind: str) -> list[tf.Operation]:
    """Returns the ops of a type that `last` waits for, without looking behind those."""
    behind = walk([last], lambda op: [] if op.type == kind else waits_of(op))
    return [op for op in behind if op.type == kind]


def ops_before(
    tensors: Sequence[tf.Tensor],
    follow: Callable[[tf.Operation], bool],
    behind: Callable[[tf.Operation], Iterable[tf.Operation]] = inputs_of,
) -> list[tf.Operation]:
    """Returns the ops that compute `tensors`, as far back as `follow` accepts; inputs first.

    In a loop of v1 control flow, which is a cycle, no order has all inputs first.

    Args:
      tensors: the tensors to start from.
      follow: whether to return an op and look behind it.
      behind: returns the ops behind an op; `waits_of` follows control inputs as well.
    """
    found: dict[tf.Operation, None] = {}
    opened: set[tf.Operation] = set()
    stack = [(tensor.op, False) for tensor in tensors]
    while stack:
        op, are_inputs_done = stack.pop()
        if op in found or not follow(op):
            continue
        if are_inputs_done:
            found[op] = None
        elif op not in opened:
            opened.add(op)
            stack.append((op, True))
            stack.extend((other, False) for other in behind(op))
    return list(found)


def in_order(ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Sorts ops topologically, as the order of creation is not always one."""
    remaining, ordered = set(ops), []
    stack = list(reversed(ops))
    while stack:
        op = stack[-1]
        ahead = [other for other in waits_of(op) if other in remaining] if op in remaining else []
        if ahead and not closes_a_loop(op):
            stack += ahead
        else:
            stack.pop()
            if op in remaining:
                remaining.remove(op)
                ordered.append(op)
    return ordered


def closes_a_loop(op: tf.Operation) -> bool:
    """Returns whether `op` ends a turn of a `tf.while_loop` of v1 control flow."""
    return op.type == "NextIteration"


def functions_called(node: tf.compat.v1.NodeDef) -> set[str]:
    """Returns the names of the functions that a node calls."""
    values = node.attr.values()
    functions = [f for value in values for f in [value.func, *value.list.func]]
    return {function.name for function in functions if function.name}
