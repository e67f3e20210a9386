"""The values outside of its arguments that a `model_fn` reads, such as flags and attributes."""

from __future__ import annotations

import argparse
import collections
import contextlib
import enum
import functools
import sys
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

# Of these, only what is a function's own is looked at: its closure, defaults and bound object.
_LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "absl", "estimator", "keras", "numpy", "tensorflow", "tf_keras"}
)
_PLAIN = frozenset({bool, bytes, complex, float, int, str, type(None)})
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)
_LONGEST = 1000  # Items of a container.
_LARGEST = 1 << 16  # Bytes of an array.
_MOST = 10_000  # Objects in all.


class OutsideValues:
    """Finds the values that a `model_fn` can read besides its arguments.

    These are plain values and small arrays in closures, default values, globals, flags of absl, and
    attributes of objects and modules. A global or an attribute counts if its name is in the code of
    `model_fn` or of a function that can be reached from it. Objects of libraries are opaque. What
    has changed during a call of `model_fn` is a result, and does not count from then on.
    """

    def __init__(self, roots: Sequence[Any], results: set[tuple]) -> None:
        """Looks at nothing yet.

        Args:
          roots: `model_fn` and its params, which are not copied for each call.
          results: places of results. More are added to it.
        """
        self._roots = roots
        self._results = results

    def find(self) -> frozenset:
        """Returns the values with the places they are at; equal if none has changed."""
        return frozenset(self._walk().items())

    @contextlib.contextmanager
    def noting_results(self) -> Iterator[None]:
        """Takes what changes in the block, a call of `model_fn`, for its results."""
        before = self._walk()
        yield
        after = self._walk()
        changed = {place for place, _ in before.items() ^ after.items()}
        # Of an object that is new, there is nothing to ignore but where it was put.
        known = {place[0] for place in before} & {place[0] for place in after}
        self._results.update(place[:2] for place in changed if place[0] in known)

    def _walk(self) -> dict[tuple, Any]:
        walk = _Walk(self._results)
        for number, root in enumerate(self._roots):
            walk.add(("", number), root)
        while walk.todo:
            walk.look_into(*walk.todo.popleft())
        return walk.values


class _Walk:
    """A walk over all that can be reached.

    Attributes:
      values: by place. A place has an owner, the name of its attribute or variable and, in a
        container, the path from there.
      todo: places and objects to look into.
    """

    def __init__(self, ignored: set[tuple]) -> None:
        self.values: dict[tuple, Any] = {}
        self.todo: collections.deque[tuple[tuple, Any]] = collections.deque()
        self._ignored = ignored
        self._names = {"__call__"}
        self._owners: dict[int, Mapping[str, Any]] = {}  # By id.
        self._seen: dict[int, Any] = {}  # Objects by id.

    def add(self, place: tuple, value: Any) -> None:
        """Notes a plain value, or an object to look into."""
        kind = type(value)
        if kind in _PLAIN:
            self.values[place] = kind, value
        elif isinstance(value, enum.Enum):
            self.values[place] = kind, value.name
        elif isinstance(value, (np.ndarray, np.generic)):
            is_small = value.nbytes <= _LARGEST and not value.dtype.hasobject
            content = value.tobytes() if is_small else id(value)
            self.values[place] = value.dtype.str, value.shape, content
        elif id(value) in self._seen:
            self.values[place] = id(value)
        elif len(self._seen) < _MOST:
            self._seen[id(value)] = value
            self.todo.append((place, value))

    def look_into(self, place: tuple, value: Any) -> None:
        """Adds what an object consists of."""
        parts = _parts(value)
        if parts is not None:
            self._add_all(place, parts)
        elif isinstance(value, (set, frozenset)):
            self.values[place] = frozenset(item for item in value if type(item) in _PLAIN)
        elif isinstance(value, types.FunctionType):
            self._look_into_function(place, value)
        elif isinstance(value, types.ModuleType):
            if not _is_of_library(value.__name__):
                self._add_owner(id(vars(value)), vars(value))
        else:
            self._look_into_instance(place, value)

    def _look_into_function(self, place: tuple, function: types.FunctionType) -> None:
        self.values[place] = function.__code__
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            self._add_unless_result((id(cell), name), _content(cell))
        self._add_all((*place, "defaults"), function.__defaults__ or ())
        self._add_all((*place, "keywords"), [*(function.__kwdefaults__ or {}).items()])
        if not _is_of_library(function.__module__ or ""):
            new = _names(function.__code__) - self._names
            self._names |= new
            for owner, attributes in self._owners.items():
                self._look_for(new, owner, attributes)
            self._add_owner(id(function.__globals__), function.__globals__)

    def _look_into_instance(self, place: tuple, value: Any) -> None:
        self.values[place] = owner = id(value)
        if isinstance(value, type(tf.compat.v1.flags.FLAGS)):
            value = flags.FLAGS
        if isinstance(value, flags.FlagValues):
            self._add_owner(owner, {name: value[name].value for name in value})
        elif isinstance(value, _NAMESPACES):
            self._add_owner(owner, vars(value))
        elif isinstance(value, type):
            self._add_classes(value)
            self.add((*place, "__init__"), getattr(value, "__init__", None))
        elif not _is_of_library(type(value).__module__):
            attributes = getattr(value, "__dict__", {})
            if hasattr(type(value), "__getattr__"):  # It may use other names.
                self._add_all((*place, "attributes"), [*attributes.values()])
            self._add_owner(owner, attributes)
            self._add_classes(type(value))

    def _add_classes(self, cls: type) -> None:
        for base in cls.__mro__:
            if not _is_of_library(base.__module__):
                self._add_owner(id(base), vars(base))

    def _add_all(self, place: tuple, items: Sequence[Any]) -> None:
        length = (*place, "length")
        self.values[length] = len(items)
        if len(items) <= _LONGEST:
            for number, item in enumerate(items):
                self.add((*place, number), item)

    def _add_owner(self, owner: int, attributes: Mapping[str, Any]) -> None:
        """Adds an object with attributes, and looks for all names in it."""
        if owner not in self._owners:
            self._owners[owner] = attributes
            self._look_for(self._names, owner, attributes)

    def _look_for(self, names: Collection[str], owner: int, attributes: Mapping[str, Any]) -> None:
        for name in attributes.keys() & names:
            self._add_unless_result((owner, name), attributes[name])

    def _add_unless_result(self, place: tuple, value: Any) -> None:
        if place not in self._ignored:
            self.add(place, value)


def _parts(value: Any) -> Sequence[Any] | None:
    """Returns what a container, a bound method or a wrapper holds; None if it is something else."""
    if isinstance(value, (dict, collections.UserDict, types.MappingProxyType)):
        return [*value.items()]
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    return (value.fget,) if isinstance(value, property) else None


def _content(cell: types.CellType) -> Any:
    """Returns what a cell holds; None if it holds nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


@functools.lru_cache(maxsize=10_000)
def _names(code: types.CodeType) -> frozenset[str]:
    """Returns the globals and attributes that a function and those inside it name."""
    inside = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return frozenset(code.co_names).union(*inside)
