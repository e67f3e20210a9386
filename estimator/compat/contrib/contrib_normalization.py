"""The layers of `tf.contrib.layers` that normalize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.compat.contrib.contrib_layer_parts import activate_and_collect, make_variables

_V1 = tf.compat.v1
_Function = Callable[..., Any]


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
    with _V1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        make = make_variables(inputs.dtype, variables_collections, trainable)
        beta = make("beta", shape, _V1.zeros_initializer()) if center else None
        gamma = make("gamma", shape, _V1.ones_initializer()) if scale else None
        axes = list(range(begin_norm_axis % rank, rank))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        normal = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        normal = tf.ensure_shape(normal, inputs.shape)
        return activate_and_collect(normal, activation_fn, outputs_collections)


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
      fused: no effect.
      zero_debias_moving_mean: must be false.

    Raises:
      NotImplementedError: `batch_weights`, `zero_debias_moving_mean`, or a tensor `is_training`.
    """
    del fused
    if batch_weights is not None or zero_debias_moving_mean or tf.is_tensor(is_training):
        raise NotImplementedError(
            "tf.contrib.layers.batch_norm takes no `batch_weights`, no `zero_debias_moving_mean` "
            "and no tensor as `is_training` here. Use tf.layers.batch_normalization."
        )
    inputs = tf.convert_to_tensor(inputs)
    rank = inputs.shape.rank
    axis = rank - 1 if data_format == "NHWC" else 1
    channels = inputs.shape.as_list()[axis]
    wide = [channels if i == axis else 1 for i in range(rank)]
    init = {"beta": _V1.zeros_initializer(), "gamma": _V1.ones_initializer()}
    init |= {"moving_mean": init["beta"], "moving_variance": init["gamma"]}
    init |= param_initializers or {}
    rules = param_regularizers or {}
    with _V1.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse):
        make = make_variables(tf.float32, variables_collections, trainable)
        beta = make("beta", [channels], init["beta"], rules.get("beta")) if center else None
        gamma = make("gamma", [channels], init["gamma"], rules.get("gamma")) if scale else None
        keep = make_variables(tf.float32, variables_collections, trainable=False)
        moving = {name: keep(name, [channels], init[name]) for name in _MOVING}
        if is_training:
            axes = [i for i in range(rank) if i != axis]
            mean, variance = tf.nn.moments(tf.cast(inputs, tf.float32), axes)
            update = _build_moving_updates(
                moving, dict(zip(_MOVING, (mean, variance), strict=True)), decay
            )
            if updates_collections is None:
                with tf.control_dependencies(update):
                    mean, variance = tf.identity(mean), tf.identity(variance)
            else:
                for op in update:
                    _V1.add_to_collection(updates_collections, op)
        else:
            mean, variance = moving["moving_mean"], moving["moving_variance"]
        parts = [None if v is None else tf.reshape(v, wide) for v in (mean, variance, beta, gamma)]
        normal = tf.nn.batch_normalization(tf.cast(inputs, tf.float32), *parts, epsilon)
        return activate_and_collect(
            tf.cast(normal, inputs.dtype), activation_fn, outputs_collections
        )


_MOVING = ("moving_mean", "moving_variance")


def _build_moving_updates(
    moving: Mapping[str, Any], now: Mapping[str, Any], decay: float
) -> list[Any]:
    """Moves the statistics towards those of the batch."""
    return [
        _V1.assign_sub(moving[name], (moving[name] - now[name]) * (1 - decay)) for name in _MOVING
    ]
