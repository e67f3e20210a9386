"""`pandas_input_fn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from estimator.config.checks import WrongTypeError, check_instance
from estimator.input.in_memory_batches import build_batches
from estimator.input.in_memory_checks import check_rows, checked_batching, is_pandas
from estimator.input.input_calls import DatasetFn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int | None = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Returns an `input_fn` of a pandas DataFrame; see `numpy_input_fn`.

    Args:
      x: the features: a DataFrame, which is copied. Each column is a feature of shape [batch size].
      y: the labels: a Series gives labels of shape [batch size], a DataFrame gives a dict of them;
        None if there are none. The index must equal that of `x`.
      batch_size: rows per batch; the last batch of all epochs may have fewer.
      num_epochs: the number of passes over the rows; None to repeat forever.
      shuffle: required. True shuffles every epoch differently, by `tf_random_seed`.
      queue_capacity: ignored, as there is no queue.
      num_threads: the number of batches to take in parallel; their order is kept.
      target_column: a name for the labels, which no feature may have.

    Returns:
      An `input_fn` that yields a dict of features, or (features, labels); see `numpy_input_fn`.

    Raises:
      TypeError: `x` is not a DataFrame, `y` is neither a DataFrame nor a Series, a column's values
        are neither numbers nor strings, or an argument has the wrong type.
      ValueError: `shuffle` is not given, `x` is empty, has a column `target_column` or a duplicate
        column, or the indexes differ.
    """
    batching = checked_batching(batch_size, num_epochs, shuffle, queue_capacity, num_threads)
    check_instance("target_column", target_column, str, "a string")
    _check_frame("x", x, "DataFrame")
    if y is not None:
        _check_labels(x, y, target_column)
    features, labels = _columns(x), None if y is None else _labels(y)
    check_rows(features, labels)
    return DatasetFn(build_batches, features if labels is None else (features, labels), **batching)


def _labels(y: Any) -> Any:
    return _columns(y) if is_pandas(y, "DataFrame") else np.array(y)


def _columns(frame: Any) -> dict[Any, np.ndarray]:
    """Returns copies of the columns, as the frame may change before the input is built."""
    return {name: np.array(frame[name]) for name in frame.columns}


def _check_frame(argument: str, value: Any, *types: str) -> None:
    if not is_pandas(value, *types):
        raise WrongTypeError(
            f"`{argument}` ({type(value).__name__}) must be a pandas {' or '.join(types)}. For "
            "arrays use numpy_input_fn."
        )
    columns = list(getattr(value, "columns", ["the labels"]))
    if not columns:
        raise ValueError(f"`{argument}` must not be empty: it has no columns.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"`{argument}` has a column twice: {columns}. Rename one.")


def _check_labels(x: Any, y: Any, target_column: str) -> None:
    _check_frame("y", y, "Series", "DataFrame")
    if target_column in x:
        raise ValueError(
            f"`target_column` ({target_column!r}) must not be a column of `x`: {list(x.columns)}. "
            "Pass another name."
        )
    if not np.array_equal(x.index, y.index):
        raise ValueError(
            f"`x` and `y` must have the same index; theirs are {x.index} and {y.index}. Bring them "
            "together with y.reindex(x.index), or number both with reset_index(drop=True)."
        )
