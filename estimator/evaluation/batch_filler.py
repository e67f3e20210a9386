"""Pads batches for programs of a single shape; see `estimator/program/fixed_shape.py`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from estimator.program.programs import Padding

Batch = list[np.ndarray]


def padded(batches: Iterator[Batch], padding: Padding, num_replicas: int) -> Iterator[Batch]:
    """Yields full batches, each with its number of real rows and the weight of its loss.

    Args:
      batches: component arrays; any batch may have fewer rows than the batch size.
      padding: the program's padding.
      num_replicas: the number of replicas, which run together: at the end, batches without real
        rows are added.

    Raises:
      ValueError: the parts of a batch have different numbers of rows, or too many.
    """
    number, last = 0, None
    for batch in batches:
        for last in _full_batches(batch, padding):
            number += 1
            yield last
    if last is not None:
        for _ in range(-number % num_replicas):
            yield [*last[:-2], np.int32(0), np.float32(0)]


def limited(batches: Iterator[Batch], steps: int | None, batches_per_step: int) -> Iterator[Batch]:
    """Yields the batches of the first `steps` steps; all if None."""
    return itertools.islice(batches, None if steps is None else steps * batches_per_step)


def _full_batches(batch: Batch, padding: Padding) -> Iterator[Batch]:
    size = padding.batch_size
    num_rows = _num_rows(batch, padding)
    at = 0
    while at < num_rows:
        left = num_rows - at
        part = _largest_divisor(size, left) if padding.in_parts else left
        weight = np.float32(part / num_rows)
        yield [*_rows_repeated(batch, padding, at, part), np.int32(part), weight]
        at += part


def _num_rows(batch: Batch, padding: Padding) -> int:
    sizes = {
        len(array) for array, is_padded in zip(batch, padding.is_padded, strict=True) if is_padded
    }
    if len(sizes) > 1 or max(sizes, default=0) > padding.batch_size:
        raise ValueError(
            f"`input_fn` yielded a batch of {sorted(sizes)} examples, but the batch size is "
            f'{padding.batch_size}. Batch by params["batch_size"].'
        )
    return sizes.pop() if sizes else padding.batch_size


def _largest_divisor(size: int, most: int) -> int:
    """Returns the largest divisor of `size` that is at most `most`."""
    return next(part for part in range(most, 0, -1) if size % part == 0)


def _rows_repeated(batch: Batch, padding: Padding, at: int, part: int) -> Batch:
    """Returns a batch that repeats `part` rows, starting at row `at`."""
    rows = at + np.arange(padding.batch_size) % part
    return [
        array[rows] if is_padded else array
        for array, is_padded in zip(batch, padding.is_padded, strict=True)
    ]
