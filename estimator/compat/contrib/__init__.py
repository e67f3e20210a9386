"""`tf.contrib`, as far as programs with Estimators use it: a file for each of its packages.

A file defines what has no equal today; `packages.NAMES` says where all names are, except those of
tf-slim. `make_contrib` makes each package a module that answers to the old, longer paths too, such
as `tf.contrib.tpu.python.tpu.tpu_config`, and says what replaces a name that is missing.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator.compat.contrib import contrib_slim
from estimator.compat.contrib.packages import GONE, NAMES, PACKAGES
from estimator.compat.modules import TableModule

# How alike a name must be to one that is provided to be taken for a slip; 1 means equal. The second
# is for packages of which it is known what replaces the names that are not provided.
_ALIKE, _ALMOST_EQUAL = 0.6, 0.9


def make_contrib(has_slim: bool) -> TableModule:
    """Makes `tf.contrib`, with the names of tf-slim or without."""
    packages = sorted({*PACKAGES, *(contrib_slim.MODULES if has_slim else ())})
    sources = {
        name: functools.partial(_package, name, f"tensorflow.contrib.{name}", has_slim)
        for name in packages
    }
    explain = functools.partial(_not_provided, known=packages, has_slim=has_slim)
    return TableModule("tensorflow.contrib", sources, explain)


def _package(package: str, path: str, has_slim: bool) -> TableModule:
    """Makes a package, or one of the modules inside it, which all have its names."""
    sources: dict[str, Callable[[], Any]] = {}
    for place, entries in NAMES.get(package, {}).items():
        for entry in entries.split():
            name, _, today = entry.partition("=")
            if not place.startswith("tf.") or hasattr(_module(place), today or name):
                sources[name] = functools.partial(_find, place, today or name)
    modules = {"python", package, *PACKAGES.get(package, "").split()}
    if has_slim:
        sources = contrib_slim.completed(package, sources)
        modules |= contrib_slim.modules_of(package)
    inner = {
        name: functools.partial(_package, package, f"{path}.{name}", has_slim) for name in modules
    }
    explain = functools.partial(_not_provided, known=sources, has_slim=has_slim)
    return TableModule(path, {**inner, **sources}, explain, sources)


def _find(place: str, name: str) -> Any:
    return getattr(_module(place), name)


def _module(place: str) -> Any:
    """Returns a part of TensorFlow, such as "tf.nn", a file of this package, or another module."""
    root, *parts = place.split(".")
    if root == "tf":
        return functools.reduce(getattr, parts, tf)
    return importlib.import_module(place if parts or root == "estimator" else f"{__name__}.{root}")


def _not_provided(path: str, known: Iterable[str], has_slim: bool) -> str:
    """Says that a name is not provided, and what replaces it."""
    gone = {name: way for name, way in GONE.items() if not (has_slim and "tf-slim" in way)}
    short = path.removeprefix("tensorflow.contrib.")
    package, last = short.split(".")[0], short.rpartition(".")[2]
    says = f"tf.contrib.{short} is not provided by estimator.compat."
    if instead := gone.get(f"{package}.{last}", gone.get(short)):
        return f"{says} {instead}"
    of_package = gone.get(package)
    cutoff = _ALMOST_EQUAL if of_package else _ALIKE
    if near := difflib.get_close_matches(last, list(known), n=1, cutoff=cutoff):
        return f"{says} Did you mean {near[0]!r}?"
    listed = f"tf.contrib.{package}" if package in PACKAGES else "tf.contrib"
    return f"{says} {of_package or f'`dir({listed})` lists what is.'}"
