"""The `train_op` of a head: one step of an optimizer, or what the user's function returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError, check_callable

V1 = tf.compat.v1

# Attributes of a Keras optimizer that changes gradients before it applies them.
_CHANGES_GRADIENTS = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_transformers")


def build_train_op(
    loss: tf.Tensor,
    optimizer: Any,
    trainable_variables: Sequence[Any] | None,
    train_op_fn: Callable[[tf.Tensor], Any] | None,
    update_ops: Sequence[Any] | None,
) -> Any:
    """Returns an op that takes one step to minimize `loss`, and runs the `update_ops`.

    The arguments are those of `Head.create_estimator_spec`.
    """
    if (optimizer is None) == (train_op_fn is None):
        given = "neither is given" if optimizer is None else "both are given"
        raise ValueError(
            f"Training needs exactly one of `optimizer` and `train_op_fn`; {given}. Pass an "
            "optimizer, or a function that takes the loss and returns the `train_op`."
        )
    check_callable("train_op_fn", train_op_fn)
    if train_op_fn is not None:
        train_op = train_op_fn(loss)
    else:
        _check_optimizer(optimizer)
        variables = _checked_variables(trainable_variables)
        train_op = build_minimize(loss, optimizer, variables, V1.train.get_or_create_global_step())
    return train_op if not update_ops else tf.group(train_op, *update_ops)


def build_minimize(
    loss: tf.Tensor,
    optimizer: Any,
    variables: Sequence[Any],
    global_step: tf.Variable | None,
    *,
    adds_slices: bool = False,
) -> tf.Operation:
    """Returns an op that takes one step of an optimizer on these variables.

    Args:
      loss: the loss to minimize.
      optimizer: a v1, Keras 3 or tf-keras optimizer.
      variables: the variables.
      global_step: is incremented, if it is given.
      adds_slices: whether a Keras optimizer that changes gradients gets one slice a row, the sum of
        all. Otherwise what clips them clips each slice by itself.
    """
    variables = [_tf.variable_of(variable) for variable in variables]
    if isinstance(optimizer, V1.train.Optimizer):
        return optimizer.minimize(loss, global_step=global_step, var_list=variables)
    gradients = tf.gradients(loss, variables)
    if adds_slices and any(getattr(optimizer, name, None) for name in _CHANGES_GRADIENTS):
        gradients = list(map(_with_one_slice_a_row, gradients))
    applied = optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
    ops = [applied] if isinstance(applied, tf.Operation | tf.Tensor) else []
    # A tf-keras optimizer may count its steps in the global step.
    if global_step is not None and optimizer.iterations is not global_step:
        ops.append(global_step.assign_add(1))
    return tf.group(*ops)


def _with_one_slice_a_row(gradient: Any) -> Any:
    """Adds up the slices of a gradient that are of the same row."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    slices = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(slices, rows, gradient.dense_shape)


def _check_optimizer(optimizer: Any) -> None:
    if not callable(getattr(optimizer, "apply_gradients", None)):
        raise WrongTypeError(
            f"`optimizer` ({optimizer!r}) must be a Keras optimizer or a "
            "tf.compat.v1.train.Optimizer. For anything else, pass `train_op_fn`."
        )


def _checked_variables(variables: Sequence[Any] | None) -> Sequence[Any]:
    if variables is None:
        variables, empty = V1.trainable_variables(), "The graph has no trainable variables"
    else:
        empty = "`trainable_variables` is empty"
    if not variables:
        raise ValueError(
            f"{empty}: there is nothing to train. Make the loss depend on a trainable variable, "
            "and pass it, or None for all."
        )
    return variables
