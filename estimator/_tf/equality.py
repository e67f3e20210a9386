"""What `==` between tensors means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator._tf.callers import asks_keras


@contextlib.contextmanager
def keras_compares_values() -> Iterator[None]:
    """Inside, `tensor == value` compares values where Keras itself asks, as it does eagerly.

    In a v1 graph it says whether both are the same object, so that `step % 5 == 0` is a Python
    False, and Keras leaves out what it does every fifth step. tf-keras was written for v1 graphs,
    too, where it may look for a tensor in a list; so there only a number is compared by value.
    Builds hold a lock. Tensor.__eq__ 2.16 to 2.21.
    """
    originals = {name: getattr(tf.Tensor, name) for name in ("__eq__", "__ne__")}
    functions = {"__eq__": tf.math.equal, "__ne__": tf.math.not_equal}

    def make(name: str) -> Any:
        def compare(self: tf.Tensor, other: Any) -> Any:
            is_number = isinstance(other, int | float)
            is_v1 = other is not None and self is not other and hasattr(self, "graph")
            names = () if is_number else ("keras",)
            if is_v1 and (is_number or tf.is_tensor(other)) and asks_keras(*names):
                return functions[name](self, other)
            return originals[name](self, other)

        return compare

    for name in originals:
        setattr(tf.Tensor, name, make(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(tf.Tensor, name, original)
