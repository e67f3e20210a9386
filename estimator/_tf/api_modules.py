"""The modules of TensorFlow's public API that old programs expect to have an `estimator`.

`tf.compat.v1`, `tf.compat.v2` and the nested ones of each are separate modules, so a name that is
added to one is missing in the others. Works since TensorFlow 2.16; checked with 2.21.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import tensorflow as tf
from tensorflow.python.util import lazy_loader

from estimator._tf.patches import Patch, patched


def api_modules(version: int) -> list[Any]:
    """Returns the modules that hold the API of TensorFlow 1 or 2, each once."""
    # `import tensorflow.compat.v1` gives another object than the attribute `tf.compat.v1`.
    waiting = [(importlib.import_module(f"tensorflow.compat.v{n}"), n) for n in (1, 2)]
    waiting.append((tf, 2))
    found: dict[int, tuple[Any, int]] = {}
    while waiting:
        module, its_version = waiting.pop()
        if id(module) in found:
            continue
        found[id(module)] = (module, its_version)
        compat = getattr(module, "compat", None)
        for name, number in (("v1", 1), ("v2", 2)):
            if hasattr(compat, name):
                waiting.append((getattr(compat, name), number))
    return [module for module, its_version in found.values() if its_version == version]


def keras_modules() -> list[Any]:
    """Returns the modules that the attributes `keras` of TensorFlow's API stand for, each once."""
    for name in ("tensorflow.keras", "tensorflow.compat.v1.keras", "tensorflow.compat.v2.keras"):
        # The first import of such a name replaces the attribute by a module of its own.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    found = {}
    for module in [*api_modules(1), *api_modules(2)]:
        keras = vars(module).get("keras")
        if isinstance(keras, lazy_loader.LazyLoader):
            dir(keras)  # Loads it.
            # What the loader copied would hide a replacement; without it, the module is asked.
            vars(keras).pop("estimator", None)
            keras = sys.modules[keras.__name__]
        if keras is not None:
            found[id(keras)] = keras
    return list(found.values())


def supplied(module: Any, name: str, value: Any) -> Patch:
    """Gives a module an attribute inside the block; afterwards it is missing, or as it was."""
    return patched(module, name, lambda original: value, may_be_missing=True)
