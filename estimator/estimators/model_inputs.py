"""The arguments of `model_fn` and `input_fn` in each mode, and how replicas get their batches."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.cluster.collectives import num_local_replicas, workers_of
from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import InputPipelineConfig
from estimator.input.input_calls import Input, build_input
from estimator.input.pipelines import build_pipeline, num_batches_a_step
from estimator.runtime.strategy import make_no_strategy
from estimator.spec import ModeKeys


@dataclasses.dataclass(frozen=True)
class Batches:
    """An Estimator's batches: they are as `input_fn` makes them, and `params` never change.

    Attributes:
      config: the Estimator's config.
      params: the caller's params.
      batch_axis: for each tensor of a batch, flattened, the dimension that counts the examples;
        None means the first of each.
    """

    config: RunConfig
    params: Any
    batch_axis: Sequence[int] | None = None

    def model_params(self, mode: str, strategy: tf.distribute.Strategy) -> Any:
        """Returns the `params` for `model_fn` in this mode."""
        del mode, strategy
        return copy.deepcopy(self.params)

    def export_params(self, mode: str) -> Any:
        """Returns the `params` for `model_fn` in an export."""
        return self.model_params(mode, make_no_strategy())

    def input_params(
        self, mode: str, strategy: tf.distribute.Strategy, input_context: tf.distribute.InputContext
    ) -> Any:
        """Returns the `params` for an `input_fn` call."""
        del input_context
        return self.model_params(mode, strategy)

    def in_words(self, mode: str, strategy: tf.distribute.Strategy) -> str:
        """Describes the number of examples that the replicas take at a time; "" if unknown."""
        del mode, strategy
        return ""

    def batch_size(self, mode: str) -> int | None:
        """Returns the caller's global batch size; None if the input decides."""
        del mode
        return None

    def pipeline(self, mode: str) -> int:
        """Returns the `InputPipelineConfig` kind for a mode."""
        del mode
        return InputPipelineConfig.PER_HOST_V1

    @property
    def host_call_steps(self) -> int:
        """The number of steps between `host_call`s."""
        return 1

    def hosts(self, mode: str, strategy: tf.distribute.Strategy) -> tuple[int, int]:
        """Returns how many tasks call `input_fn` for one model, and the index of this one."""
        if mode == ModeKeys.TRAIN and self.config.num_ps_replicas:
            return self.config.num_worker_replicas, self.config.global_id_in_cluster or 0
        workers = workers_of(strategy)
        return workers.count, workers.index

    def build_input(self, input_fn: Callable, mode: str, strategy: tf.distribute.Strategy) -> Input:
        """Calls `input_fn` for this task's replicas, as often as its pipeline requires."""
        num_replicas = num_local_replicas(strategy)
        workers = workers_of(strategy)
        num_pipelines, pipeline = self.hosts(mode, strategy)
        kind = self.pipeline(mode)
        if mode != ModeKeys.TRAIN:  # The batches are distributed and split when they are fed.
            kind = InputPipelineConfig.PER_HOST_V1

        def build(index: int, num_calls: int) -> Input:
            input_context = tf.distribute.InputContext(
                num_pipelines * num_calls,
                pipeline * num_calls + index,
                strategy.num_replicas_in_sync,
            )
            return build_input(
                input_fn,
                mode=mode,
                params=self.input_params(mode, strategy, input_context),
                config=self.config,
                input_context=input_context,
                lookahead=num_batches_a_step(kind, num_replicas) if workers.count > 1 else None,
            )

        return build_pipeline(build, kind, num_replicas, self.batch_axis)
