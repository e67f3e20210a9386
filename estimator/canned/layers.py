"""The layers of deep models, whose variables are named as in tf.estimator 2.15."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.canned.summaries import layer_summaries
from estimator.config.checks import (
    check_bool,
    check_instance,
    check_number,
    checked_count,
    did_you_mean,
)

V1 = tf.compat.v1
# The logits, the ops that update statistics, and the summaries by tag.
Built = tuple[tf.Tensor, Sequence[tf.Operation], Mapping[str, tf.Tensor]]
_MOMENTUM, _EPSILON = 0.999, 1e-3  # Of batch normalization, as in 2.15.


def checked_units(argument: str, units: Any, rule: str) -> tuple[int, ...]:
    """Returns the sizes of layers; `rule` says in errors what the argument must be.

    Takes an array, too, and whole numbers of any type, such as the half of one.
    """
    listed = units.tolist() if isinstance(units, np.ndarray) else units
    check_instance(argument, listed, list | tuple | range, rule)
    return tuple(checked_count(argument, number) for number in listed)


def make_layers(
    prefix: str, units: Any, activation: Any, dropout: Any, batch_norm: Any
) -> Callable[[tf.Tensor, int, bool], Built]:
    """Returns a function that builds hidden layers, and the logits, on a tensor.

    The function also takes the number of logits, and whether it is built to train.

    Args:
      prefix: what is before the names of the arguments, in errors.
      units: the number of units of each hidden layer.
      activation: applied to each layer's output; a function, or its name in `tf.nn`.
      dropout: the probability that a unit is dropped in training; None drops none.
      batch_norm: whether each layer's output is normalized.
    """
    rule = "a list of integers, one for each hidden layer"
    sizes = checked_units(f"{prefix}hidden_units", units, rule)
    activation = _checked_activation(f"{prefix}activation_fn", activation)
    dropout = _checked_dropout(f"{prefix}dropout", dropout)
    check_bool("batch_norm", batch_norm)

    def build(net: tf.Tensor, num_logits: int, is_training: bool) -> Built:
        updates: list[tf.Operation] = []
        summaries: dict[str, tf.Tensor] = {}
        scope = V1.get_variable_scope().name
        of_scope = f"{scope}/" if scope else ""
        for i, size in enumerate(sizes):
            with V1.variable_scope(f"hiddenlayer_{i}", reuse=V1.AUTO_REUSE):
                net = activation(build_dense_layer(net, size))
                if dropout and is_training:
                    net = tf.nn.dropout(net, dropout)
                if batch_norm:
                    with V1.variable_scope(f"batchnorm_{i}"):
                        net, more = _normalized(net, is_training)
                    updates += more
            summaries |= layer_summaries(f"{of_scope}hiddenlayer_{i}", net)
        with V1.variable_scope("logits", reuse=V1.AUTO_REUSE):
            logits = build_dense_layer(net, num_logits)
        return logits, updates, summaries | layer_summaries(f"{of_scope}logits", logits)

    return build


def _checked_activation(argument: str, activation: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    if activation is None:
        return tf.identity
    if isinstance(activation, str):
        known = [name for name in dir(tf.nn) if callable(getattr(tf.nn, name))]
        if activation not in known:
            raise ValueError(
                f"`{argument}` ({activation!r}) is not in tf.nn. {did_you_mean(activation, known)}"
            )
        return getattr(tf.nn, activation)
    check_instance(argument, activation, Callable, "a function such as tf.nn.relu")
    return activation


def _checked_dropout(argument: str, dropout: Any) -> float | None:
    if dropout is None:
        return None
    check_number(argument, dropout, minimum=0)
    if dropout >= 1:
        raise ValueError(
            f"`{argument}` ({dropout}) must be below 1: it is the probability that a unit is "
            "dropped."
        )
    return float(dropout)


def build_dense_layer(net: tf.Tensor, units: int) -> tf.Tensor:
    """Returns `units` values for each vector of `net`, whose last dimension is static."""
    kernel = V1.get_variable(
        "kernel", [net.shape[-1], units], initializer=V1.glorot_uniform_initializer()
    )
    bias = V1.get_variable("bias", [units], initializer=V1.zeros_initializer())
    return tf.nn.bias_add(net @ kernel, bias)


def _normalized(net: tf.Tensor, is_training: bool) -> tuple[tf.Tensor, list[tf.Operation]]:
    zeros, ones = V1.zeros_initializer(), V1.ones_initializer()
    size = [net.shape[-1]]
    gamma = V1.get_variable("gamma", size, initializer=ones)
    beta = V1.get_variable("beta", size, initializer=zeros)
    with V1.variable_scope(V1.get_variable_scope(), auxiliary_name_scope=False) as scope:
        scope.set_partitioner(None)  # Assignments take whole variables; so did 2.15
        means, variances = (
            V1.get_variable(
                name,
                size,
                initializer=initializer,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.MEAN,
            )
            for name, initializer in (("moving_mean", zeros), ("moving_variance", ones))
        )
    updates = []
    mean, variance = means, variances
    if is_training:
        mean, variance = tf.nn.moments(net, [0])
        updates = [
            means.assign_sub((means - mean) * (1 - _MOMENTUM)),
            variances.assign_sub((variances - variance) * (1 - _MOMENTUM)),
        ]
    return tf.nn.batch_normalization(net, mean, variance, beta, gamma, _EPSILON), updates
