"""The values outside of its arguments that a `model_fn` reads, such as flags and attributes."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import enum
import functools
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import flags

from estimator.model.names_in_code import Names, find_names
from estimator.model.object_contents import (
    NAMESPACES,
    PLAIN,
    Identity,
    attributes_of,
    functions_of,
    is_implied,
    is_installed,
    is_of_library,
    key_of,
    module_of,
    parts_of,
)

_ROOT = "root"  # In the place of an owner. A root itself is never a result.
# In the place of a key, where each tuple of `key_of` begins with a type.
_LENGTH, _KEY, _ATTRIBUTES = ("length",), ("key",), ("attributes",)
_DICTS = frozenset({collections.UserDict, types.MappingProxyType})  # `issubclass` is slow for ABCs.
_LONGEST = 1000  # Items of a container.
_DEEPEST = 20  # Steps of a path in nested containers.
_LARGEST = 1 << 16  # Bytes of an array.
_MOST = 10_000  # Values and objects in all.


class OutsideValues:
    """Finds the values that a `model_fn` can read besides its arguments.

    These are plain values and small arrays in closures, default values, globals, flags of absl, and
    attributes of objects and modules. A global or an attribute counts if its name is in the code of
    `model_fn` or of a function that can be reached from it; all do where that code reads them
    without their names, as by `vars`. Objects of libraries are opaque: they count as what they are,
    and for functions of the program that they call, not for what else is in them. So do modules and
    classes of other installed packages, which may be large, but not their objects and functions.
    What has changed during a call of `model_fn` is a result, and does not count from then on.
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
        self._reads_all_attributes = False
        # Variables of modules and attributes of objects, by id; without those that were added
        # whatever their names.
        self._modules: dict[int, Mapping[str, Any]] = {}
        self._objects: dict[int, Mapping[str, Any]] = {}

    def add(self, place: tuple, value: Any) -> None:
        """Notes a plain value, or an object to look into; runs no code of the object's class."""
        kind = type(value)
        self.owners.add(place[0])
        if place in self._ignored or len(self.values) + len(self._todo) >= _MOST:
            return
        if kind in PLAIN:
            self.values[place] = kind, value
        elif issubclass(kind, enum.Enum):
            self.values[place] = kind, value.name
        elif (kind is np.ndarray or issubclass(kind, np.generic)) and not _is_like_list(value):
            is_small = value.nbytes <= _LARGEST and not value.dtype.hasobject
            content = hash(value.tobytes()) if is_small else Identity(value)
            self.values[place] = value.dtype.str, value.shape, content
        elif kind in (bytearray, array.array):
            is_small = memoryview(value).nbytes <= _LARGEST
            content = hash(bytes(value)) if is_small else Identity(value)
            self.values[place] = kind, getattr(value, "typecode", None), content
        elif id(value) in self._seen or len(place) > _DEEPEST:
            self.values[place] = Identity(value)
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
                self.values[place] = Identity(value)

    def _look_into(self, place: tuple, value: Any) -> None:
        kind = type(value)
        if kind is types.FunctionType:
            self._look_into_function(place, value)
        elif self._look_into_container(place, value):
            if not is_of_library(kind.__module__):
                self._look_into_attributes(place, value)
        elif issubclass(kind, functools.partial):
            self.add((id(value), "func"), value.func)
            for key, argument in [*enumerate(value.args), *value.keywords.items()]:
                self.add((id(value), key), argument)
        elif issubclass(kind, types.ModuleType):
            if not is_installed(value.__name__):
                self._add_object(id(vars(value)), vars(value))
        else:
            self._look_into_instance(place, value)

    def _look_into_container(self, place: tuple, value: Any) -> bool:
        """Adds the items of a container; returns whether it is one."""
        kind = type(value)
        if kind is np.ndarray:
            self.values[place] = value.shape
        parts = parts_of(kind, value)
        if parts is not None:
            self._add_all(place, enumerate(parts), len(parts), value)
        elif issubclass(kind, (set, frozenset)):
            self._look_into_set(place, value)
        elif issubclass(kind, dict) or not _DICTS.isdisjoint(kind.__mro__):
            is_long = len(value) > _LONGEST
            items = [] if is_long else [(key_of(key), key, item) for key, item in value.items()]
            order = tuple(key for key, _, _ in items)
            self._add_all(place, ((key, item) for key, _, item in items), len(value), value, order)
            for shown, key, _ in items:
                if type(shown) is Identity:
                    self.add((*place, _KEY, shown), key)
        else:
            return False
        return True

    def _look_into_set(self, place: tuple, value: set | frozenset) -> None:
        items = value.copy()
        if len(items) > _LONGEST:
            self.values[place] = frozenset(item for item in items if type(item) in PLAIN)
            return
        keys = {key_of(item): item for item in items}
        self.values[place] = frozenset(keys)
        for key, item in keys.items():
            if type(key) is Identity:
                self.add((*place, _KEY, key), item)

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
        if not is_of_library(module_of(function)):
            self._add_names_of(function)

    def _look_into_instance(self, place: tuple, value: Any) -> None:
        self.values[place] = Identity(value)
        owner, kind = id(value), type(value)
        if kind is type(tf.compat.v1.flags.FLAGS):
            value = flags.FLAGS
        if issubclass(type(value), flags.FlagValues):
            self._add_object(owner, {name: value[name].value for name in value})
        elif issubclass(kind, flags.FlagHolder):
            self.add((owner, "value"), value.value)
        elif kind is contextvars.ContextVar:
            self.add((owner, "value"), value.get(None))
        elif issubclass(kind, type):
            self._add_classes(value, ("__init__",))
            self._add_classes(kind)
        elif issubclass(kind, NAMESPACES) or not is_of_library(kind.__module__):
            self._look_into_attributes(place, value)
        if is_installed(kind.__module__):
            for name, function in functions_of(value):
                self.add((owner, name), function)

    def _look_into_attributes(self, place: tuple, value: Any) -> None:
        kind = type(value)
        self._add_classes(kind)
        attributes = attributes_of(value)
        if hasattr(kind, "__getattr__"):  # It may use other names.
            self._add_all((*place, _ATTRIBUTES), attributes.items(), len(attributes), value)
        self._add_object(id(value), attributes)

    def _add_classes(self, cls: type, implied: Collection[str] = ()) -> None:
        for base in cls.__mro__:
            if not is_installed(base.__module__):
                for name, value in vars(base).items():
                    if type(value) is types.FunctionType and (name in implied or is_implied(name)):
                        self.add((id(base), name), value)
                self._add_object(id(base), vars(base))

    def _add_all(
        self,
        place: tuple,
        items: Iterable[tuple[Any, Any]],
        num_items: int,
        whole: Any,
        order: tuple = (),
    ) -> None:
        """Adds the items of a container, with their keys; of a long one, only what it is."""
        is_long = num_items > _LONGEST
        length = (*place, _LENGTH)
        if length not in self._ignored:
            self.values[length] = num_items, order, Identity(whole) if is_long else None
        for key, value in () if is_long else items:
            self.add((*place, key), value)

    def _add_names_of(self, function: types.FunctionType) -> None:
        """Adds the names in a function's code, and looks for them in all owners."""
        names, variables = find_names(function.__code__), function.__globals__
        is_own = not is_installed(module_of(function))
        self._add_names(names, reads_all_attributes=is_own and names.reads_all_attributes)
        owner = id(variables)
        if owner not in self._modules:
            self._modules[owner] = variables
            self._look_for(self._globals, owner, variables)
        if is_own and names.reads_all_variables:
            self._add_unnamed(self._modules, owner, self._globals)
        for module in names.modules(variables):
            self.add((_ROOT, module.__name__), module)

    def _add_names(self, names: Names, *, reads_all_attributes: bool) -> None:
        for known, new, owners in (
            (self._globals, names.variables - self._globals, self._modules),
            (self._attributes, names.attributes - self._attributes, self._objects),
        ):
            known.update(new)
            for owner, values in owners.items() if new else ():
                self._look_for(new, owner, values)
        if reads_all_attributes and not self._reads_all_attributes:
            self._reads_all_attributes = True
            for owner in self._objects:
                self._add_unnamed(self._objects, owner, self._attributes)

    def _add_object(self, owner: int, values: Mapping[str, Any]) -> None:
        """Adds an object or a module with attributes, and looks for all names in it."""
        if owner not in self._objects:
            self._objects[owner] = values
            self._look_for(self._attributes, owner, values)
            if self._reads_all_attributes:
                self._add_unnamed(self._objects, owner, self._attributes)

    def _add_unnamed(
        self, owners: dict[int, Mapping[str, Any]], owner: int, known: set[str]
    ) -> None:
        """Adds the values whose names are in no code, but for modules, which may be large."""
        values = {**owners[owner]}
        by_name = {
            name: value
            for name, value in values.items()
            if issubclass(type(value), types.ModuleType) or name.startswith("__")
        }
        self._look_for(values.keys() - by_name.keys() - known, owner, values)
        owners[owner] = by_name

    def _look_for(self, names: Collection[str], owner: int, values: Mapping[str, Any]) -> None:
        for name in values.keys() & names:
            self.add((owner, name), values[name])


def _is_like_list(value: np.ndarray | np.generic) -> bool:
    return type(value) is np.ndarray and value.dtype == object and value.size <= _LONGEST
