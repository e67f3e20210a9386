"""The layers of `tf.contrib.layers` that normalize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.compat.contrib.contrib_layer_parts import activate_and_collect, make_variables

_V1 = tf.compat.v1
_Function = Callable[..., Any]
_ZEROS, _ONES = _V1.zeros_initializer(), _V1.ones_initializer()
_INITIALIZERS = {"beta": _ZEROS, "gamma": _ONES, "moving_mean": _ZEROS, "moving_variance": _ONES}
_MOVING = ("moving_mean", "moving_variance")


def layer_norm(
    inputs: tf.Tensor,
    center: bool = True,
    scale: bool = True,
    activation_fn: _Function | None = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: Any = None,
) -> tf.Tensor:
    """Normalizes each example over the axes from `begin_norm_axis` on.

    The variables `beta` and `gamma`, in the scope "LayerNorm", have the shape of the axes from
    `begin_params_axis` on.
    """
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    shape = inputs.shape.as_list()[begin_params_axis % rank :]
    with _V1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as own_scope:
        make = make_variables(inputs.dtype, variables_collections, trainable)
        beta = make("beta", shape, _ZEROS) if center else None
        gamma = make("gamma", shape, _ONES) if scale else None
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        normal = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        normal = tf.ensure_shape(normal, inputs.shape)
        return activate_and_collect(normal, activation_fn, outputs_collections, own_scope)


def batch_norm(
    inputs: tf.Tensor,
    decay: float = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: _Function | None = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: str | None = _V1.GraphKeys.UPDATE_OPS,
    is_training: bool = True,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    batch_weights: None = None,
    fused: bool | None = None,
    data_format: str = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: Any = None,
) -> tf.Tensor:
    """Normalizes over all axes but that of the channels; see `tf.layers.batch_normalization`.

    Args:
      updates_collections: None updates the moving statistics in place; else the ops that do are in
        this collection.
      is_training: a Python bool.
      batch_weights: must be None.
      fused: unless it is false, the moving variance of inputs of 2 or 4 dimensions is that of
        n / (n - 1) times the variance of the n values, as the fused op computed it.
      zero_debias_moving_mean: must be false.

    Raises:
      NotImplementedError: `batch_weights`, `zero_debias_moving_mean`, or a tensor `is_training`.
    """
    if batch_weights is not None or zero_debias_moving_mean or tf.is_tensor(is_training):
        raise NotImplementedError(
            "tf.contrib.layers.batch_norm takes no `batch_weights`, no `zero_debias_moving_mean` "
            "and no tensor as `is_training` here. Use tf.layers.batch_normalization, or, with "
            "tf-slim, tf.contrib.slim.batch_norm."
        )
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    axis = rank - 1 if data_format == "NHWC" else 1
    with _V1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as own_scope:
        wide = inputs if inputs.dtype.size > 2 else tf.cast(inputs, tf.float32)
        size = [wide.shape.as_list()[axis]]
        init = {**_INITIALIZERS, **(param_initializers or {})}
        rules = param_regularizers or {}
        make = make_variables(wide.dtype, variables_collections, trainable)
        beta = make("beta", size, init["beta"], rules.get("beta")) if center else None
        gamma = make("gamma", size, init["gamma"], rules.get("gamma")) if scale else None
        make_moving = make_variables(wide.dtype, variables_collections, trainable=False)
        moving = [make_moving(name, size, init[name]) for name in _MOVING]
        mean, variance = moving
        if is_training:
            mean, variance = tf.nn.moments(wide, [i for i in range(rank) if i != axis])
            is_fused = fused is not False and rank in (2, 4)
            target = variance * _bessels_correction(wide, axis) if is_fused else variance
            updates = [
                _V1.assign_sub(variable, (variable - value) * (1 - decay))
                for variable, value in zip(moving, (mean, target), strict=True)
            ]
            if updates_collections is None:
                with tf.control_dependencies(updates):
                    mean, variance = tf.identity(mean), tf.identity(variance)
            else:
                for op in updates:
                    _V1.add_to_collections(updates_collections, op)
        shape = [-1 if i == axis else 1 for i in range(rank)]
        parts = [None if v is None else tf.reshape(v, shape) for v in (mean, variance, beta, gamma)]
        normal = tf.cast(tf.nn.batch_normalization(wide, *parts, epsilon), inputs.dtype)
        return activate_and_collect(normal, activation_fn, outputs_collections, own_scope)


def _bessels_correction(inputs: tf.Tensor, axis: int) -> tf.Tensor:
    """Returns n / (n - 1) for the number of values of a channel."""
    sizes = tf.shape(inputs, tf.int64)
    number = tf.cast(tf.size(inputs, tf.int64) // sizes[axis], inputs.dtype)
    return number / tf.maximum(number - 1, 1)
