"""`tf.contrib.layers`: layers with `get_variable`, under the old names of variables."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.compat.contrib.contrib_layer_parts import activate_and_collect, make_variables
from estimator.compat.contrib.contrib_regularizers import xavier_initializer

_V1 = tf.compat.v1
_ZEROS = _V1.zeros_initializer()
_Function = Callable[..., Any]


def fully_connected(
    inputs: tf.Tensor,
    num_outputs: int,
    activation_fn: _Function | None = tf.nn.relu,
    normalizer_fn: _Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Multiplies the last axis by `weights`, then normalizes or adds `biases`, then activates."""
    inputs = tf.convert_to_tensor(inputs)
    with _V1.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as own_scope:
        make = make_variables(inputs.dtype, variables_collections, trainable)
        shape = [inputs.shape.as_list()[-1], num_outputs]
        init = weights_initializer or xavier_initializer()
        weights = make("weights", shape, init, weights_regularizer)
        outputs = tf.tensordot(inputs, weights, 1) if inputs.shape.rank != 2 else inputs @ weights
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            outputs += make("biases", [num_outputs], biases_initializer, biases_regularizer)
        return activate_and_collect(outputs, activation_fn, outputs_collections, own_scope)


def convolution2d(
    inputs: tf.Tensor,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: _Function | None = tf.nn.relu,
    normalizer_fn: _Function | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Convolves images with `weights`, then normalizes or adds `biases`, then activates."""
    inputs = tf.convert_to_tensor(inputs)
    data_format = data_format or "NHWC"
    channels = inputs.shape.as_list()[-1 if data_format == "NHWC" else 1]
    with _V1.variable_scope(scope, "Conv", [inputs], reuse=reuse) as own_scope:
        make = make_variables(inputs.dtype, variables_collections, trainable)
        init = weights_initializer or xavier_initializer()
        size = kernel_size if isinstance(kernel_size, list | tuple) else [kernel_size, kernel_size]
        shape = [*size, channels, num_outputs]
        weights = make("weights", shape, init, weights_regularizer)
        outputs = tf.nn.conv2d(
            inputs,
            weights,
            strides=stride,
            padding=padding.upper(),
            data_format=data_format,
            dilations=rate,
        )
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = make("biases", [num_outputs], biases_initializer, biases_regularizer)
            outputs = tf.nn.bias_add(outputs, biases, data_format)
        return activate_and_collect(outputs, activation_fn, outputs_collections, own_scope)


def flatten(inputs: tf.Tensor, outputs_collections: Any = None, scope: Any = None) -> tf.Tensor:
    """Flattens all axes but the first."""
    inputs = tf.convert_to_tensor(inputs)
    with _V1.name_scope(scope, "Flatten", [inputs]) as own_scope:
        sizes = inputs.shape.as_list()[1:]
        shape = [tf.shape(inputs)[0], -1] if None in sizes else [-1, math.prod(sizes)]
        outputs = tf.reshape(inputs, shape)
        return activate_and_collect(outputs, None, outputs_collections, own_scope)


def dropout(
    inputs: tf.Tensor,
    keep_prob: Any = 0.5,
    noise_shape: Any = None,
    is_training: Any = True,
    outputs_collections: Any = None,
    scope: Any = None,
    seed: int | None = None,
) -> tf.Tensor:
    """Drops values in training, and scales the others up."""
    with _V1.name_scope(scope, "Dropout", [inputs]) as own_scope:
        rate = 1 - keep_prob
        if tf.is_tensor(is_training):
            rate, is_training = tf.where(is_training, rate, tf.zeros_like(rate)), True
        outputs = tf.nn.dropout(inputs, rate, noise_shape, seed) if is_training else inputs
        return activate_and_collect(tf.identity(outputs), None, outputs_collections, own_scope)


def _pool2d(
    pool: _Function,
    name: str,
    inputs: tf.Tensor,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: Any = None,
) -> tf.Tensor:
    """Takes the maximum, or the mean, of each window."""
    with _V1.name_scope(scope, name, [inputs]) as own_scope:
        pooled = pool(inputs, kernel_size, stride, padding.upper(), data_format)
        return activate_and_collect(pooled, None, outputs_collections, own_scope)


max_pool2d = functools.partial(_pool2d, tf.nn.max_pool2d, "MaxPool2D")
avg_pool2d = functools.partial(_pool2d, tf.nn.avg_pool2d, "AvgPool2D")


def embed_sequence(
    ids: tf.Tensor,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    scope: Any = None,
    reuse: Any = None,
) -> tf.Tensor:
    """Looks ids up in the variable `embeddings`; from [batch, length] to [batch, length, dim].

    Args:
      unique: no effect.
    """
    with _V1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        make = make_variables(tf.float32, None, trainable)
        table = make("embeddings", [vocab_size, embed_dim], initializer, regularizer)
        return tf.nn.embedding_lookup(table, ids)


def one_hot_encoding(
    labels: tf.Tensor,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: Any = None,
    scope: Any = None,
) -> tf.Tensor:
    """Encodes class numbers as one-hot rows."""
    with _V1.name_scope(scope, "OneHotEncoding", [labels]) as own_scope:
        outputs = tf.one_hot(tf.cast(labels, tf.int64), num_classes, on_value, off_value)
        return activate_and_collect(outputs, None, outputs_collections, own_scope)


def stack(inputs: Any, layer: _Function, stack_args: Sequence, **kwargs: Any) -> Any:
    """Applies a layer once for each of the arguments, in the scopes "<scope>/<scope>_1" and so on.

    Without a `scope`, they are "Stack/<layer's name>_1" and so on.
    """
    scope, reuse = kwargs.pop("scope", None), kwargs.pop("reuse", None)
    function = layer.func if isinstance(layer, functools.partial) else layer
    inner = function.__name__ if scope is None else getattr(scope, "name", scope)
    with _V1.variable_scope(scope, "Stack", [inputs], reuse=reuse):
        for i, given in enumerate(stack_args):
            args = given if isinstance(given, list | tuple) else [given]
            inputs = layer(inputs, *args, scope=f"{inner}_{i + 1}", **kwargs)
    return inputs


# As a partial, it has the scopes of `fully_connected` in a stack.
linear = functools.partial(fully_connected, activation_fn=None)
