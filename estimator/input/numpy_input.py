"""`numpy_input_fn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.input.in_memory_batches import build_batches
from estimator.input.in_memory_checks import check_rows, checked_batching, is_pandas, named_arrays
from estimator.input.input_calls import DatasetFn


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Returns an `input_fn` of arrays in memory, which are neither put in a graph nor copied whole.

    Args:
      x: the features: an array or a pandas Series, or a dict of these, with rows along the first
        dimension. A dict is read each time the input is built, and its keys are sorted.
      y: the labels, in the same form and with as many rows; None if there are none.
      batch_size: rows per batch; the last batch of all epochs may have fewer.
      num_epochs: the number of passes over the rows; None to repeat forever.
      shuffle: required. True shuffles every epoch differently, by `tf_random_seed`.
      queue_capacity: ignored, as there is no queue.
      num_threads: the number of batches to take in parallel; their order is kept.

    Returns:
      An `input_fn` that yields features, or (features, labels). Called inside an `input_fn`, in a
      graph, it returns the next batch as tensors, which are a new batch in each session call.

    Raises:
      TypeError: `x` or `y` has another type, or a number is not an integer.
      ValueError: `shuffle` is not given, or the arrays are empty, have different numbers of rows,
        or share a name.
    """
    batching = checked_batching(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    _checked(x, y)
    return DatasetFn(_build, x, y, **batching)


def _build(x: Any, y: Any, **batching: Any) -> tf.data.Dataset:
    """Takes the dicts of the caller, who may have put other arrays into them since."""
    features, labels = _checked(x, y)
    return build_batches(features if labels is None else (features, labels), **batching)


def _checked(x: Any, y: Any) -> tuple[Any, Any]:
    """Returns the features and the labels, if there are any, as arrays, of dicts in key order."""
    x, y = _as_arrays(x), _as_arrays(y)
    _check_arrays("x", x)
    if y is not None:
        _check_names(x, y)
        _check_arrays("y", y)
    check_rows(x, y)
    return x, y


def _as_arrays(value: Any) -> Any:
    """Returns arrays for pandas Series and indexes, and dicts in the order of their keys."""
    if isinstance(value, dict):
        return {name: _as_arrays(value[name]) for name in sorted(value)}
    return np.asarray(value) if is_pandas(value, "Series", "Index") else value


def _check_arrays(argument: str, value: Any) -> None:
    if isinstance(value, dict) and not value:
        hint = "Leave it out if there are no labels." if argument == "y" else "Name a feature."
        raise ValueError(f"`{argument}` ({{}}) must not be empty. {hint}")
    for name, array in named_arrays(argument, value).items():
        if not isinstance(array, np.ndarray):
            or_dict = " or a dict of them" if name == argument else ""
            raise WrongTypeError(
                f"`{name}` ({type(array).__name__}) must be a NumPy array{or_dict}. Convert it "
                "with np.asarray."
            )


def _check_names(x: Any, y: Any) -> None:
    shared = x.keys() & y.keys() if isinstance(x, dict) and isinstance(y, dict) else ()
    if shared:
        raise ValueError(
            f"`x` and `y` both have {', '.join(map(repr, sorted(shared)))}. Rename one of the two."
        )
