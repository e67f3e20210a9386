"""`tf.contrib`, as far as programs with Estimators use it: a file for each of its packages.

A file defines what has no equal today; `packages.SAME` says where the other names are. `contrib`
has each package as a module that answers to the old, longer paths too, such as
`tf.contrib.tpu.python.tpu.tpu_config`, and says what replaces a name that is missing.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator.compat.contrib.packages import ALL_SAME, GONE, PACKAGES, SAME
from estimator.compat.modules import TableModule
from estimator.config.checks import did_you_mean


def _package(package: str, path: str) -> TableModule:
    """Makes a package, or one of the modules inside it, which all have its names."""
    sources: dict[str, Callable[[], Any]] = {}
    for place, entries in SAME.get(package, {}).items():
        for entry in entries.split():
            name, _, today = entry.partition("=")
            sources[name] = functools.partial(_find, place, today or name)
    if package not in ALL_SAME:
        file = importlib.import_module(f"{__name__}.contrib_{package}")
        sources |= {name: functools.partial(getattr, file, name) for name in file.__all__}
    inner = {
        name: functools.partial(_package, package, f"{path}.{name}")
        for name in ("python", *PACKAGES[package].split())
    }
    explain = functools.partial(_not_provided, known=sources)
    return TableModule(path, {**inner, **sources}, explain, sources)


def _find(place: str, name: str) -> Any:
    """Returns a name of a module of this library, or of a part of TensorFlow, as in "tf.nn"."""
    root, *parts = place.split(".")
    if root == "tf":
        return functools.reduce(getattr, [*parts, name], tf)
    return getattr(importlib.import_module(place), name)


def _not_provided(path: str, known: Iterable[str]) -> str:
    """Says that a name is not provided, and what replaces it."""
    short = path.removeprefix("tensorflow.contrib.")
    package, last = short.split(".")[0], short.rpartition(".")[2]
    instead = GONE.get(f"{package}.{last}") or GONE.get(last if "." not in short else package)
    near = did_you_mean(last, known)
    if not near.startswith("Did"):
        near = f"`dir(tf.contrib.{package})` lists what is." if package in PACKAGES else near
    return f"tf.contrib.{short} is not provided by estimator.compat. {instead or near}"


contrib = TableModule(
    "tensorflow.contrib",
    {name: functools.partial(_package, name, f"tensorflow.contrib.{name}") for name in PACKAGES},
    functools.partial(_not_provided, known=PACKAGES),
)
