"""Compute in bfloat16, and compile: what a `RunConfig` says of how a model computes.

Variables are float32 in any case. Keras layers have a policy for this. Code that asks
`get_variable` for bfloat16 gets float32 ones, cast when they are read, as
`tf.compat.v1.tpu.bfloat16_scope` has it. Nothing casts features: a model that is written by hand
says itself where it computes in `config.compute_dtype`, and where, as in a loss, it does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf

_RANDOM = ("Random", "TruncatedNormal", "Multinomial", "Shuffle")


@contextlib.contextmanager
def computing_in(dtype: str) -> Iterator[None]:
    """Inside, on this thread, a `model_fn` computes in this dtype where its layers allow it.

    Args:
      dtype: "float32" changes nothing, also of a policy that the program has set.
    """
    if dtype == "float32":
        yield
        return
    scope = tf.compat.v1.variable_scope(
        tf.compat.v1.get_variable_scope(),
        custom_getter=_keep_float32,
        auxiliary_name_scope=False,
    )
    with scope, _tf.keras_policy(f"mixed_{dtype}"):
        yield


@contextlib.contextmanager
def compiling(is_asked: bool) -> Iterator[None]:
    """Inside, XLA compiles those ops of the default graph that it can, but random ones.

    It would draw other numbers, so that a seed would not say where a run starts, or goes.
    """
    if not is_asked:
        yield
        return
    with tf.xla.experimental.jit_scope(lambda node: not any(map(node.op.count, _RANDOM))):
        yield


def _keep_float32(getter: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("dtype") != tf.bfloat16:
        return getter(name, *args, **kwargs)
    kwargs["dtype"] = tf.float32
    return tf.cast(getter(name, *args, **kwargs), tf.bfloat16)
