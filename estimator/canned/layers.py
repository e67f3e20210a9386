"""The layers of deep models, whose variables are named as in tf.estimator 2.15."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.summaries import layer_summaries
from estimator.config.checks import check_instance, check_int

V1 = tf.compat.v1
_MOMENTUM, _EPSILON = 0.999, 1e-3  # Of batch normalization, as in 2.15.


def checked_units(argument: str, units: Any, rule: str) -> tuple[int, ...]:
    """Returns the sizes of layers; `rule` says in errors what the argument must be."""
    check_instance(argument, units, list | tuple, rule)
    for number in units:
        check_int(argument, number)
    return tuple(map(int, units))


@dataclasses.dataclass(frozen=True)
class HiddenLayers:
    """The hidden layers of a deep model.

    Attributes:
      units: the number of units of each layer.
      activation: applied to each layer's output.
      dropout: the probability that a unit is dropped in training; None drops none.
      batch_norm: whether each layer's output is normalized.
    """

    units: Sequence[int]
    activation: Callable[[tf.Tensor], tf.Tensor]
    dropout: float | None
    batch_norm: bool

    def build_logits(
        self, net: tf.Tensor, num_logits: int, is_training: bool
    ) -> tuple[tf.Tensor, list[tf.Operation], dict[str, tf.Tensor]]:
        """Returns the logits, the ops that update statistics in training, and summaries by tag."""
        updates: list[tf.Operation] = []
        summaries: dict[str, tf.Tensor] = {}
        scope = V1.get_variable_scope().name
        prefix = f"{scope}/" if scope else ""
        for i, units in enumerate(self.units):
            with V1.variable_scope(f"hiddenlayer_{i}", reuse=V1.AUTO_REUSE):
                net = self.activation(build_dense_layer(net, units))
                if self.dropout and is_training:
                    net = tf.nn.dropout(net, self.dropout)
                if self.batch_norm:
                    with V1.variable_scope(f"batchnorm_{i}"):
                        net, more = _normalized(net, is_training)
                    updates += more
            summaries |= layer_summaries(f"{prefix}hiddenlayer_{i}", net)
        with V1.variable_scope("logits", reuse=V1.AUTO_REUSE):
            logits = build_dense_layer(net, num_logits)
        return logits, updates, summaries | layer_summaries(f"{prefix}logits", logits)


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
