"""Finds, compiles and executes a script or a module as Python does."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib.machinery
import importlib.util
import os
import re
import sys
import types

# What Python 3 says of the most frequent statements and literals of Python 2.
_PYTHON_2 = (
    (re.compile(r"^\s*print(\s+[^=(]|\s*$)"), "a print statement"),
    (re.compile(r"^\s*exec\s+[^=(]"), "an exec statement"),
    (re.compile(r"^\s*except\s+[\w.()]+(\s*,\s*[\w.]+)*\s*,\s*\w+\s*:"), "`except X, e`"),
    (re.compile(r"^\s*raise\s+[\w.]+\s*,"), "`raise X, message`"),
    (re.compile(r"<>"), "the operator `<>`"),
    (re.compile(r"`[^`]+`"), "backquotes"),
    (re.compile(r"\b0\d+\b|\b\d+[lL]\b"), "an octal or long number"),
    (re.compile(r"\bur['\"]"), "a ur'' string"),
)


class ScriptError(Exception):
    """A script that cannot be run; the message is for the user."""


class Python2Error(ScriptError, SyntaxError):
    """A file of Python 2.

    Attributes:
      line: the number of the first line that Python 3 does not take.
      reason: what is in it, and what to do.
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        """Composes the message from its parts."""
        super().__init__(f"{path}:{line}: {reason}")
        self.line, self.reason = line, reason


@dataclasses.dataclass(frozen=True)
class Script:
    """A script or a module to run.

    Attributes:
      path: the absolute path of its file.
      package: what it is in: None for a script, "" for a folder.
      spec: the spec of a module; None for others.
    """

    path: str
    package: str | None = None
    spec: importlib.machinery.ModuleSpec | None = None


def find_script(name: str, is_module: bool) -> Script:
    """Finds a script or a module.

    Raises:
      ScriptError: it is not there.
    """
    if not is_module:
        if os.path.isdir(name) and os.path.isfile(os.path.join(name, "__main__.py")):
            return Script(os.path.abspath(os.path.join(name, "__main__.py")), package="")
        if not os.path.isfile(name):
            raise ScriptError(f"There is no script {name!r} in {os.getcwd()}.")
        return Script(os.path.abspath(name))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # A package of the module imports what is not there.
        spec = None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ScriptError(f"There is no module {name!r} of Python code that could be run.")
    return Script(spec.origin, spec.parent, spec)


def parse(path: str) -> ast.Module:
    """Parses a script.

    Raises:
      Python2Error: it is Python 2.
      SyntaxError: it is no Python at all.
    """
    with open(path, "rb") as file:
        source = file.read()
    try:
        return ast.parse(source, path)
    except SyntaxError as error:
        check_is_python_3(source, path, error)
        raise error.with_traceback(None) from None  # Python shows none either.


def check_is_python_3(source: bytes, path: str, error: SyntaxError) -> None:
    """Raises an error if Python 2 is what a syntax error is about.

    Raises:
      Python2Error: it is.
    """
    lines = source.decode("utf-8", "replace").splitlines()
    if error.lineno is None or not 0 < error.lineno <= len(lines):
        return
    line = lines[error.lineno - 1]
    # Not what is in strings and comments, and no fraction, as in 0.001.
    code = re.sub(r"""(['"]).*?\1|#.*|\d*\.\d+""", '""', line)
    what = next((what for pattern, what in _PYTHON_2 if pattern.search(code)), None)
    if what is not None:
        raise Python2Error(
            path,
            error.lineno,
            f"this is Python 2 ({what}): {line.strip()!r}. Convert the program to Python 3 first, "
            "for example with `2to3 -w` of Python 3.12 or older, or with python-modernize.",
        ) from None


def make_main(script: Script) -> types.ModuleType:
    """Makes the module `__main__` of a script and puts it into `sys.modules`."""
    main = types.ModuleType("__main__")
    main.__file__ = script.path
    main.__package__ = script.package
    main.__spec__ = script.spec
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main
