"""Says whether two `input_fn`s make the same input."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

# How many numbers of two arrays are compared at a time.
_PART = 2**20


def is_same_input(one: Any, other: Any, depth: int = 8) -> bool:
    """Returns whether two functions make the same input, as equal lambdas made in a loop do.

    They do if they have the same code and the same bound arguments: equal numbers, strings, arrays
    and containers of these, and otherwise the identical object. An array of other objects than
    strings is equal to itself alone.

    Args:
      one: a function, or a value bound to one.
      other: the value to compare with.
      depth: the maximum depth, as a function may be bound to itself.
    """
    if one is other:
        return True
    if type(one) is not type(other) or depth == 0:
        return False
    if isinstance(one, bool | int | float | str | bytes):
        return one == other
    if type(one) is np.ndarray:
        return _is_equal_array(one, other)
    if isinstance(one, types.MethodType):
        return one.__func__ is other.__func__ and one.__self__ is other.__self__
    if isinstance(one, types.FunctionType) and one.__code__ != other.__code__:
        return False
    ours, theirs = _bound(one), _bound(other)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    return all(is_same_input(a, b, depth - 1) for a, b in zip(ours, theirs, strict=True))


def _is_equal_array(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.hasobject:
        pairs = zip(one.flat, other.flat, strict=True)
        return all(isinstance(a, str | bytes) and type(a) is type(b) and a == b for a, b in pairs)
    # In parts, as the first one tells most arrays apart.
    flat, others = one.reshape(-1), other.reshape(-1)
    parts = [slice(start, start + _PART) for start in range(0, flat.size, _PART)]
    has_nan = one.dtype.kind in "fc"
    return all(np.array_equal(flat[p], others[p], equal_nan=has_nan) for p in parts)


def _bound(value: Any) -> list | None:
    """Returns the values bound to a function, or held by a container; None for anything else."""
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.FunctionType):
        try:
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
        except ValueError:
            return None  # An unassigned variable, whose value is unknown.
        return [value.__defaults__, value.__kwdefaults__, cells]
    if isinstance(value, dict):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else None
