"""The values outside of its arguments that a `model_fn` reads, such as flags and attributes."""

from __future__ import annotations

import argparse
import collections
import contextlib
import dis
import enum
import functools
import pathlib
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
_LRU_CACHED = type(functools.lru_cache(lambda: None))
# Methods that an operator does not call while a graph is built.
_NOT_IMPLIED = frozenset(
    f"__{name}__"
    for name in ("init", "new", "del", "repr", "reduce", "reduce_ex", "getstate", "setstate")
)
_ROOT = "root"  # In the place of an owner. A root itself is never a result.
_LENGTH = ("length",)  # In the place of a key, which is never a tuple.
_LONGEST = 1000  # Items of a container.
_DEEPEST = 20  # Steps of a path in nested containers.
_LARGEST = 1 << 16  # Bytes of an array.
_MOST = 10_000  # Values and objects in all.


class OutsideValues:
    """Finds the values that a `model_fn` can read besides its arguments.

    These are plain values and small arrays in closures, default values, globals, flags of absl, and
    attributes of objects and modules. A global or an attribute counts if its name is in the code of
    `model_fn` or of a function that can be reached from it. Objects of libraries are opaque: they
    count as what they are, not for what is in them. So do modules and classes of other installed
    packages, which may be large, but not their objects and functions. What has changed during a
    call of `model_fn` is a result, and does not count from then on.
    """

    def __init__(self, roots: Iterable[Any], results: set[tuple]) -> None:
        """Looks at nothing yet.

        Args:
          roots: `model_fn` and its params, which are not copied for each call.
          results: places of results. More are added to it.
        """
        self._roots = roots
        self._results = results

    def find(self) -> frozenset:
        """Returns the values with the places they are at; equal if none has changed."""
        return frozenset(self._walk().values.items())

    @contextlib.contextmanager
    def noting_results(self) -> Iterator[None]:
        """Takes what changes in the block, a call of `model_fn`, for its results."""
        before = self._walk()
        yield
        after = self._walk()
        changed = {place for place, _ in before.values.items() ^ after.values.items()}
        # Of an object that is new, there is nothing to ignore but where it was put.
        known = before.owners & after.owners - {_ROOT}
        self._results.update(place for place in changed if place[0] in known)

    def _walk(self) -> _Walk:
        walk = _Walk(self._results)
        for number, root in enumerate(self._roots):
            walk.add((_ROOT, number), root)
        walk.finish()
        return walk


class _Identity:
    """An object for what it is, which is kept alive only if its type has no weak references.

    The `id` alone would be that of another object some time after this one is gone.
    """

    def __init__(self, value: Any) -> None:
        try:
            self._get: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._get = lambda: value
        self._hash = id(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        value = self._get()
        return isinstance(other, _Identity) and value is not None and value is other._get()


class _Walk:
    """A walk over all that can be reached.

    Attributes:
      values: by place. A place has an owner, the name of its attribute or variable and, in a
        container, the path from there.
      owners: the owners of all places, ignored ones included.
    """

    def __init__(self, ignored: set[tuple]) -> None:
        self.values: dict[tuple, Any] = {}
        self.owners: set[Any] = set()
        self._ignored = ignored
        self._todo: collections.deque[tuple[tuple, Any]] = collections.deque()
        self._seen: dict[int, Any] = {}  # Objects by id.
        self._globals: set[str] = set()
        self._attributes = {"__call__"}
        # Variables of modules and attributes of objects, by id.
        self._modules: dict[int, Mapping[str, Any]] = {}
        self._objects: dict[int, Mapping[str, Any]] = {}

    def add(self, place: tuple, value: Any) -> None:
        """Notes a plain value, or an object to look into; runs no code of the object's class."""
        kind = type(value)
        self.owners.add(place[0])
        if place in self._ignored or len(self.values) + len(self._todo) >= _MOST:
            return
        if kind in _PLAIN:
            self.values[place] = kind, value
        elif issubclass(kind, enum.Enum):
            self.values[place] = kind, value.name
        elif kind is np.ndarray or issubclass(kind, np.generic):
            is_small = value.nbytes <= _LARGEST and not value.dtype.hasobject
            content = hash(value.tobytes()) if is_small else _Identity(value)
            self.values[place] = value.dtype.str, value.shape, content
        elif id(value) in self._seen or len(place) > _DEEPEST:
            self.values[place] = _Identity(value)
        else:
            self._seen[id(value)] = value
            self._todo.append((place, value))

    def finish(self) -> None:
        """Looks into all objects."""
        while self._todo:
            place, value = self._todo.popleft()
            try:
                self._look_into(place, value)
            except Exception:  # Proxies and properties may raise anything.
                self.values[place] = _Identity(value)

    def _look_into(self, place: tuple, value: Any) -> None:
        kind = type(value)
        parts = _parts(kind, value)
        if parts is not None:
            self._add_all(place, enumerate(parts), len(parts), value)
        elif issubclass(kind, (set, frozenset)):
            self.values[place] = frozenset(item for item in value.copy() if type(item) in _PLAIN)
        elif issubclass(kind, (dict, collections.UserDict, types.MappingProxyType)):
            items = enumerate([*value.items()])
            keyed = ((k, v) if type(k) in _PLAIN else (number, v) for number, (k, v) in items)
            self._add_all(place, keyed, len(value), value)
        elif issubclass(kind, functools.partial):
            self.add((id(value), "func"), value.func)
            for key, argument in [*enumerate(value.args), *value.keywords.items()]:
                self.add((id(value), key), argument)
        elif kind is types.FunctionType:
            self._look_into_function(place, value)
        elif issubclass(kind, types.ModuleType):
            if not _is_installed(value.__name__):
                self._add_owner(self._objects, self._attributes, id(vars(value)), vars(value))
        else:
            self._look_into_instance(place, value)

    def _look_into_function(self, place: tuple, function: types.FunctionType) -> None:
        self.values[place] = function.__code__
        names = function.__code__.co_freevars
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # It may hold nothing yet.
                self.add((id(cell), name), cell.cell_contents)
        own = {**(function.__kwdefaults__ or {}), **function.__dict__}
        for number, value in enumerate(function.__defaults__ or ()):
            self.add((id(function), number), value)
        for name, value in own.items():
            self.add((id(function), name), value)
        if not _is_of_library(function.__module__ or ""):
            self._add_names(function.__code__)
            variables = function.__globals__
            self._add_owner(self._modules, self._globals, id(variables), variables)

    def _look_into_instance(self, place: tuple, value: Any) -> None:
        self.values[place] = _Identity(value)
        owner, kind = id(value), type(value)
        if kind is type(tf.compat.v1.flags.FLAGS):
            value = flags.FLAGS
        if issubclass(type(value), flags.FlagValues):
            found = {name: value[name].value for name in value}
            self._add_owner(self._objects, self._attributes, owner, found)
        elif issubclass(kind, flags.FlagHolder):
            self.add((owner, "value"), value.value)
        elif issubclass(kind, type):
            self._add_classes(value, ("__init__",))
        elif issubclass(kind, _NAMESPACES) or not _is_of_library(kind.__module__):
            self._add_classes(kind)
            attributes = _attributes(value)
            if hasattr(kind, "__getattr__"):  # It may use other names.
                self._add_all(place, attributes.items(), len(attributes), value)
            self._add_owner(self._objects, self._attributes, owner, attributes)

    def _add_classes(self, cls: type, implied: Collection[str] = ()) -> None:
        for base in cls.__mro__:
            if not _is_installed(base.__module__):
                for name, value in vars(base).items():
                    if type(value) is types.FunctionType and (name in implied or _is_implied(name)):
                        self.add((id(base), name), value)
                self._add_owner(self._objects, self._attributes, id(base), vars(base))

    def _add_all(
        self, place: tuple, items: Iterable[tuple[Any, Any]], num_items: int, whole: Any
    ) -> None:
        """Adds the items of a container, with their keys; of a long one, only what it is."""
        is_long = num_items > _LONGEST
        length = (*place, _LENGTH)
        if length not in self._ignored:
            self.values[length] = num_items, _Identity(whole) if is_long else None
        for key, value in () if is_long else items:
            self.add((*place, key), value)

    def _add_names(self, code: types.CodeType) -> None:
        """Adds the names in a function's code, and looks for them in all owners."""
        variables, attributes = _names(code)
        for known, new, owners in (
            (self._globals, variables - self._globals, self._modules),
            (self._attributes, attributes - self._attributes, self._objects),
        ):
            known.update(new)
            for owner, values in owners.items():
                self._look_for(new, owner, values)

    def _add_owner(
        self,
        owners: dict[int, Mapping[str, Any]],
        names: Collection[str],
        owner: int,
        values: Mapping[str, Any],
    ) -> None:
        """Adds a module or an object with attributes, and looks for all names in it."""
        if owner not in owners:
            owners[owner] = values
            self._look_for(names, owner, values)

    def _look_for(self, names: Collection[str], owner: int, values: Mapping[str, Any]) -> None:
        for name in values.keys() & names:
            self.add((owner, name), values[name])


def _parts(kind: type, value: Any) -> Collection[Any] | None:
    """Returns what a container, a bound method or a wrapper holds; None if it is something else."""
    if issubclass(kind, (list, tuple, collections.deque)):
        return value
    if kind is types.MethodType:
        return value.__func__, value.__self__
    if issubclass(kind, (staticmethod, classmethod)):
        return (value.__func__,)
    if kind is _LRU_CACHED:
        return (value.__wrapped__,)
    return (value.fget,) if issubclass(kind, property) else None


def _attributes(value: Any) -> dict[str, Any]:
    """Returns the attributes that an object has in slots and in its dictionary."""
    found = {}
    for base in type(value).__mro__:
        for name, slot in vars(base).items() if "__slots__" in vars(base) else ():
            if type(slot) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # It may not be set.
                    found[name] = slot.__get__(value)
    return {**found, **getattr(value, "__dict__", {})}


def _is_implied(name: str) -> bool:
    """Returns whether a method of that name is called without being named, as by an operator."""
    return name.startswith("__") and name.endswith("__") and name not in _NOT_IMPLIED


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


@functools.cache
def _is_installed(module: str) -> bool:
    """Returns whether a module is of a library or of another package in `site-packages`."""
    path = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None) or ""
    parts = pathlib.PurePath(path).parts
    return _is_of_library(module) or not {"site-packages", "dist-packages"}.isdisjoint(parts)


@functools.lru_cache(maxsize=10_000)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the globals and the attributes that a function, and those inside it, name.

    What is written as a string may be the name of an attribute, too, as in `FLAGS["name"]`.
    """
    variables: set[str] = set()
    attributes = {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
    for part in dis.get_instructions(code):
        if part.argval in code.co_names:
            is_global = part.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            (variables if is_global else attributes).add(part.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            variables_inside, attributes_inside = _names(inner)
            variables |= variables_inside
            attributes |= attributes_inside
    return frozenset(variables), frozenset(attributes)
