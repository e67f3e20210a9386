"""What resource variables are in programs that were written for the variables of TensorFlow 1."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from estimator._tf.graph import initialized_value
from estimator._tf.patches import Patch, patched, together


def variables_as_in_v1() -> Patch:
    """Inside, variables of a graph behave as in v1 if the program has disabled v2 behavior.

    `bool(variable)` is True: that of a resource variable would read it, and a graph tensor has no
    truth value. `variable.initialized_value()` works. Builds hold a lock. 2.16 to 2.21.
    """
    if tf.compat.v1.resource_variables_enabled():
        return contextlib.nullcontext()

    def is_true(original: Callable) -> Callable:
        return lambda self: original(self) if tf.executing_eagerly() else True

    owner = resource_variable_ops.BaseResourceVariable
    return together(
        [
            patched(owner, "__bool__", is_true),
            patched(owner, "initialized_value", lambda original: initialized_value),
        ]
    )
