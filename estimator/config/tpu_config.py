"""`TPUConfig`: the TPU settings of programs written for tf.estimator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from estimator.config.checks import (
    WrongTypeError,
    check_bool,
    check_int,
    check_positive,
    check_type,
)
from estimator.config.frozen import TupleFields, short_repr, write_fields
from estimator.config.loop_length import checked_loop_length

_CORES_PER_REPLICA = (1, 2, 4, 8, 16, 32, 64, 128)


class InputPipelineConfig:
    """How often `input_fn` is called, and which part of a batch each replica gets.

    Attributes:
      PER_SHARD_V1: in training, once for each replica, with the batch size of one replica; the
        `input_context` tells the calls apart. In other modes like PER_HOST_V1.
      PER_HOST_V1: once, with the batch size of one replica; each replica takes its next batch.
      PER_HOST_V2: the same as PER_HOST_V1.
      BROADCAST: in training, once, with the global batch size; all replicas get the same batch. In
        other modes like PER_HOST_V1, so that each example counts once.
      SLICED: once, with the global batch size; each replica gets its part of the batch, along the
        `batch_axis` of the TPUEstimator.
    """

    PER_SHARD_V1 = 1
    PER_HOST_V1 = 2
    PER_HOST_V2 = 3
    BROADCAST = 4
    SLICED = 5


@dataclass(frozen=True, repr=False)
class TPUConfig(TupleFields):
    """The settings of `tf.compat.v1.estimator.tpu.TPUConfig`.

    Attributes:
      iterations_per_loop: the number of steps in one session call, a duration, or "auto"; see
        `RunConfig`.
      num_shards: the number of replicas, checked against the strategy's.
      num_cores_per_replica: values above one mean model parallelism, which `use_tpu` refuses.
      per_host_input_for_training: an `InputPipelineConfig`; True is PER_HOST_V1, False is
        PER_SHARD_V1, and it reads back as such.
      tpu_job_name: the job of the TPU's workers in the cluster. Ignored, as their strategy knows
        it.
      initial_infeed_sleep_secs: how long the input waits for the TPU to compile. Ignored, as
        batches are passed to each step.
      input_partition_dims: how each input is split over the cores of a replica.
      eval_training_input_configuration: PER_HOST_V1 or SLICED, for evaluation and prediction.
      experimental_host_call_every_n_steps: runs `host_call` at multiples of this number of steps.
      experimental_allow_per_host_v2_parallel_get_next: whether replicas' input may be unordered.
      experimental_feed_hook: a class of hooks that feeds the TPU. Ignored, as batches are passed to
        each step.

    Raises:
      TypeError, ValueError: a field is wrong.
    """

    iterations_per_loop: int | str = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: bool | int = InputPipelineConfig.PER_HOST_V1
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: float | None = None
    input_partition_dims: list | None = dataclasses.field(default=None, hash=False)
    eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1
    experimental_allow_per_host_v2_parallel_get_next: bool = False
    experimental_feed_hook: Callable | None = None

    def __post_init__(self) -> None:
        """Checks every field."""
        per_host = self.per_host_input_for_training
        if isinstance(per_host, bool):
            per_host = (
                InputPipelineConfig.PER_HOST_V1 if per_host else InputPipelineConfig.PER_SHARD_V1
            )
            write_fields(self, per_host_input_for_training=per_host)
        self._check_input()
        loop = checked_loop_length("iterations_per_loop", self.iterations_per_loop)
        write_fields(self, iterations_per_loop=loop)
        check_int("experimental_host_call_every_n_steps", self.experimental_host_call_every_n_steps)
        check_type("tpu_job_name", self.tpu_job_name, str, "a string")
        check_bool(
            "experimental_allow_per_host_v2_parallel_get_next",
            self.experimental_allow_per_host_v2_parallel_get_next,
        )
        check_type("experimental_feed_hook", self.experimental_feed_hook, Callable, "a class")
        if self.num_shards is not None:
            check_int("num_shards", self.num_shards)
        if self.initial_infeed_sleep_secs:
            check_positive("initial_infeed_sleep_secs", self.initial_infeed_sleep_secs)

    def __repr__(self) -> str:
        """Shows only the fields that differ from their defaults."""
        return short_repr(self)

    def _check_input(self) -> None:
        per_host = self.per_host_input_for_training
        if per_host not in range(InputPipelineConfig.PER_SHARD_V1, InputPipelineConfig.SLICED + 1):
            raise ValueError(
                f"`per_host_input_for_training` ({per_host!r}) must be True, False or one of "
                "InputPipelineConfig."
            )
        for_eval = self.eval_training_input_configuration
        if for_eval not in (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.SLICED):
            raise ValueError(
                f"`eval_training_input_configuration` ({for_eval!r}) must be "
                "InputPipelineConfig.PER_HOST_V1 or SLICED."
            )
        cores = self.num_cores_per_replica
        if cores is not None and cores not in _CORES_PER_REPLICA:
            raise ValueError(
                f"`num_cores_per_replica` ({cores!r}) must be one of {_CORES_PER_REPLICA}."
            )
        self._check_partition_dims()

    def _check_partition_dims(self) -> None:
        if self.input_partition_dims is None:
            return
        given = f"`input_partition_dims` ({self.input_partition_dims!r})"
        if not isinstance(self.input_partition_dims, list | tuple):
            raise WrongTypeError(
                f"{given} must be a list: of the features' dims, and of the labels'."
            )
        if len(self.input_partition_dims) not in (1, 2):
            raise ValueError(f"{given} must have one or two parts: for features, and for labels.")
        if self.num_cores_per_replica is None:
            raise ValueError(f"{given} needs `num_cores_per_replica`.")
        if self.per_host_input_for_training != InputPipelineConfig.PER_HOST_V2:
            raise ValueError(
                f"{given} needs `per_host_input_for_training=InputPipelineConfig.PER_HOST_V2`."
            )
