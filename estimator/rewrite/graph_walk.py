"""Walks over graphs: which ops run before others, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> list[Any]:
    """Returns the nodes of a graph and of its functions."""
    functions = graph_def.library.function
    return [*graph_def.node, *(node for function in functions for node in function.node_def)]


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
    ends: Iterable[tf.Operation | tf.Tensor],
    follow: Callable[[tf.Operation], bool],
    behind: Callable[[tf.Operation], Iterable[tf.Operation]] = inputs_of,
) -> list[tf.Operation]:
    """Returns the ops that compute `ends`, as far back as `follow` accepts; inputs first.

    In a loop of v1 control flow, which is a cycle, no order has all inputs first.

    Args:
      ends: the ops and tensors to start from.
      follow: whether to return an op and look behind it.
      behind: returns the ops behind an op; `waits_of` follows control inputs as well.
    """
    found: dict[tf.Operation, None] = {}
    opened: set[tf.Operation] = set()
    stack = [(getattr(end, "op", end), False) for end in ends]
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


def in_order(ops: Collection[tf.Operation]) -> list[tf.Operation]:
    """Sorts ops by `forward_waits_of`, as the order of creation is not always one."""
    return ops_before(ops, set(ops).__contains__, forward_waits_of)


def forward_waits_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that `op` waits for, without the cycle of a `tf.while_loop` of v1.

    The first iteration of such a loop waits for no other, and its exits wait for the last one.
    """
    if closes_a_loop(op):
        return []
    waits = waits_of(op)
    if op.type == "Exit":
        merge = op.inputs[0].op.inputs[0].op
        for end in filter(closes_a_loop, inputs_of(merge)):
            waits += waits_of(end)
    return waits


def is_read(op: tf.Operation) -> bool:
    """Returns whether `op` itself reads a variable, or rows of one."""
    return op.type.startswith(("ReadVariableOp", "ResourceGather"))


def closes_a_loop(op: tf.Operation) -> bool:
    """Returns whether `op` ends an iteration of a `tf.while_loop` of v1 control flow."""
    return op.type == "NextIteration"


def function_nodes(graph: tf.Graph) -> dict[str, Sequence[tf.compat.v1.NodeDef]]:
    """Returns the nodes of each function of a graph, by the function's name."""
    functions = graph.as_graph_def().library.function
    return {function.signature.name: function.node_def for function in functions}


def nodes_inside(
    node: tf.compat.v1.NodeDef,
    functions: Callable[[], Mapping[str, Sequence[tf.compat.v1.NodeDef]]],
) -> Iterator[tf.compat.v1.NodeDef]:
    """Yields a node and those of the functions that it calls, directly or through others.

    Args:
      node: the node.
      functions: returns `function_nodes` of its graph, which takes long; only called if needed.
    """
    yield node
    seen: set[str] = set()
    left = _functions_called(node)
    while left:
        name = left.pop()
        seen.add(name)
        for inner in functions().get(name, ()):
            yield inner
            left |= _functions_called(inner) - seen


def _functions_called(node: tf.compat.v1.NodeDef) -> set[str]:
    values = node.attr.values()
    functions = [f for value in values for f in [value.func, *value.list.func]]
    return {function.name for function in functions if function.name}
