"""Checks the arguments of `numpy_input_fn` and `pandas_input_fn`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_int


def checked_batching(
    batch_size: Any, num_epochs: Any, shuffle: Any, queue_capacity: Any, num_threads: Any
) -> dict[str, Any]:
    """Returns the arguments of `build_batches` other than the data; raises an error for others."""
    if not isinstance(shuffle, bool):
        raise ValueError(
            f"`shuffle` ({shuffle!r}) must be True or False. Say which: True to train, False to "
            "evaluate and to predict."
        )
    check_int("batch_size", batch_size)
    if num_epochs is not None:
        check_int("num_epochs", num_epochs)
    if queue_capacity is not None:
        check_int("queue_capacity", queue_capacity)
    check_int("num_threads", num_threads)
    return {
        "batch_size": int(batch_size),
        "num_epochs": None if num_epochs is None else int(num_epochs),
        "shuffle": shuffle,
        "num_threads": int(num_threads),
    }


def check_rows(x: Any, y: Any) -> None:
    """Raises an error unless `x` and `y`, each an array or a dict of them, have equally many rows.

    Args:
      x: the features.
      y: the labels; None if there are none.

    Raises:
      ValueError: there are no arrays, their rows differ, or an array has no rows or no first
        dimension.
      TypeError: TensorFlow does not support the values.
    """
    named = {**named_arrays("x", x), **({} if y is None else named_arrays("y", y))}
    for name, array in named.items():
        if array.ndim == 0:
            raise ValueError(
                f"`{name}` ({array!r}) must have a first dimension, which is that of the rows."
            )
        _check_values(name, array)
    if len({len(array) for array in named.values()}) != 1:
        shapes = ", ".join(f"`{name}`: {array.shape}" for name, array in named.items())
        raise ValueError(f"`x` and `y` must have equally many rows. Their shapes are {shapes}.")
    if len(next(iter(named.values()))) == 0:
        raise ValueError("`x` must not be empty: it has no rows.")


def is_pandas(value: Any, *types: str) -> bool:
    """Returns whether a value has one of these types of pandas.

    Avoids an import: a caller with a frame has imported pandas.
    """
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, tuple(getattr(pandas, t) for t in types))


def named_arrays(argument: str, value: Any) -> dict[str, np.ndarray]:
    """Returns an array, or a dict of arrays, by their names in messages."""
    if not isinstance(value, dict):
        return {argument: value}
    return {f"{argument}[{name!r}]": array for name, array in value.items()}


def _check_values(name: str, array: np.ndarray) -> None:
    if array.dtype == object and not all(isinstance(v, str | bytes) for v in array.flat):
        raise WrongTypeError(
            f"`{name}` has missing values, values of different types, or other objects than "
            "strings. Convert it with astype, and give missing values a number or a string."
        )
    try:
        tf.as_dtype(array.dtype)
    except TypeError as error:
        raise WrongTypeError(
            f"`{name}` has the dtype {array.dtype}, which TensorFlow does not support. Convert it "
            "to numbers or strings with astype."
        ) from error
