"""Tensors under names: the two sides of a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_TENSOR_TYPES = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)


def is_tensor(value: Any) -> bool:
    """Whether a signature can hold `value`: dense, sparse or ragged, but no variable."""
    return isinstance(value, _TENSOR_TYPES)


def check_tensor(value: Any, label: str) -> None:
    """Raises ValueError, naming `label`, if `value` is no tensor."""
    if not is_tensor(value):
        raise ValueError(
            f"{label} ({value!r}) must be a Tensor, SparseTensor or RaggedTensor, not a "
            f"{type(value).__name__}. Convert it with tf.convert_to_tensor."
        )


def make_named_tensors(value: Any, argument: str, default_name: str) -> dict[str, Any]:
    """`value` as a new dict of name to tensor.

    Args:
        value: a tensor, or a dict of tensors. A key is a string, or a tuple of strings, which are
            joined with "/": a model of several heads names its outputs (head, output).
        argument: how an error calls `value`.
        default_name: the name of a single tensor.

    Raises:
        ValueError: if `value` is None, empty, nested, or holds something else than tensors.
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
    """The string that `key` stands for; ValueError if it stands for none."""
    parts = key if isinstance(key, tuple) else (key,)
    if not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"`{argument}` has the key {key!r}: keys must be strings (or tuples of strings). "
            "Rename it."
        )
    return "/".join(parts)
