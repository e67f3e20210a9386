"""The initializers and regularizers of `tf.contrib.layers`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1
Regularizer = Callable[[Any], Any]


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = tf.float32
) -> Any:
    """Makes Glorot's initializer."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = tf.float32,
) -> Any:
    """Makes an initializer that scales by the number of inputs; by default, He's."""
    kind = "uniform" if uniform else "truncated_normal"
    return _V1.variance_scaling_initializer(factor, mode.lower(), kind, seed, dtype)


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Returns the function scale * sum(|weights|)."""
    return _scaled("scale", scale, _l1_norm, scope or "l1_regularizer")


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Returns the function scale * sum(weights^2) / 2."""
    return _scaled("scale", scale, tf.nn.l2_loss, scope or "l2_regularizer")


def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Regularizer:
    """Returns the sum of an `l1_regularizer` and an `l2_regularizer`."""
    l1 = _scaled("scale_l1", scale_l1, _l1_norm, "l1_regularizer")
    l2 = _scaled("scale_l2", scale_l2, tf.nn.l2_loss, "l2_regularizer")
    return sum_regularizer([l1, l2], scope or "l1_l2_regularizer")


def sum_regularizer(regularizers: Sequence[Regularizer], scope: str | None = None) -> Regularizer:
    """Returns the sum of several regularizers."""

    def total(weights: Any) -> Any:
        with tf.name_scope(scope or "sum_regularizer"):
            values = [one(weights) for one in regularizers if one is not None]
            values = [value for value in values if value is not None]
            return tf.add_n(values) if values else None

    return total


def apply_regularization(regularizer: Regularizer, weights_list: Any = None) -> tf.Tensor:
    """Returns the sum over the weights, and adds its parts to the REGULARIZATION_LOSSES.

    Args:
      regularizer: applied to each of the weights.
      weights_list: by default, all in the collection WEIGHTS.
    """
    keys = _V1.GraphKeys
    weights = _V1.get_collection(keys.WEIGHTS) if weights_list is None else weights_list
    losses = [regularizer(one) for one in weights]
    losses = [loss for loss in losses if loss is not None]
    for loss in losses:
        _V1.add_to_collection(keys.REGULARIZATION_LOSSES, loss)
    return tf.add_n(losses) if losses else tf.constant(0.0)


def _l1_norm(weights: Any) -> Any:
    return tf.reduce_sum(tf.abs(weights))


def _scaled(argument: str, scale: Any, norm: Regularizer, scope: str) -> Regularizer:
    """Returns the function scale * norm(weights), or one that returns None if the scale is 0.

    Raises:
      ValueError: the scale is a number, but no float, or negative.
    """
    is_number = not tf.is_tensor(scale)
    if is_number and (isinstance(scale, numbers.Integral) or scale < 0):
        raise ValueError(
            f"`{argument}` ({scale!r}) must be a float that is not negative, or a tensor."
        )

    def regularizer(weights: Any) -> Any:
        with tf.name_scope(scope):
            value = norm(weights)
            return tf.multiply(tf.cast(scale, value.dtype), value)

    return (lambda weights: None) if is_number and scale == 0 else regularizer
