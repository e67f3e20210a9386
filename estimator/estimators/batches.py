"""The arguments of `model_fn` and `input_fn` in each mode, and how replicas get their batches."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import InputPipelineConfig
from estimator.input.array_datasets import LARGE_BYTES
from estimator.input.graph_identity import MAX_BYTES
from estimator.input.input_calls import Input, UserInput, get_input
from estimator.input.pipelines import build_pipeline, num_batches_a_step
from estimator.runtime.local import Runtime, make_plain_runtime
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

    def model_params(self, runtime: Runtime) -> Any:
        """Returns the `params` for `model_fn` in the runtime's mode."""
        return copy.deepcopy(self.params)

    def export_params(self, mode: str) -> Any:
        """Returns the `params` for `model_fn` in an export."""
        return self.model_params(make_plain_runtime(self.config, mode))

    def input_params(self, runtime: Runtime, input_context: tf.distribute.InputContext) -> Any:
        """Returns the `params` for an `input_fn` call."""
        return self.model_params(runtime)

    def in_words(self, runtime: Runtime) -> str:
        """Describes the number of examples that the replicas take at a time; "" if unknown."""
        return ""

    def batch_size(self, mode: str) -> int | None:
        """Returns the caller's global batch size; None if the input decides."""
        return None

    @property
    def given_sizes(self) -> dict[str, int]:
        """The caller's global batch sizes, by the argument's name."""
        return {}

    def pipeline(self, mode: str) -> int:
        """Returns the `InputPipelineConfig` kind for a mode."""
        return InputPipelineConfig.PER_HOST_V1

    @property
    def host_call_steps(self) -> int:
        """The number of steps between `host_call`s."""
        return 1

    def get_input(
        self, input_fn: Callable, runtime: Runtime, index: int = 0, num_calls: int = 1
    ) -> UserInput:
        """Makes one of this task's calls of `input_fn`."""
        num_pipelines, pipeline = runtime.hosts
        input_context = tf.distribute.InputContext(
            num_pipelines * num_calls, pipeline * num_calls + index, runtime.num_replicas
        )
        num_batches = num_batches_a_step(self.pipeline(runtime.mode), runtime.num_local_replicas)
        return get_input(
            input_fn,
            mode=runtime.mode,
            params=self.input_params(runtime, input_context),
            config=self.config,
            input_context=input_context,
            min_array_bytes=_min_array_bytes(runtime),
            lookahead=num_batches if runtime.looks_ahead else None,
        )

    def build_input(self, input_fn: Callable, runtime: Runtime) -> Input:
        """Calls `input_fn` for the replicas that this task trains, as its pipeline requires."""

        def build(index: int, num_calls: int) -> Input:
            return self.get_input(input_fn, runtime, index, num_calls).build()

        kind = self.pipeline(runtime.mode)
        return build_pipeline(build, kind, runtime.num_local_replicas, self.batch_axis)


def _min_array_bytes(runtime: Runtime) -> float:
    """Returns the size from which arrays of `input_fn` are kept out of the graph."""
    if runtime.mode != ModeKeys.TRAIN:
        # Smaller graphs are compared, arrays included, to reuse sessions, which are local.
        return MAX_BYTES
    return LARGE_BYTES if runtime.runs_here else math.inf
