"""Datasets of batches from arrays in memory, without holding the arrays in the graph.

A graph with the arrays in it would copy them, and is limited to 2 GB. Here the graph holds only a
number for each batch, and a Python function takes its rows from the arrays. A checkpoint of the
position is then a few numbers and the prefetched batches, however the data is shuffled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.input.array_datasets import note_arrays

_NUM_AHEAD = 2  # Batches prefetched while a step runs.


def build_batches(
    structure: Any, *, batch_size: int, num_epochs: int | None, shuffle: bool, num_threads: int
) -> tf.data.Dataset:
    """Builds a dataset of batches; a batch may span epochs, and only the last may be smaller.

    Args:
      structure: one array, or a tuple or dict of arrays with the same number of rows.
      batch_size: rows per batch.
      num_epochs: the number of passes over the rows; None to repeat forever.
      shuffle: whether to shuffle every epoch differently, in an order that follows from the graph's
        seed.
      num_threads: the number of batches to take in parallel.
    """
    arrays = tf.nest.flatten(structure)
    note_arrays(arrays)
    num_rows = len(arrays[0])
    total = None if num_epochs is None else num_rows * num_epochs
    num_batches = None if total is None else -(-total // batch_size)
    take = _make_take(arrays, batch_size, total, shuffle)

    def build_batch(seed: tf.Tensor, batch: tf.Tensor) -> Any:
        dtypes = [tf.as_dtype(array.dtype) for array in arrays]
        rows = tf.numpy_function(take, [seed, batch], dtypes, stateful=False)
        for tensor, array in zip(rows, arrays, strict=True):
            tensor.set_shape([batch_size if total is None else None, *array.shape[1:]])
        return tf.nest.pack_sequence_as(structure, rows)

    def build_all(seed: tf.Tensor) -> tf.data.Dataset:
        data = tf.data.Dataset
        numbers = data.counter() if num_batches is None else data.range(num_batches)
        parallel = num_threads if num_threads > 1 else None
        return numbers.map(lambda batch: build_batch(seed, batch), num_parallel_calls=parallel)

    if not shuffle:
        return build_all(tf.zeros([], tf.int64)).prefetch(_NUM_AHEAD)
    # The seed is an element, not a constant, so that a resumed run without a seed keeps it.
    batches = tf.data.Dataset.random().take(1).flat_map(build_all)
    count = tf.data.INFINITE_CARDINALITY if num_batches is None else num_batches
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.prefetch(_NUM_AHEAD)


def _make_take(
    arrays: Sequence[np.ndarray], batch_size: int, total: int | None, shuffle: bool
) -> Callable[[np.int64, np.int64], list[np.ndarray]]:
    """Returns a function of the seed and a batch's number that takes its rows of each array."""
    num_rows = len(arrays[0])

    @functools.lru_cache(maxsize=2)  # A batch may span two epochs.
    def make_order(seed: int, epoch: int) -> np.ndarray:
        # Unlike NumPy's other generators, this one gives the same numbers in every version.
        words = [seed % 2**32, seed // 2**32, epoch % 2**32, epoch // 2**32]
        return np.random.RandomState(words).permutation(num_rows)

    def rows_of(seed: int, start: int, stop: int) -> np.ndarray:
        parts = []
        while start < stop:
            epoch, first = divmod(start, num_rows)
            last = min(num_rows, first + stop - start)
            order = make_order(seed, epoch)[first:last] if shuffle else np.arange(first, last)
            parts.append(order)
            start += last - first
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(seed: np.int64, batch: np.int64) -> list[np.ndarray]:
        start = int(batch) * batch_size
        stop = start + batch_size
        rows = rows_of(int(seed), start, stop if total is None else min(stop, total))
        # Copies the rows, because TensorFlow may write to them.
        return [_for_tensorflow(array.take(rows, axis=0)) for array in arrays]

    return take


def _for_tensorflow(batch: np.ndarray) -> np.ndarray:
    """Returns an array of which TensorFlow would take other values, in a form that it knows.

    Strings are encoded as UTF-8, not as ASCII, and numbers have this machine's byte order.
    """
    if batch.dtype.kind == "U":
        return np.char.encode(batch, "utf-8")
    return batch if batch.dtype.isnative else batch.astype(batch.dtype.newbyteorder("="))
