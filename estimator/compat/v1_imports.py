"""What `import tensorflow` means in the modules of a program of TensorFlow 1."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import sysconfig
import types
from collections.abc import Mapping, Sequence
from typing import Any

from estimator.compat.script import check_is_python_3
from estimator.compat.v1_api import REAL, ModuleOverlay

_REAL_NAMES = tuple(f"tensorflow.{name}" for name in REAL)


def v1_builtins(api: ModuleOverlay) -> dict[str, Any]:
    """Returns builtins whose `__import__` gives `api` for `tensorflow`, for the program's modules.

    Installed packages, TensorFlow's own among them, import the real one; so what is decided is
    decided for each module that imports, and `sys.modules` stays as it is.
    """

    def import_module(
        name: str,
        globals_: Mapping[str, Any] | None = None,
        locals_: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Imports as the builtin does, except `tensorflow`."""
        if level or name.split(".")[0] != "tensorflow":
            return builtins.__import__(name, globals_, locals_, fromlist or (), level)
        module = _find_module(api, name)
        if not fromlist:
            return api
        for wanted in fromlist:
            if wanted != "*":
                _check_has(module, name, wanted)
        return module

    return {**vars(builtins), "__import__": import_module}


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
    """Finds the modules of the program itself, so that they get its builtins."""

    def __init__(self, own_builtins: dict[str, Any], packages: Sequence[str] = ()) -> None:
        """Takes the names of the installed packages that are parts of the program, too."""
        self._builtins = own_builtins
        self._packages = set(packages)
        paths = sysconfig.get_paths()
        ours = pathlib.Path(__file__).parents[1]
        self._others = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        self._others += [str(ours), str(ours.with_name("estimator_launch"))]

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the program; None for others."""
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        is_listed = name.split(".")[0] in self._packages
        if not is_listed and self._is_installed(spec.loader.path):
            return None
        spec.loader = _Loader(name, spec.loader.path, self._builtins)
        return spec

    def _is_installed(self, path: str) -> bool:
        parts = pathlib.Path(path).parts
        if "site-packages" in parts or "dist-packages" in parts:
            return True
        return any(pathlib.Path(path).is_relative_to(other) for other in self._others)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, own_builtins: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = own_builtins

    # typeshed knows the static method of another base alone.
    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, **options: Any
    ) -> types.CodeType:
        try:
            return super().source_to_code(data, path, **options)
        except SyntaxError as error:
            check_is_python_3(data, path, error)
            raise

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)
