"""Batch arithmetic: pure integers."""

from __future__ import annotations


def per_replica_batch_size(global_batch_size: int, num_replicas: int, argument: str) -> int:
    """The examples that one replica takes a step.

    Args:
      global_batch_size: examples a step over all replicas.
      num_replicas: how many replicas are in sync.
      argument: the name of the argument that `global_batch_size` comes from, for errors.

    Raises:
      TypeError: `global_batch_size` is no integer.
      ValueError: it is not positive, or no multiple of `num_replicas`.
    """
    if isinstance(global_batch_size, bool) or not isinstance(global_batch_size, int):
        raise TypeError(f"`{argument}` ({global_batch_size!r}) must be an integer.")
    if global_batch_size < 1:
        raise ValueError(f"`{argument}` ({global_batch_size}) must be at least 1.")
    if global_batch_size % num_replicas:
        nearest = max(global_batch_size // num_replicas, 1) * num_replicas
        raise ValueError(
            f"`{argument}` ({global_batch_size}) must be a multiple of the number of replicas "
            f"({num_replicas}). The nearest that fits is {nearest}."
        )
    return global_batch_size // num_replicas
