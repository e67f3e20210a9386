"""Twins of TensorFlow's random ops that keep no state: the same place gives the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio.
_SPREAD_2 = 0xD1B54A32D192ED03  # Another number without a pattern, odd.


class Place:
    """Where the numbers of an op lie: a moment in the stream of its seeds.

    Attributes:
      pair: stream and moment, [2], int64, as the seed of an op that spreads a seed itself.
      philox: stream and moment as the arguments of an op that is told where to start.
    """

    def __init__(
        self, seeds: tuple[int, int, int], replica: int, moment: tf.Tensor, counter: tf.Tensor
    ) -> None:
        """Names a place.

        Args:
          seeds: of the graph, of the op, and of the body of a branch or a loop that it is in.
          replica: tells apart those that draw with the same seeds; 0 for the first.
          moment: scalar, int64.
          counter: of the moment, by `build_counter`.
        """
        graph_seed, op_seed, body = seeds
        # TensorFlow gives seeds below 2^31; the few bodies are spread over all keys.
        key = ((graph_seed << 31 | op_seed) + body * _SPREAD + replica * _SPREAD_2) % 2**63
        self.pair = [np.int64(key), moment]
        self.philox = {"key": [key], "counter": counter, "alg": tf.random.Algorithm.PHILOX.value}


def build_counter(moment: tf.Tensor) -> tf.Tensor:
    """Philox's counter at the start of a moment: [2], uint64; 2^64 blocks of numbers a moment."""
    with tf.name_scope("random_counter"):
        return tf.bitcast(tf.stack([tf.zeros([], tf.int64), moment]), tf.uint64)


def _uniform(place: Place, shape: Any, dtype: Any, name: str) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformV2(shape=shape, dtype=dtype, name=name, **place.philox)


def _uniform_int(place: Place, shape: Any, minval: Any, maxval: Any, name: str) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformIntV2(
        shape=shape, minval=minval, maxval=maxval, name=name, **place.philox
    )


def _normal(place: Place, shape: Any, dtype: Any, name: str) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomNormalV2(shape=shape, dtype=dtype, name=name, **place.philox)


def _truncated_normal(place: Place, shape: Any, dtype: Any, name: str) -> tf.Tensor:
    return tf.raw_ops.StatelessTruncatedNormalV2(
        shape=shape, dtype=dtype, name=name, **place.philox
    )


def _shuffle(place: Place, value: Any, name: str) -> tf.Tensor:
    # The op has no gradient, and TensorFlow was not told so: it has to be named as one that it was.
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"StatelessShuffle": "RandomShuffle"}):
        return tf.raw_ops.StatelessShuffle(value=value, name=name, **place.philox)


def _multinomial(
    place: Place, logits: Any, num_samples: Any, output_dtype: Any, name: str
) -> tf.Tensor:
    return _multinomial_of(place.pair, logits, num_samples, output_dtype, name)


def _multinomial_of(
    seed: Any, logits: Any, num_samples: Any, output_dtype: Any, name: str
) -> tf.Tensor:
    return tf.raw_ops.StatelessMultinomial(
        logits=logits, num_samples=num_samples, seed=seed, output_dtype=output_dtype, name=name
    )


def _gamma(place: Place, shape: Any, alpha: Any, name: str) -> tf.Tensor:
    shape = tf.concat([shape, tf.shape(alpha)], axis=0)
    return tf.raw_ops.StatelessRandomGammaV3(shape=shape, alpha=alpha, name=name, **place.philox)


def _poisson(place: Place, shape: Any, rate: Any, dtype: Any, name: str) -> tf.Tensor:
    shape = tf.concat([shape, tf.shape(rate)], axis=0)
    return tf.raw_ops.StatelessRandomPoisson(
        shape=shape, lam=rate, seed=place.pair, dtype=dtype, name=name
    )


def _shuffle_by_sort(place: Place, value: Any, name: str) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    keys = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.shape(value)[:1], dtype=tf.int32, **place.philox
    )
    return tf.gather(value, tf.argsort(keys), name=name)


def _multinomial_of_short_seed(
    place: Place, logits: Any, num_samples: Any, output_dtype: Any, name: str
) -> tf.Tensor:
    seed = tf.stack([tf.cast(part % (2**31 - 1), tf.int32) for part in place.pair])
    return _multinomial_of(seed, logits, num_samples, output_dtype, name)


# By the function of `gen_random_ops` that they stand for.
TWINS: dict[str, Callable[..., tf.Tensor]] = {
    "random_uniform": _uniform,
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _normal,
    "truncated_normal": _truncated_normal,
    "random_shuffle": _shuffle,
    "multinomial": _multinomial,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
}

# The same, for those whose op XLA cannot compile. It has none for `random_gamma` and
# `random_poisson_v2`, with or without a state.
COMPILED_TWINS: dict[str, Callable[..., tf.Tensor]] = {
    **TWINS,
    "random_shuffle": _shuffle_by_sort,
    "multinomial": _multinomial_of_short_seed,
}
