"""`tf.contrib`, as far as programs with Estimators use it: a file for each of its packages.

The files hold plain names. `contrib` wraps each in a module that answers to the old, longer paths
too, such as `tf.contrib.tpu.python.tpu.tpu_config`, and says what replaces a name that is missing.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

from estimator.compat.contrib.packages import GONE, INNER, PACKAGES
from estimator.config.checks import did_you_mean


class ContribPackage(types.ModuleType):
    """A package of `tf.contrib`, or one of the modules inside it, which all have its names."""

    def __init__(self, name: str, file: str) -> None:
        """Makes a module of a file's names, which is imported on the first use of a name."""
        super().__init__(name, "Names of tf.contrib, provided by `estimator`.")
        self.__path__: list[str] = []
        self._file = file

    def __getattr__(self, name: str) -> Any:
        """Returns the package's name, or the module of the old package inside it.

        Raises:
          AttributeError: it is not provided; the message says what replaces it.
        """
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        names = importlib.import_module(f"estimator.compat.contrib.{self._file}")
        if name == "__all__":
            return names.__all__
        if name in names.__all__:
            value = getattr(names, name)
        elif name in INNER.get(self._file, "").split() or name == "python":
            value = ContribPackage(f"{self.__name__}.{name}", self._file)
        else:
            raise AttributeError(_not_provided(f"{self.__name__}.{name}", names.__all__))
        vars(self)[name] = value
        return value

    def __dir__(self) -> list[str]:
        """Lists the names that are provided."""
        return list(self.__all__)


class Contrib(types.ModuleType):
    """`tf.contrib` itself: its packages, made on first use."""

    def __init__(self) -> None:
        """Makes the module, without packages yet."""
        super().__init__("tensorflow.contrib", "Names of tf.contrib, provided by `estimator`.")
        self.__path__: list[str] = []
        self.__all__ = sorted(PACKAGES)

    def __getattr__(self, name: str) -> Any:
        """Returns a package.

        Raises:
          AttributeError: it is not provided; the message says what replaces it.
        """
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name not in PACKAGES:
            raise AttributeError(_not_provided(f"tensorflow.contrib.{name}", PACKAGES))
        package = ContribPackage(f"tensorflow.contrib.{name}", PACKAGES[name])
        vars(self)[name] = package
        return package


contrib = Contrib()


def _not_provided(path: str, known: Any) -> str:
    """Says that a name is not provided, and what replaces it."""
    short = path.removeprefix("tensorflow.contrib.")
    package, last = short.split(".")[0], short.rpartition(".")[2]
    instead = GONE.get(f"{package}.{last}") or GONE.get(last if "." not in short else package)
    near = did_you_mean(last, known)
    if not near.startswith("Did"):
        near = f"`dir(tf.contrib.{package})` lists what is." if package in PACKAGES else near
    return f"tf.contrib.{short} is not provided by estimator.compat. {instead or near}"
