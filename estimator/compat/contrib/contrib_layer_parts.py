"""What the layers of `tf.contrib.layers` share: variables, activations, sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


def make_variables(dtype: Any, collections: Any, trainable: bool) -> Callable[..., Any]:
    """Returns a function that makes variables, which are in these collections, too."""
    names = collections or ()
    names = [names] if isinstance(names, str) else list(names)

    def make(name: str, shape: Any, initializer: Any, regularizer: Any = None) -> Any:
        return _V1.get_variable(
            name,
            shape,
            dtype,
            initializer,
            regularizer,
            trainable=trainable,
            collections=[_V1.GraphKeys.GLOBAL_VARIABLES, *names] if names else None,
        )

    return make


def finished(outputs: tf.Tensor, activation_fn: Any, collections: Any) -> tf.Tensor:
    """Applies the activation, and adds the result to the collections."""
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    if collections:
        _V1.add_to_collections(collections, outputs)
    return outputs


def as_pair(value: Any) -> list[int]:
    """Returns the sizes for both dimensions of an image."""
    return list(value) if isinstance(value, list | tuple) else [value, value]
