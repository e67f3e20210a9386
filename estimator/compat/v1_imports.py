"""What `import tensorflow` means in the modules of a program of TensorFlow 1."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import itertools
import os
import pathlib
import sysconfig
import types
from collections.abc import Mapping, Sequence
from typing import Any

from estimator.compat.script import check_is_python_3
from estimator.compat.v1_api import REAL, ModuleOverlay

_REAL_NAMES = tuple(f"tensorflow.{name}" for name in REAL)
_OURS = pathlib.Path(__file__).parents[1]
# The name in `sys.modules` of a program's own `estimator`: that one is this library's there.
_OWN = "estimator_of_program"
# The names of the module that is run, in this process and in those of `multiprocessing`.
_MAIN = ("__main__", "__mp_main__")


class ProgramImports:
    """The builtin `__import__` of a process that runs a program of TensorFlow 1.

    The program's modules get version 1 for `tensorflow`, and its own `estimator` if there is one.
    Installed packages, TensorFlow's own among them, get the real ones; so the choice is made for
    each importing module, and `sys.modules` stays as it is.
    """

    __name__ = "__import__"

    def __init__(self, api: ModuleOverlay | None, finder: ProgramFinder) -> None:
        """Creates the function.

        Args:
          api: what `tensorflow` is; None if that is TensorFlow itself.
          finder: says which modules are the program's.
        """
        self._api = api
        self._finder = finder
        self._import = builtins.__import__

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Imports as the builtin does, except `tensorflow` and `estimator`."""
        root = name.partition(".")[0]
        is_special = level == 0 and root in ("tensorflow", "estimator")
        if is_special and self._finder.has(*_importer(globals, inspect.currentframe())):
            if root == "tensorflow" and self._api is not None:
                return _import_v1(self._api, name, fromlist)
            name = self._finder.name_in_modules(name)
        return self._import(name, globals, locals, fromlist or (), level)


def _importer(globals_: Mapping[str, Any] | None, frame: types.FrameType | None) -> tuple[str, str]:
    """Returns the name and the file of the module that imports; of its caller if it has no file."""
    found: Any = globals_ or {}
    while found.get("__file__") is None and frame is not None:
        frame = frame.f_back  # The first one is of `ProgramImports`.
        found = {} if frame is None else frame.f_globals
    return str(found.get("__name__", "")), str(found.get("__file__") or "")


def _import_v1(api: ModuleOverlay, name: str, fromlist: Sequence[str] | None) -> Any:
    """Imports a module of version 1 as the builtin `__import__` does."""
    module = _find_module(api, name)
    if not fromlist:
        return api
    for wanted in fromlist:
        if wanted != "*":
            _check_has(module, name, wanted)
    return module


def _find_module(api: ModuleOverlay, name: str) -> Any:
    """Returns the module of this name.

    Raises:
      ModuleNotFoundError: there is none.
    """
    parts = name.split(".")[1:]
    if parts[:2] == ["compat", "v1"]:
        parts = parts[2:]
    if parts and parts[0] in REAL:
        return importlib.import_module(name)
    try:
        return functools.reduce(getattr, parts, api)
    except AttributeError as error:
        raise ModuleNotFoundError(str(error)) from None


def _check_has(module: Any, name: str, wanted: str) -> None:
    """Raises an error if `from name import wanted` would fail, with the reason."""
    try:
        getattr(module, wanted)
    except AttributeError as error:
        real = getattr(module, "__name__", "")
        if real.startswith(_REAL_NAMES):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{real}.{wanted}")
                return
        raise ImportError(str(error)) from None


class ProgramFinder(importlib.abc.MetaPathFinder):
    """Knows which modules are the program's, and loads them: to name what is Python 2 in them."""

    def __init__(self, folder: str, packages: Sequence[str] = ()) -> None:
        """Takes the folder of the program, and installed packages that are parts of it, too."""
        self._packages = set(packages)
        paths = sysconfig.get_paths()
        self._others = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        self._others += [str(_OURS), str(_OURS.with_name("estimator_launch"))]
        self._is_installed = functools.cache(self._find_out_if_installed)
        self._own = _find_own_estimator(folder)

    @property
    def has_own_estimator(self) -> bool:
        """Whether the program has a module or package `estimator` of its own."""
        return self._own is not None

    def name_in_modules(self, name: str) -> str:
        """Returns the name in `sys.modules` of what the program calls `name`."""
        root, *rest = name.split(".")
        return ".".join([_OWN, *rest]) if self._own is not None and root == "estimator" else name

    def has(self, name: str, path: str) -> bool:
        """Returns whether a module with this name and file is the program's."""
        is_listed = name in _MAIN or name.split(".")[0] in self._packages
        return is_listed or (bool(path) and not self._is_installed(path))

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the program; None for others."""
        if name == _OWN and self._own is not None:
            file = self._own.origin
            loader = _Loader(name, file) if file else None
            own = importlib.machinery.ModuleSpec(name, loader, origin=file)
            own.submodule_search_locations = self._own.submodule_search_locations
            own.has_location = bool(file)
            return own
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        if not self.has(name, spec.loader.path):
            return None
        spec.loader = _Loader(name, spec.loader.path)
        return spec

    def _find_out_if_installed(self, path: str) -> bool:
        parts = pathlib.Path(path).parts
        if "site-packages" in parts or "dist-packages" in parts:
            return True
        absolute = os.path.abspath(path)
        return any(pathlib.Path(absolute).is_relative_to(other) for other in self._others)


def _find_own_estimator(folder: str) -> importlib.machinery.ModuleSpec | None:
    """Finds a module or package `estimator` in a folder that is not this library."""
    found = importlib.machinery.PathFinder.find_spec("estimator", [folder])
    if found is None:
        return None
    if found.origin is not None:
        return None if _OURS.samefile(os.path.dirname(found.origin)) else found
    inside = itertools.chain.from_iterable(map(os.listdir, found.submodule_search_locations or ()))
    return found if any(name.endswith(".py") for name in inside) else None


class _Loader(importlib.machinery.SourceFileLoader):
    # typeshed knows the static method of another base alone.
    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, **options: Any
    ) -> types.CodeType:
        try:
            return super().source_to_code(data, path, **options)
        except SyntaxError as error:
            check_is_python_3(data, path, error)
            raise
