"""The meaning of `tensor == value` in Keras in a v1 graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator._tf.callers import is_line_of_keras
from estimator._tf.patches import patched


@contextlib.contextmanager
def keras_compares_values() -> Iterator[None]:
    """Inside, `tensor == value` in Keras's own code compares values, as it does eagerly.

    In a v1 graph it compares identity, so that `step % 5 == 0` is the Python value False, and Keras
    never does what is due every fifth step. tf-keras was written for v1 graphs, too, and may look
    for a tensor in a list; so there only numbers are compared by value.
    Builds hold a lock. Tensor.__eq__ 2.16 to 2.21.
    """

    def make(function: Callable, original: Callable) -> Callable:
        def compare(self: tf.Tensor, other: Any) -> Any:
            is_number = isinstance(other, int | float)
            is_v1 = other is not None and self is not other and hasattr(self, "graph")
            names = () if is_number else ("keras",)
            if is_v1 and (is_number or tf.is_tensor(other)) and is_line_of_keras(*names):
                return function(self, other)
            return original(self, other)

        return compare

    with (
        patched(tf.Tensor, "__eq__", functools.partial(make, tf.math.equal)),
        patched(tf.Tensor, "__ne__", functools.partial(make, tf.math.not_equal)),
    ):
        yield
