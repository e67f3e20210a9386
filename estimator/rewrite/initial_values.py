"""Handles initial values that depend on variables that may not be initialized yet.

All variables are initialized in one session call, in any order. In eager code, a variable that
another one is created from already has its value; an example is the moving average that a tf-keras
optimizer keeps of a weight.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_before


def without_order(value: Any) -> Any:
    """Returns an initial value that works whether or not the variables it reads are initialized.

    Args:
      value: a variable or a tensor of the graph around the loop; anything else is returned as it
        is.
    """
    if isinstance(value, tf.Variable):
        return functools.partial(_tf.initialized_value, _tf.copies(value)[0])
    if not tf.is_tensor(value) or not hasattr(value, "op"):
        return value
    ops = ops_before([value], lambda op: not _is_handle(op))
    reads = {op: op.inputs[0].ref() for op in ops if op.type == "ReadVariableOp"}
    if not reads:
        return value
    by_handle = _tf.variables_by_handle()
    copies: dict[tf.Tensor, tf.Tensor] = {}
    with tf.init_scope():
        for op in ops:
            if reads.get(op) in by_handle:
                copies[op.outputs[0].ref()] = _tf.initialized_value(by_handle[reads[op]])
            elif any(tensor.ref() in copies for tensor in op.inputs):
                inputs = [copies.get(tensor.ref(), tensor) for tensor in op.inputs]
                new = _tf.copy_op(op, inputs).outputs
                copies.update(zip((t.ref() for t in op.outputs), new, strict=True))
        return copies.get(value.ref(), value)


def lifted(
    value: tf.Tensor,
    ops_before: Iterable[tf.Operation],
    copies: dict[tf.Operation, tf.Operation],
) -> tf.Tensor:
    """Rebuilds an initial value, made inside a loop's body, in the graph around the loop.

    Args:
      value: the initial value.
      ops_before: the ops of the body before the model: those of the loop and the batch.
      copies: the copies that other initial values already have, by their originals; those that
        are made are added. Two variables that start from one random tensor are equal.

    Raises:
      ValueError: it depends on what has a value only while a step runs, such as the batch.
    """
    of_step = {op for op in ops_before if op.type != "Const"}

    def lift(tensor: tf.Tensor) -> tf.Tensor:
        source = _tf.capture_source(tensor)
        if not _tf.is_loop_body(source.graph):
            return source
        op = source.op
        if op in of_step:
            raise ValueError(
                f"The initial value {value.name!r} of a variable depends on {op.name!r}, which has "
                "a value only while a step runs. Make it of variables and constants, or train with "
                "`iterations_per_loop=1`."
            )
        if op not in copies:
            inputs = [lift(tensor) for tensor in op.inputs]
            with tf.device(op.device):
                copies[op] = _tf.copy_op(op, inputs)
        return copies[op].outputs[source.value_index]

    with tf.init_scope():
        return lift(value)


def _is_handle(op: tf.Operation) -> bool:
    return any(output.dtype == tf.resource for output in op.outputs)
