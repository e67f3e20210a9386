"""Modules that are made of a table: `tensorflow_estimator.python.estimator.*` and the like."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from estimator.compat.module_table import GONE, NAMES, SPACES
from estimator.config.checks import did_you_mean

# How to get the value of each name of a module, on its first use.
Sources = Mapping[str, Callable[[], Any]]
# The packages that have the modules of the table.
_PACKAGES = ("tensorflow_estimator.python.estimator", "tensorflow.python.estimator")
_ROOTS = ("tensorflow_estimator", "tensorflow.python.estimator")
# Modules beside those of a package that is still there.
_BESIDE = {
    f"tensorflow.python.tpu.{name}": f"tpu.{name}"
    for name in ("tpu_config", "tpu_context", "tpu_estimator")
}


class TableModule(types.ModuleType):
    """A module whose names get their values when they are used."""

    def __init__(
        self,
        name: str,
        sources: Sources,
        explain: Callable[[str], str],
        names: Iterable[str] | None = None,
    ) -> None:
        """Makes a package without values.

        Args:
          name: its name.
          sources: how to get its values.
          explain: takes the path of a name that is not provided; says what replaces it.
          names: those of the names that `__all__` lists; None for all.
        """
        super().__init__(name, "The names of an old package, provided by `estimator`.")
        self.__path__: list[str] = []
        self.__all__ = sorted(sources if names is None else names)
        self._sources = sources
        self._explain = explain

    def __getattr__(self, name: str) -> Any:
        """Gets the value of a name.

        Raises:
          AttributeError: it is not provided; the message says what replaces it.
        """
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name not in self._sources:
            raise AttributeError(self._explain(f"{self.__name__}.{name}"))
        value = vars(self)[name] = self._sources[name]()
        return value

    def __dir__(self) -> list[str]:
        """Lists the module's attributes and names, with a value or not yet."""
        return sorted({*vars(self), *self._sources})


class TableFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of the table; to be the first in `sys.meta_path`."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the table; None for modules of other packages.

        Raises:
          ModuleNotFoundError: a module of the old package that is not provided.
        """
        if not _is_old(name):
            return None
        sources = _sources(name)
        if sources is None:
            # Without the error's `name`, `from module import name` shows this message.
            raise ModuleNotFoundError(_not_provided(name))
        return importlib.machinery.ModuleSpec(name, self, loader_state=sources, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> TableModule:
        """Makes a module of the table."""
        return TableModule(spec.name, spec.loader_state, _not_provided)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing: the module is complete."""


def old_modules_loaded() -> dict[str, types.ModuleType]:
    """Returns those of the old package's modules that were imported, ours or not."""
    return {name: module for name, module in sys.modules.items() if _is_old(name)}


def find(name: str, place: str = "") -> Any:
    """Returns the library's value of a name of the table, or what is at a place in `estimator`."""
    if place:
        *modules, attribute = place.split(".")
        return getattr(importlib.import_module(".".join(["estimator", *modules])), attribute)
    spaces = map(importlib.import_module, SPACES)
    return next(getattr(m, name) for m in spaces if name in getattr(m, "__all__", vars(m)))


def _is_old(name: str) -> bool:
    return name in _BESIDE or any(name == root or name.startswith(root + ".") for root in _ROOTS)


def _short(name: str) -> str:
    """Returns a module's name as in the table; "" for the package itself."""
    for package in _PACKAGES:
        if name.startswith(package + "."):
            return name[len(package) + 1 :]
    return _BESIDE.get(name, "")


def _sources(name: str) -> Sources | None:
    """Returns how to get the values of a module's names; None if there is no such module."""
    if name == "tensorflow_estimator":
        return {"estimator": _importer("estimator"), "python": _importer(f"{name}.python")}
    if name == "tensorflow_estimator.python":
        return {"estimator": _importer(f"{name}.estimator")}
    short = _short(name)
    if name not in _PACKAGES and short not in NAMES:
        return None
    sources = dict(_parsed(name, entry) for entry in NAMES.get(short, "").split())
    for child in NAMES:
        parent, _, last = child.rpartition(".")
        if parent == short:
            sources[last] = _importer(f"{name}.{last}")
    return sources


def _importer(name: str) -> Callable[[], Any]:
    return lambda: importlib.import_module(name)


def _parsed(module: str, entry: str) -> tuple[str, Callable[[], Any]]:
    name, _, place = entry.partition("=")
    if name.endswith("!"):
        return name[:-1], lambda: _placeholder(module, name[:-1])
    return name, lambda: find(name, place)


def _placeholder(module: str, name: str) -> type:
    """Makes a class whose call, or whose subclass's, is an error that says that it is missing."""

    def refuse(cls: type, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(_not_provided(f"{module}.{name}"))

    return type(name, (), {"__new__": refuse, "__doc__": "Is not provided."})


def _not_provided(name: str) -> str:
    """Says that a module, or a name of a module, is not provided, and what replaces it."""
    parent, _, last = name.rpartition(".")
    keys = [f"{_short(parent)}:{last}"]
    module = _short(name)
    while module:
        keys.append(module)
        module = module.rpartition(".")[0]
    way_out = next((GONE[key] for key in keys if key in GONE), None)
    return (
        f"{name} is not provided by the `estimator` package, which stands in for tf.estimator. "
        + (way_out or did_you_mean(last, _sources(parent) or NAMES))
    )
