"""The module that `import tensorflow` gives to a program of TensorFlow 1."""

from __future__ import annotations

import importlib
import importlib.util
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator.compat import v1
from estimator.compat.contrib import contrib_slim, make_contrib
from estimator.optimizer.cross_shard import CrossShardOptimizer

# The packages of TensorFlow that are the same in every version; most are private.
REAL = ("core", "compiler", "dtensor", "lite", "python", "tools", "tsl")
# What TensorFlow's v1 API has of Keras's, under the condition that tf-keras is installed.
_OF_KERAS = ("keras", "layers", "rnn_cell")


class ModuleOverlay(types.ModuleType):
    """A module with some names of its own, and all others of another module."""

    def __init__(self, name: str, own: Mapping[str, Any], below: Any) -> None:
        """Makes the module.

        Args:
          name: its name.
          own: the names that replace or complete those of the other module.
          below: the other module.
        """
        super().__init__(name, "TensorFlow's v1 API, completed by `estimator`.")
        self.__path__: list[str] = []
        vars(self).update(own)
        self._below = below

    def __getattr__(self, name: str) -> Any:
        """Returns a name of the other module.

        Raises:
          AttributeError: it has none; the message says what may be the reason.
        """
        if name == "__all__":
            return [name for name in dir(self) if not name.startswith("_")]
        is_private = name in REAL and not hasattr(self._below, name)  # `lite` is both.
        if is_private and self.__name__ == "tensorflow":
            return importlib.import_module(f"tensorflow.{name}")
        try:
            value = getattr(self._below, name)
            if name in _OF_KERAS:
                dir(value)  # Imports it.
                vars(self)[name] = value
        except (AttributeError, ImportError) as error:
            raise AttributeError(_not_there(f"{self.__name__}.{name}")) from error
        return value

    def __dir__(self) -> list[str]:
        """Lists the names of both."""
        return sorted({*vars(self), *dir(self._below)})


def make_v1_api() -> ModuleOverlay:
    """Makes the module `tensorflow`, as of version 1."""
    api = tf.compat.v1
    contrib = make_contrib(has_slim=contrib_slim.is_installed())
    own: dict[str, Any] = {"contrib": contrib, "estimator": v1}
    own["nn"] = ModuleOverlay("tensorflow.nn", {}, api.nn)
    own["tpu"] = ModuleOverlay(
        "tensorflow.tpu", {"CrossShardOptimizer": CrossShardOptimizer}, api.tpu
    )
    module = ModuleOverlay("tensorflow", own, api)
    vars(module)["compat"] = ModuleOverlay(
        "tensorflow.compat", {"v1": module, "v2": tf}, api.compat
    )
    return module


def _not_there(path: str) -> str:
    """Says that a name of the v1 API is not there, and what may help."""
    short = path.replace("tensorflow", "tf", 1)
    if path.rpartition(".")[2] in _OF_KERAS:
        if importlib.util.find_spec("tf_keras") is None:
            return f"{short} needs tf-keras, which is not installed: pip install tf-keras."
        return (
            f"{short} needs tf-keras as tf.keras: set the environment variable "
            "TF_USE_LEGACY_KERAS=1, which is the default of `python -m estimator.compat`."
        )
    return (
        f"{short} is not in the v1 API of TensorFlow {tf.__version__}. "
        f"`python -m estimator.compat --check` lists all such names of a program."
    )
