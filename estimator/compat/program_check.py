"""`python -m estimator.compat --check PATH`: what of a program works, without running it."""

from __future__ import annotations

import ast
import collections
import dataclasses
import importlib
import pathlib
import types
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from estimator.compat.script import Python2Error, ScriptError, parse
from estimator.compat.tensorflow_import import import_tensorflow

AS_IS, V2, INSTALL, RUNNER, OLD_NUMPY, MISSING = (
    "works as it is",
    "works as it is, and with the runner only by --no-v1-behavior",
    "works after estimator.install(), or with the runner",
    "needs the runner",
    "needs the runner with --old-numpy",
    "is not there",
)
_VERDICTS = (AS_IS, V2, INSTALL, RUNNER, OLD_NUMPY, MISSING)
# Packages whose names are looked up.
_ROOTS = ("tensorflow", "tensorflow_estimator", "numpy", "collections", "time", "inspect")
# What is reported under its full name, not as a part of `tf`.
_PRIVATE = ("tensorflow.python.", "tensorflow.core.", "tensorflow_estimator.")


@dataclasses.dataclass(frozen=True)
class Finding:
    """A name that a file uses, where, and what becomes of it.

    Attributes:
      file: the path of the file.
      lines: the lines that use it.
      name: the name as a dotted path, with "tf" for tensorflow.
      verdict: one of this module's constants.
      remark: what to write instead, or what else is needed.
    """

    file: str
    lines: tuple[int, ...]
    name: str
    verdict: str
    remark: str = ""

    def __str__(self) -> str:
        """Returns a line of the report."""
        more = f" (also {', '.join(map(str, self.lines[1:]))})" if self.lines[1:] else ""
        what = f"{self.name} {self.verdict}" + (f": {self.remark}" if self.remark else "")
        if self.remark.startswith(self.name):
            what = self.remark
        return f"{self.file}:{self.lines[0]}: {what}{more}"


def check(path: str) -> list[Finding]:
    """Looks up each name that a program uses.

    Args:
      path: a Python file, or a directory of them.

    Raises:
      ScriptError: there is no such file.
    """
    files = _python_files(path)
    judge = _Judge()
    found = []
    for file in files:
        try:
            tree = parse(str(file))
            compile(tree, str(file), "exec", dont_inherit=True)
        except Python2Error as error:
            found.append(Finding(str(file), (error.line,), "this", MISSING, error.reason))
            continue
        except SyntaxError as error:
            remark = f"this is no Python: {error.msg}"
            found.append(Finding(str(file), (error.lineno or 1,), "this", MISSING, remark))
            continue
        lines = collections.defaultdict(set)
        for name, line in uses_in(tree):
            lines[name].add(line)
        for name, places in sorted(lines.items(), key=lambda item: (min(item[1]), item[0])):
            verdict = judge.verdict(name)
            if verdict is not None:
                shown = (
                    name if f"{name}.".startswith(_PRIVATE) else name.replace("tensorflow", "tf", 1)
                )
                found.append(Finding(str(file), tuple(sorted(places)), shown, *verdict))
    return found


def report(findings: Sequence[Finding], path: str) -> str:
    """Returns the text that `--check` prints: all but what works, and how to run the program."""
    lines = [str(one) for verdict in _VERDICTS[1:] for one in findings if one.verdict == verdict]
    counts = collections.Counter(one.verdict for one in findings)
    lines += ["", *(f"{v}: {counts[v]}" for v in _VERDICTS if counts[v])]
    if not counts[MISSING]:
        lines.append(_way_to_run({verdict for verdict in _VERDICTS if counts[verdict]}, path))
    return "\n".join(lines).lstrip("\n")


def _way_to_run(verdicts: Collection[str], path: str) -> str:
    """Returns how to run a program whose names have these verdicts."""
    if {AS_IS, V2}.issuperset(verdicts):
        return "It runs as it is."
    if {V2, RUNNER}.issubset(verdicts):
        return "It has names of TensorFlow 1 alone and of TensorFlow 2 alone: change either."
    flags = "" if RUNNER in verdicts else " --no-v1-behavior"
    flags += " --old-numpy" if OLD_NUMPY in verdicts else ""
    script = pathlib.Path(path)
    if script.is_dir() and not (script / "__main__.py").exists():
        script /= "SCRIPT.py"
    needs_runner = {RUNNER, OLD_NUMPY}.intersection(verdicts)
    call = "Run it by" if needs_runner else "Call estimator.install() first, or run it by"
    return f"{call}: python -m estimator.compat{flags} {script}"


def uses_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields the full dotted path of each name of `_ROOTS`' packages in a file, and its line."""
    names: dict[str, str] = {}
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for short, full, path in _imports(node):
                names[short] = path
                yield full, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            inner.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            first, *rest = ast.unparse(node).split(".")
            # A call or an index in the chain is no identifier.
            if first in names and all(part.isidentifier() for part in rest):
                yield ".".join([names[first], *rest]), node.lineno


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str, str]]:
    """Yields what an import calls a name, the path that it imports, and the path of the name."""
    package = "" if isinstance(node, ast.Import) else f"{node.module or ''}."
    for alias in node.names:
        full = f"{package}{alias.name}".removesuffix(".*")
        first = full.split(".")[0]
        if first in _ROOTS and not getattr(node, "level", 0):
            is_bound_to_all = bool(package or alias.asname)
            short = alias.asname or (alias.name if package else first)
            yield short, full, full if is_bound_to_all else first


class _Judge:
    """Looks names up where the runner does."""

    def __init__(self) -> None:
        """Prepares the modules that a program gets."""
        import_tensorflow()
        import tensorflow as tf

        from estimator.compat.installation import install
        from estimator.compat.old_aliases import aliases
        from estimator.compat.v1_api import make_v1_api

        install()
        self._tf, self._api = tf, make_v1_api()
        self._old = {f"{o.__name__}.{name}" for o, name, _ in aliases() if name not in vars(o)}

    def verdict(self, name: str) -> tuple[str, str] | None:
        """Returns a verdict and a remark; None for a name of another package."""
        root, *parts = name.split(".")
        if root not in ("tensorflow", "tensorflow_estimator"):
            is_old = ".".join([root, *parts[:1]]) in self._old
            return (OLD_NUMPY, "") if is_old else None
        if root == "tensorflow_estimator" or parts[:2] == ["python", "estimator"]:
            return _imported(name, INSTALL)
        if parts[:1] == ["python"] or parts[:1] == ["core"]:
            return _imported(name, AS_IS)
        is_v1 = parts[:2] == ["compat", "v1"]
        rest = parts[2:] if is_v1 else parts
        if not rest:
            return AS_IS, ""
        error = _missing(self._api, rest)
        is_there = _missing(self._tf.compat.v1 if is_v1 else self._tf, rest) is None
        if error is not None:
            return (V2, "") if is_there else (MISSING, error)
        if rest[0] == "estimator" or rest[:2] == ["keras", "estimator"]:
            return INSTALL, ""
        if rest[0] == "layers" or rest[:2] == ["nn", "rnn_cell"]:
            return RUNNER, "with tf-keras"
        if rest[0] == "contrib":
            return RUNNER, ""
        return (AS_IS if is_there else RUNNER), ""


def _missing(module: Any, parts: Sequence[str]) -> str | None:
    """Returns why a name of nested modules is not there; None if it is."""
    value = module
    for part in parts:
        if not isinstance(value, types.ModuleType):
            return None
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError) as error:
            return str(error)
    return None


def _imported(name: str, verdict: str) -> tuple[str, str]:
    """Imports the longest part of a name that is a module, and looks the rest up."""
    parts = name.split(".")
    module: Any = None
    for i in range(len(parts)):
        try:
            module = importlib.import_module(".".join(parts[: i + 1]))
        except ImportError as error:
            if _missing(module, parts[i:]) is None:
                break
            if verdict == AS_IS:
                private = "it is private to TensorFlow, which has changed it; use the public API"
                return MISSING, private
            return MISSING, str(error)
    return verdict, ""


def _python_files(path: str) -> list[pathlib.Path]:
    found = pathlib.Path(path)
    if found.is_file():
        return [found]
    files = [file for file in found.rglob("*.py") if not _is_installed(file.relative_to(found))]
    if not files:
        raise ScriptError(f"There is no Python file {path!r}, and none in such a directory.")
    return sorted(files)


def _is_installed(file: pathlib.Path) -> bool:
    """Returns whether a file is in a virtual environment or another folder that is no program."""
    return any(part.startswith(".") or part == "site-packages" for part in file.parts)
