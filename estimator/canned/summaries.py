"""The summaries of ready-made models, with the tags that they have in tf.estimator 2.15."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf

V1 = tf.compat.v1
_MAX_COUNTED_IN_LOOPS = 100_000  # Numbers.


def layer_summaries(name: str, values: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the summaries of a layer's output, by tag."""
    fraction = tf.math.zero_fraction(values)
    return {f"{name}/fraction_of_zero_values": fraction, f"{name}/activation": values}


def weight_summaries(bias: Any, weights: Sequence[Any]) -> dict[str, tf.Tensor]:
    """Returns the summaries of a linear model's variables, by tag.

    Args:
      bias: the bias, [units].
      weights: the other variables.
    """
    values = tf.convert_to_tensor(bias)
    summaries = {"bias": values[0] if values.shape[0] == 1 else values}
    size = sum(variable.shape.num_elements() for variable in weights)
    # Each step of a loop would copy the weights, as it does not know yet whether it is recorded.
    if size <= _MAX_COUNTED_IN_LOOPS or not _tf.is_loop_body(V1.get_default_graph()):
        num_nonzero = tf.add_n([tf.math.count_nonzero(variable) for variable in weights])
        summaries["fraction_of_zero_weights"] = tf.cast(1 - num_nonzero / size, tf.float32)
    return summaries


def build_summaries(summaries: Mapping[str, tf.Tensor], *, keeps_scope: bool) -> None:
    """Adds a scalar for each number, and a histogram for each tensor of several.

    Args:
      summaries: the values by tag.
      keeps_scope: whether tags begin with the current name scope.
    """
    with contextlib.nullcontext() if keeps_scope else V1.name_scope(None):
        for tag, values in summaries.items():
            make = V1.summary.scalar if values.shape.rank == 0 else V1.summary.histogram
            make(tag, values)
