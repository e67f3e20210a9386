"""Implements `RunConfig`'s bfloat16 computation and XLA compilation.

Variables are always float32. Keras layers get a dtype policy. Code that asks `get_variable` for
bfloat16 gets a float32 variable that is cast when it is read, as in
`tf.compat.v1.tpu.bfloat16_scope`. Features are never cast: a handwritten model decides where to
compute in `config.compute_dtype`, and where not to, as in a loss.
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
    """Makes a `model_fn` on this thread compute in `dtype` where its layers allow it.

    Args:
      dtype: the dtype; "float32" changes nothing, not even a policy that the program has set.
    """
    if dtype == "float32":
        yield
        return
    scope = tf.compat.v1.variable_scope(
        tf.compat.v1.get_variable_scope(), custom_getter=_keep_float32, auxiliary_name_scope=False
    )
    with scope, _tf.keras_policy(f"mixed_{dtype}"):
        yield


@contextlib.contextmanager
def compiling(is_asked: bool) -> Iterator[None]:
    """Has XLA compile the ops of the block that it can, except random ops.

    XLA would draw different numbers, so that a seed would no longer determine a run.
    """
    if not is_asked:
        yield
        return
    with tf.xla.experimental.jit_scope(lambda node: not any(name in node.op for name in _RANDOM)):
        yield


def _keep_float32(getter: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("dtype") != tf.bfloat16:
        return getter(name, *args, **kwargs)
    kwargs["dtype"] = tf.float32
    return tf.cast(getter(name, *args, **kwargs), tf.bfloat16)
