"""Converts what an `input_fn` may return besides tensors: numbers, lists, keys of mixed types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_PLAIN = (bool, int, float, complex, str, bytes, np.generic)


class SortableKey:
    """A sortable stand-in for a dict key of a type that does not compare with the other keys.

    It equals the key that it stands for, so looking that key up finds the same value.
    """

    def __init__(self, key: Any) -> None:
        """Wraps `key`."""
        self.key = key

    def __lt__(self, other: SortableKey) -> bool:
        """Orders by type, then by representation."""
        return self._order() < other._order()

    def __eq__(self, other: object) -> bool:
        """Compares as the key does."""
        return self.key == (other.key if isinstance(other, SortableKey) else other)

    def __hash__(self) -> int:
        """Hashes as the key does."""
        return hash(self.key)

    def __repr__(self) -> str:
        """Shows the key."""
        return repr(self.key)

    def _order(self) -> tuple[str, str]:
        return type(self.key).__name__, repr(self.key)


def with_sortable_keys(value: Any) -> Any:
    """Replaces the keys of dicts whose keys do not compare with `SortableKey`s."""

    def convert(one: dict) -> dict:
        try:
            sorted(one)
        except TypeError:
            return {SortableKey(key): part for key, part in one.items()}
        return one

    return _map_dicts(convert, value)


def with_own_keys(value: Any) -> Any:
    """Undoes `with_sortable_keys`."""

    def convert(one: dict) -> dict:
        return {key.key if isinstance(key, SortableKey) else key: part for key, part in one.items()}

    return _map_dicts(convert, value)


def with_arrays(value: Any) -> Any:
    """Replaces each plain number, string, or list of these with an array."""
    if isinstance(value, dict):
        changed = {key: with_arrays(part) for key, part in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    if not isinstance(value, tuple) and _is_plain(value):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(with_arrays(part) for part in value)
    return value


def _is_plain(value: Any) -> bool:
    """Returns whether `value` is a number or string, or a nonempty list or tuple of such."""
    if type(value) in (list, tuple):
        return bool(value) and all(_is_plain(part) for part in value)
    return isinstance(value, _PLAIN)


def _map_dicts(convert: Callable[[dict], dict], value: Any) -> Any:
    """Converts each plain dict of a structure."""
    if type(value) is dict:
        return convert({key: _map_dicts(convert, part) for key, part in value.items()})
    if type(value) in (list, tuple):
        return type(value)(_map_dicts(convert, part) for part in value)
    return value
