"""What an object holds, as far as a function of a program may read it."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import functools
import pathlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

# Of these, only what is a function's own is looked at: its closure, defaults and bound object.
_LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "absl", "estimator", "keras", "numpy", "tensorflow", "tf_keras"}
)
PLAIN = frozenset({bool, bytes, complex, float, int, str, type(None)})
# Of a library, but their attributes are the program's.
NAMESPACES = (argparse.Namespace, types.SimpleNamespace, threading.local)
_LRU_CACHED = type(functools.lru_cache(lambda: None))
# Attributes of a library's wrapper that are what it wraps: tf.custom_gradient's is `_f`.
_WRAPPED = ("__wrapped__", "_f", "_python_function", "dispatcher", "func", "function")
# Methods that an operator does not call while a graph is built.
_NOT_IMPLIED = frozenset(
    f"__{name}__"
    for name in ("init", "new", "del", "repr", "reduce", "reduce_ex", "getstate", "setstate")
)


class Identity:
    """An object for what it is, which is kept alive only if its type has no weak references.

    The `id` alone would be that of another object some time after this one is gone.
    """

    def __init__(self, value: Any) -> None:
        """Refers to an object."""
        try:
            self._get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._get = lambda: value
        self._hash = id(value)

    def __hash__(self) -> int:  # noqa: D105
        return self._hash

    def __eq__(self, other: object) -> bool:  # noqa: D105
        value = self._get()
        return isinstance(other, Identity) and value is not None and value is other._get()


def key_of(value: Any) -> Any:
    """Returns what a key of a dict, or an item of a set, is compared by: its value if it has one.

    It is itself, an Identity, or a tuple that begins with a type.
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    if issubclass(kind, enum.Enum):
        return kind, value.name
    if issubclass(kind, tuple):
        return (kind, *map(key_of, value))
    if kind is frozenset:
        return kind, frozenset(map(key_of, value))
    if issubclass(kind, np.generic):
        return kind, value.tobytes()
    return Identity(value)


def parts_of(kind: type, value: Any) -> Collection[Any] | None:
    """Returns what a container, a bound method or a wrapper holds; None if it is something else."""
    if issubclass(kind, (list, tuple, collections.deque)):
        return value
    if collections.ChainMap in kind.__mro__:  # `issubclass` is slow for ABCs.
        return value.maps
    if kind is np.ndarray:  # Of objects.
        return value.ravel().tolist()
    if kind is types.MethodType:
        return value.__func__, value.__self__
    if issubclass(kind, (staticmethod, classmethod)):
        return (value.__func__,)
    if kind is _LRU_CACHED:
        return (value.__wrapped__,)
    return (value.fget,) if issubclass(kind, property) else None


def attributes_of(value: Any) -> dict[str, Any]:
    """Returns the attributes that an object has in slots and in its dictionary."""
    found = {}
    for base in type(value).__mro__:
        for name, slot in vars(base).items() if "__slots__" in vars(base) else ():
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # It may not be set.
                    found[name] = slot.__get__(value)
    return {**found, **getattr(value, "__dict__", {})}


def functions_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what an object of a library may call: the program's functions, and what it wraps."""
    for name, held in [*getattr(value, "__dict__", {}).items()]:
        function = held.__func__ if type(held) is types.MethodType else held
        if name in _WRAPPED or (
            type(function) is types.FunctionType and not is_of_library(module_of(function))
        ):
            yield name, held


def module_of(function: types.FunctionType) -> str:
    """Returns where a function is written; its `__module__` may be that of what it wraps."""
    return function.__globals__.get("__name__") or function.__module__ or ""


def is_implied(name: str) -> bool:
    """Returns whether a method of that name is called without being named, as by an operator."""
    return name.startswith("__") and name.endswith("__") and name not in _NOT_IMPLIED


def is_of_library(module: str) -> bool:
    """Returns whether a module is of a library, whose objects and code are not looked into."""
    return module.partition(".")[0] in _LIBRARIES


@functools.cache
def is_installed(module: str) -> bool:
    """Returns whether a module is of a library or of another package in `site-packages`."""
    path = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None) or ""
    parts = pathlib.PurePath(path).parts
    return is_of_library(module) or not {"site-packages", "dist-packages"}.isdisjoint(parts)
