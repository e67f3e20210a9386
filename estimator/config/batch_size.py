"""Global and per-replica batch sizes: integers in, integers out."""

from __future__ import annotations

from estimator.config.checks import check_int


def per_replica_batch_size(global_batch_size: int, num_replicas: int, argument: str) -> int:
    """Returns the number of examples that one replica takes in a step.

    Args:
      global_batch_size: the number of examples in a step over all replicas.
      num_replicas: the number of replicas in sync.
      argument: the user's name for `global_batch_size`, such as "train_batch_size".

    Raises:
      TypeError: `global_batch_size` is not an integer (a bool is not one).
      ValueError: it is not positive, or not a multiple of `num_replicas`.
    """
    check_int(argument, global_batch_size)
    check_int("num_replicas", num_replicas)
    share, rest = divmod(int(global_batch_size), num_replicas)
    if rest:
        is_nearer_above = share == 0 or rest > num_replicas - rest
        nearest = (share + is_nearer_above) * num_replicas
        raise ValueError(
            f"`{argument}` ({global_batch_size}) must be a multiple of the number of replicas "
            f"({num_replicas}). The nearest that fits is {nearest}."
        )
    return share


def batch_in_words(batch_size: int | None, num_replicas: int) -> str:
    """Describes a batch of `batch_size` per replica: "2 x 32 = 64 examples"; "" if unknown."""
    if batch_size is None:
        return ""
    product = f"{num_replicas:,} x {batch_size:,} = " if num_replicas > 1 else ""
    return f"{product}{batch_size * num_replicas:,} examples"
