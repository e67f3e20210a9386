"""Global and per-replica batch sizes: integers in, integers out."""

from __future__ import annotations

import numbers
from typing import Any


def per_replica_batch_size(global_batch_size: int, num_replicas: int, argument: str) -> int:
    """The examples that one replica takes a step.

    Args:
      global_batch_size: examples a step over all replicas.
      num_replicas: how many replicas are in sync.
      argument: what the user calls `global_batch_size`, such as "train_batch_size".

    Raises:
      TypeError: `global_batch_size` is no integer (a bool is none).
      ValueError: it is not positive, or no multiple of `num_replicas`.
    """
    _check_positive(argument, global_batch_size)
    _check_positive("num_replicas", num_replicas)
    if global_batch_size % num_replicas:
        nearest = max(_round_half_down(global_batch_size, num_replicas), 1) * num_replicas
        raise ValueError(
            f"`{argument}` ({global_batch_size}) must be a multiple of the number of replicas "
            f"({num_replicas}). The nearest that fits is {nearest}."
        )
    return int(global_batch_size // num_replicas)


def _check_positive(argument: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"`{argument}` ({value!r}) must be an integer.")
    if value < 1:
        raise ValueError(f"`{argument}` ({value}) must be at least 1.")


def _round_half_down(dividend: int, divisor: int) -> int:
    return -((divisor - 2 * dividend) // (2 * divisor))
