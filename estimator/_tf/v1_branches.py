"""Conds and loops of v1 control flow, which consist of Switch and Merge ops.

An op in a branch that is not taken never runs, and neither does an op that waits for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


def v1_branch_of(graph: tf.Graph) -> Any:
    """Returns the innermost cond or loop of v1 control flow that new ops are in (2.16 to 2.21)."""
    return next(_enclosing(graph._get_control_flow_context()), None)


def is_in_v1_loop(op: tf.Operation) -> bool:
    """Returns whether `op` is in a loop of v1 control flow. WhileContext, 2.16 to 2.21."""
    return any(context.IsWhileContext() for context in _enclosing(op._get_control_flow_context()))


def is_in_v1_cond(op: tf.Operation) -> bool:
    """Returns whether `op` is in a branch of v1 control flow. CondContext, 2.16 to 2.21."""
    return any(context.IsCondContext() for context in _enclosing(op._get_control_flow_context()))


def after_v1_branches(op: tf.Operation, other: tf.Operation | None = None) -> tf.Operation:
    """Returns an op that `other` can wait for to run after `op`, even if its branch is not taken.

    ControlFlowContext, CondContext.pred and branch, WhileContext.loop_exits, and
    Graph._set_control_flow_context, 2.16 to 2.21.

    Args:
      op: an op that may be in a cond or a loop of v1 control flow.
      other: the op that is to wait; None for one outside of all branches that makes `op` run.

    Raises:
      ValueError: `other` is None, and `op` is in a v1 loop, which runs what its results need.
    """
    around = [] if other is None else list(_enclosing(other._get_control_flow_context()))
    contexts = _enclosing(op._get_control_flow_context())
    inside = list(itertools.takewhile(lambda context: context not in around, contexts))
    outermost_loop = next((c for c in reversed(inside) if c.IsWhileContext()), None)
    if outermost_loop is not None:
        if other is None:
            raise ValueError(
                f"{op.name!r} assigns to a variable in a `tf.while_loop` of v1 control flow, and "
                "nothing outside the loop can make it run. Call "
                "`tf.compat.v1.enable_control_flow_v2()` at the start of the program, after "
                "`disable_v2_behavior()`."
            )
        op = _after_loop(op, outermost_loop)
        inside = inside[inside.index(outermost_loop) + 1 :]
    for context in inside:
        op = _after_cond(op, context)
    return op


def starts_of_v1_loop(op: tf.Operation, other: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that can wait for `other`, and that `op` waits for or is.

    An op in a loop of v1 control flow cannot wait for an op outside; what enters the loop can.
    WhileContext.loop_enters, 2.16 to 2.21.
    """
    starts = [op]
    around = list(_enclosing(other._get_control_flow_context()))
    for context in _enclosing(op._get_control_flow_context()):
        if context not in around and context.IsWhileContext():
            starts = [tensor.op for tensor in context.loop_enters]
    return starts


def _after_cond(op: tf.Operation, context: Any) -> tf.Operation:
    """Returns an op outside a cond that runs after `op`, or at once if its branch is not taken."""
    graph = op.graph
    with graph.as_default(), graph.control_dependencies(None), tf.device(op.device):
        graph._set_control_flow_context(context.outer_context)
        switch = tf.raw_ops.Switch(data=context.pred, pred=context.pred)
        taken, not_taken = switch.output_true, switch.output_false
        if context.branch == 0:
            taken, not_taken = not_taken, taken
        run = tf.identity(taken)
        run.op._add_control_inputs([op])
        return tf.raw_ops.Merge(inputs=[run, not_taken]).output.op


def _after_loop(op: tf.Operation, context: Any) -> tf.Operation:
    """Returns an op outside a loop that runs after the loop, of which `op` is a part."""
    graph = op.graph
    with graph.as_default(), graph.control_dependencies(None), tf.device(op.device):
        graph._set_control_flow_context(context.outer_context)
        with tf.control_dependencies([tensor.op for tensor in context.loop_exits]):
            return tf.no_op()


def _enclosing(context: Any) -> Iterator[Any]:
    """Yields the conds and loops that a context is in, the innermost first."""
    while context is not None:
        if context.IsCondContext() or context.IsWhileContext():
            yield context
        context = context.outer_context
