"""Named tensors: the inputs and outputs of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_TENSOR_TYPES = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)


def is_tensor(value: Any) -> bool:
    """Returns whether a signature can hold `value`: dense, sparse or ragged, but not a variable."""
    return isinstance(value, _TENSOR_TYPES)


def check_tensor(value: Any, label: str) -> None:
    """Raises ValueError, naming `label`, if `value` is not a tensor."""
    if not is_tensor(value):
        raise ValueError(
            f"{label} ({value!r}) must be a Tensor, SparseTensor or RaggedTensor, not a "
            f"{type(value).__name__}. Convert it with tf.convert_to_tensor."
        )


def make_named_tensors(value: Any, argument: str, default_name: str) -> dict[str, Any]:
    """Converts `value` to a new dict from names to tensors.

    Args:
        value: a tensor, or a dict of tensors. A key is a string, or a tuple of strings, which are
            joined with "/": a model of several heads names its outputs (head, output).
        argument: the name of `value` in errors.
        default_name: the name of a single tensor.

    Raises:
        ValueError: `value` is None, empty, nested, or holds anything but tensors.
    """
    if not isinstance(value, Mapping):
        check_tensor(value, f"`{argument}`")
        return {default_name: value}
    if not value:
        raise ValueError(f"`{argument}` ({{}}) must name at least one tensor.")
    named = {}
    for key, tensor in value.items():
        name = make_name(key, argument)
        check_tensor(tensor, f"`{argument}[{key!r}]`")
        named[name] = tensor
    return named


def make_name(key: Any, argument: str) -> str:
    """Converts a key to a string; raises ValueError if it is not a string or a tuple of strings."""
    parts = key if isinstance(key, tuple) else (key,)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"`{argument}` has the key {key!r}: keys must be strings (or tuples of strings). "
            "Rename it."
        )
    return "/".join(parts)
