"""Global batch sizes, which TPUEstimator adds to an Estimator."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.config.batch_size import batch_in_words, per_replica_batch_size
from estimator.config.tpu_config import InputPipelineConfig, TPUConfig
from estimator.config.tpu_context import TPUContext
from estimator.estimators import arguments
from estimator.estimators.batches import Batches
from estimator.input.batch_size_check import check_batch_size
from estimator.input.input_calls import UserInput
from estimator.runtime.local import Runtime, make_plain_runtime
from estimator.runtime.strategy import make_runtime
from estimator.spec import ModeKeys


@dataclasses.dataclass(frozen=True)
class GlobalBatches(Batches):
    """A TPUEstimator's batches: `params` hold the batch size of a replica or an `input_fn` call.

    Attributes:
      sizes: by mode, the name of the argument for the global batch size, and the size; None if not
        given.

    Raises:
      ValueError: a size cannot be divided among the replicas, or `num_shards` is not their number.
    """

    _: dataclasses.KW_ONLY
    sizes: Mapping[str, tuple[str, int | None]]

    def __post_init__(self) -> None:
        """Checks the sizes."""
        runtimes = {mode: make_runtime(self.config, mode) for mode in self.sizes}
        num_replicas = runtimes[ModeKeys.TRAIN].num_replicas
        arguments.check_num_shards(self.tpu_config.num_shards, num_replicas)
        for runtime in runtimes.values():
            self._model_batch_size(runtime)

    @property
    def tpu_config(self) -> TPUConfig:
        """The config's `tpu_config`, or the default one."""
        return getattr(self.config, "tpu_config", TPUConfig())

    @property
    def given_sizes(self) -> dict[str, int]:
        """The caller's global batch sizes, by the argument's name."""
        return {name: size for name, size in self.sizes.values() if size is not None}

    @property
    def host_call_steps(self) -> int:
        """The number of steps between `host_call`s."""
        return self.tpu_config.experimental_host_call_every_n_steps

    def model_params(self, runtime: Runtime) -> Any:
        """Returns the caller's params with `use_tpu`, `context` and `batch_size`."""
        given = {**runtime.params, "context": _make_context(runtime)}
        return self._params_with(given, self._model_batch_size(runtime))

    def export_params(self, mode: str) -> Any:
        """Returns the params without `batch_size`, because exported models take any."""
        runtime = make_plain_runtime(self.config, mode)
        return self._params_with({**runtime.params, "context": _make_context(runtime)}, None)

    def input_params(self, runtime: Runtime, input_context: tf.distribute.InputContext) -> Any:
        """Returns the params with the `batch_size` and the `context` of this `input_fn` call.

        Without a batch size nothing is added, as in tf.estimator: programs test `if params`.
        """
        batch_size = self._input_batch_size(runtime)
        given = {} if batch_size is None else {"context": _make_context(runtime, input_context)}
        return self._params_with(given, batch_size)

    def _params_with(self, given: dict[str, Any], batch_size: int | None) -> Any:
        """Returns a copy of the caller's params, a dict or HParams, with more values."""
        params = copy.deepcopy(self.params)
        if batch_size is not None:
            given = {**given, "batch_size": batch_size}
        for name, value in given.items():
            if not arguments.is_hparams(params):
                params[name] = value
            elif name in params:
                params.set_hparam(name, value)
            else:
                params.add_hparam(name, value)
        return params

    def in_words(self, runtime: Runtime) -> str:
        """Describes the number of examples that the replicas take at a time; "" if unknown."""
        batch_size = self._model_batch_size(runtime)
        if batch_size is not None and self._is_broadcast(runtime.mode):
            return f"the same {batch_in_words(batch_size, 1)} on each replica"
        return batch_in_words(batch_size, runtime.num_replicas)

    def batch_size(self, mode: str) -> int | None:
        """Returns the size in `sizes`."""
        return self.sizes[mode][1]

    def pipeline(self, mode: str) -> int:
        """Returns the `InputPipelineConfig` kind for a mode.

        The setting for training has no effect in other modes, where every example counts once:
        there the kind is SLICED or PER_HOST_V1.
        """
        if mode == ModeKeys.TRAIN:
            return int(self.tpu_config.per_host_input_for_training)
        return self.tpu_config.eval_training_input_configuration

    def get_input(
        self, input_fn: Callable, runtime: Runtime, index: int = 0, num_calls: int = 1
    ) -> UserInput:
        """Calls `input_fn`; raises an error if its batches do not have the promised size.

        They are checked for the first call only: the others are told the same size. Evaluation and
        prediction give the same results with any size, which only a TPU's program fixes.
        """
        source = super().get_input(input_fn, runtime, index, num_calls)
        asked_for = self._input_batch_size(runtime)
        if asked_for is not None and index == 0:
            argument, global_batch_size = self.sizes[runtime.mode]
            meaning = f"as `{argument}` says"
            if asked_for != global_batch_size:
                meaning = f"a replica's part of `{argument}` ({global_batch_size})"
            matters = runtime.mode == ModeKeys.TRAIN or runtime.is_compiled
            check_batch_size(input_fn, source, asked_for, meaning, self.batch_axis, matters=matters)
        return source

    def _input_batch_size(self, runtime: Runtime) -> int | None:
        """Returns how many examples a batch of `input_fn` must have; None if unknown."""
        if self.pipeline(runtime.mode) == InputPipelineConfig.SLICED:
            size = self.sizes[runtime.mode][1]
            return size if size is None else size // runtime.workers.count
        return self._model_batch_size(runtime)

    def _model_batch_size(self, runtime: Runtime) -> int | None:
        """Returns how many examples a replica takes in a step; None if unknown."""
        argument, global_batch_size = self.sizes[runtime.mode]
        if global_batch_size is None:
            return None
        num_replicas = runtime.num_replicas
        if self._is_broadcast(runtime.mode):
            num_replicas = 1  # Each replica gets the whole batch.
        return per_replica_batch_size(global_batch_size, num_replicas, argument)

    def _is_broadcast(self, mode: str) -> bool:
        return mode == ModeKeys.TRAIN and self.pipeline(mode) == InputPipelineConfig.BROADCAST


def _make_context(
    runtime: Runtime, input_context: tf.distribute.InputContext | None = None
) -> TPUContext:
    """Makes `params["context"]`, for an `input_fn` call or for `model_fn`."""
    num_hosts, host = runtime.hosts
    num_replicas = runtime.num_local_replicas * num_hosts
    return TPUContext(num_replicas, input_context, num_hosts, host)
