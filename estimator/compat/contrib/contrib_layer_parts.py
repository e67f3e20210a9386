"""What the layers of `tf.contrib.layers` share: variables, activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


def make_variables(dtype: Any, collections: Any, trainable: bool) -> Callable[..., Any]:
    """Returns a `get_variable` that also adds each variable to these collections.

    They are a name, a list of names, or a dict from the variable's name to either.
    """

    def make(name: str, shape: Any, initializer: Any, regularizer: Any = None) -> Any:
        names = collections.get(name) if isinstance(collections, Mapping) else collections
        names = [names] if isinstance(names, str) else list(names or ())
        keys = _V1.GraphKeys
        all_names = [keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES, *names]
        return _V1.get_variable(
            name, shape, dtype, initializer, regularizer, trainable, collections=all_names
        )

    return make


def activate_and_collect(
    outputs: tf.Tensor, activation_fn: Any, collections: Any, scope: Any
) -> tf.Tensor:
    """Applies the activation, and adds the result to the collections, as an end point.

    Args:
      outputs: what the layer has computed.
      activation_fn: a function of it; None for none.
      collections: a collection, or several; None for none.
      scope: the variable scope, or the name scope, of the layer, whose name is the end point's.
    """
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    if collections:
        # Where slim's `convert_collection_to_dict` looks for the name.
        name = getattr(scope, "name", scope).rstrip("/")
        outputs.aliases = [*getattr(outputs, "aliases", ()), name]
        _V1.add_to_collections(collections, outputs)
    return outputs
