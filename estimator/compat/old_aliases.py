"""Names that NumPy and Python have removed, for programs that are not to be changed.

NumPy 1.24 removed those of Python's types, NumPy 2.0 many others; Python 3.10 removed those of
`collections`.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import inspect
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from estimator._tf.api_modules import supplied

_TYPES = {"bool": bool, "complex": complex, "float": float, "int": int, "long": int}
_TYPES |= {"object": object, "str": str, "unicode": str}
# By the old name, the new one.
_RENAMED = {
    "Inf": "inf",
    "Infinity": "inf",
    "NINF": "inf",
    "NaN": "nan",
    "PINF": "inf",
    "alltrue": "all",
    "complex_": "complex128",
    "cumproduct": "cumprod",
    "float_": "float64",
    "infty": "inf",
    "product": "prod",
    "row_stack": "vstack",
    "sometrue": "any",
    "string_": "bytes_",
    "trapz": "trapezoid",
    "unicode_": "str_",
}
_ABSTRACT = """
Callable Container Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView
MutableMapping MutableSequence MutableSet Sequence Set Sized ValuesView
"""


# What `inspect.getargspec` returned.
ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


@contextlib.contextmanager
def old_aliases() -> Iterator[None]:
    """Supplies the removed names inside the block; those that exist stay as they are."""
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings():
            # NumPy warns that such a name may mean something else one day.
            warnings.simplefilter("ignore", FutureWarning)
            for owner, name, value in aliases():
                # NumPy 2 has `np.bool` and `np.long` again, as its own types, which do, too.
                if name not in vars(owner):
                    stack.enter_context(supplied(owner, name, value))
        yield


def aliases() -> Iterator[tuple[Any, str, Any]]:
    """Yields each removed name: its module, the name, and the value that stands in for it."""
    for name, kind in _TYPES.items():
        yield np, name, kind
    for name, new in _RENAMED.items():
        yield np, name, -np.inf if name == "NINF" else getattr(np, new, None)
    yield np, "asscalar", lambda array: array.item()
    yield np, "in1d", _in1d
    for name in _ABSTRACT.split():
        yield collections, name, getattr(collections.abc, name)
    yield time, "clock", time.perf_counter
    yield inspect, "getargspec", lambda function: ArgSpec(*inspect.getfullargspec(function)[:4])


def _in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> np.ndarray:
    """Returns, for each element of the flattened first array, whether the second has it."""
    return np.isin(np.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)
