"""Stateless counterparts of TensorFlow's random ops: the same key gives the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_SPREAD = 0x9E3779B97F4A7C15  # 2^64 / golden ratio.
_SPREAD_2 = 0xD1B54A32D192ED03  # Another odd number without a pattern.


class RngKey:
    """The key of a stateless random op: the stream of its seeds, and the step.

    Attributes:
      pair: stream and step key, [2], int64: the seed of an op that scrambles its seed itself.
      philox: stream and step key as the arguments of an op that takes Philox's key and counter.
    """

    def __init__(
        self, seeds: tuple[int, int, int], replica: int, step_key: tf.Tensor, counter: tf.Tensor
    ) -> None:
        """Computes both forms of the key.

        Args:
          seeds: the seeds of the graph, the op, and the body of the branch or loop that contains
            it.
          replica: distinguishes replicas that draw with the same seeds; 0 for the first.
          step_key: scalar, int64.
          counter: what `build_counter` returns for `step_key`.
        """
        graph_seed, op_seed, body = seeds
        # TensorFlow's seeds are below 2^31; the few bodies are spread over all keys.
        key = ((graph_seed << 31 | op_seed) + body * _SPREAD + replica * _SPREAD_2) % 2**63
        self.pair = [np.int64(key), step_key]
        self.philox = {"key": [key], "counter": counter, "alg": tf.random.Algorithm.PHILOX.value}


def build_counter(step_key: tf.Tensor) -> tf.Tensor:
    """Returns Philox's counter at the start of a step key: [2], uint64; each has 2^64 blocks."""
    with tf.name_scope("random_counter"):
        return tf.bitcast(tf.stack([tf.zeros([], tf.int64), step_key]), tf.uint64)


def _of_shape(op: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Returns the twin of an op that takes a shape and a dtype."""

    def twin(key: RngKey, shape: Any, dtype: Any, name: str) -> tf.Tensor:
        return op(shape=shape, dtype=dtype, name=name, **key.philox)

    return twin


def _uniform_int(key: RngKey, shape: Any, minval: Any, maxval: Any, name: str) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformIntV2(
        shape=shape, minval=minval, maxval=maxval, name=name, **key.philox
    )


def _shuffle(key: RngKey, value: Any, name: str) -> tf.Tensor:
    # TensorFlow does not register that this op has no gradient, so it borrows the registration of
    # RandomShuffle.
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"StatelessShuffle": "RandomShuffle"}):
        return tf.raw_ops.StatelessShuffle(value=value, name=name, **key.philox)


def _multinomial(
    key: RngKey, logits: Any, num_samples: Any, output_dtype: Any, name: str, *, seed: Any = None
) -> tf.Tensor:
    return tf.raw_ops.StatelessMultinomial(
        logits=logits,
        num_samples=num_samples,
        seed=key.pair if seed is None else seed,
        output_dtype=output_dtype,
        name=name,
    )


def _gamma(key: RngKey, shape: Any, alpha: Any, name: str) -> tf.Tensor:
    shape = tf.concat([shape, tf.shape(alpha)], axis=0)
    return tf.raw_ops.StatelessRandomGammaV3(shape=shape, alpha=alpha, name=name, **key.philox)


def _poisson(key: RngKey, shape: Any, rate: Any, dtype: Any, name: str) -> tf.Tensor:
    shape = tf.concat([shape, tf.shape(rate)], axis=0)
    return tf.raw_ops.StatelessRandomPoisson(
        shape=shape, lam=rate, seed=key.pair, dtype=dtype, name=name
    )


def _shuffle_by_sort(key: RngKey, value: Any, name: str) -> tf.Tensor:
    value = tf.convert_to_tensor(value)
    keys = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.shape(value)[:1], dtype=tf.int32, **key.philox
    )
    return tf.gather(value, tf.argsort(keys), name=name)


def _multinomial_of_short_seed(key: RngKey, *args: Any, **kwargs: Any) -> tf.Tensor:
    seed = tf.stack([tf.cast(part % (2**31 - 1), tf.int32) for part in key.pair])
    return _multinomial(key, *args, seed=seed, **kwargs)


# Maps a function of `gen_random_ops` to its stateless counterpart.
TWINS: dict[str, Callable[..., tf.Tensor]] = {
    "random_uniform": _of_shape(tf.raw_ops.StatelessRandomUniformV2),
    "random_uniform_int": _uniform_int,
    "random_standard_normal": _of_shape(tf.raw_ops.StatelessRandomNormalV2),
    "truncated_normal": _of_shape(tf.raw_ops.StatelessTruncatedNormalV2),
    "random_shuffle": _shuffle,
    "multinomial": _multinomial,
    "random_gamma": _gamma,
    "random_poisson_v2": _poisson,
}

# The same, with replacements for ops that XLA cannot compile. XLA compiles neither `random_gamma`
# nor `random_poisson_v2`, stateful or stateless.
COMPILED_TWINS: dict[str, Callable[..., tf.Tensor]] = {
    **TWINS,
    "random_shuffle": _shuffle_by_sort,
    "multinomial": _multinomial_of_short_seed,
}
