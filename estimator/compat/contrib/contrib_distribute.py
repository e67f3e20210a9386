"""`tf.contrib.distribute`: strategies for `RunConfig(train_distribute=...)`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_int


def MirroredStrategy(  # noqa: N802  (a class, once)
    devices: Any = None,
    num_gpus: int | None = None,
    num_gpus_per_worker: int | None = None,
    cross_device_ops: Any = None,
    auto_shard_dataset: bool = False,
    cross_tower_ops: Any = None,
    prefetch_on_device: bool | None = None,
) -> tf.distribute.MirroredStrategy:
    """Makes a MirroredStrategy over the devices, or over so many GPUs.

    Args:
      devices: their names.
      num_gpus: how many, instead of `devices`; 0 for the CPU.
      num_gpus_per_worker: the same.
      cross_device_ops: how the replicas' values are reduced.
      auto_shard_dataset: no effect: the Estimator decides how the input is split.
      cross_tower_ops: an older name of `cross_device_ops`.
      prefetch_on_device: no effect.

    Raises:
      ValueError: more than one of `devices` and the two numbers is given.
    """
    number = num_gpus if num_gpus is not None else num_gpus_per_worker
    if [devices, num_gpus, num_gpus_per_worker].count(None) < 2:
        raise ValueError(
            f"`devices` ({devices}), `num_gpus` ({num_gpus}) and `num_gpus_per_worker` "
            f"({num_gpus_per_worker}) exclude each other. Pass one of them."
        )
    if number is not None:
        check_int("num_gpus", number, minimum=0)
        devices = [f"/gpu:{i}" for i in range(number)] or ["/cpu:0"]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops or cross_tower_ops)
