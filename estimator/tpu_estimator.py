"""`TPUEstimator`: an Estimator whose batch sizes are global."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import arguments
from estimator.config.batch import batch_in_words, per_replica_batch_size
from estimator.config.run_config import InputPipelineConfig, RunConfig, TPUConfig, TPURunConfig
from estimator.config.strategy import (
    make_strategy,
)
from estimator.config.tpu import is_tpu, on_tpu
from estimator.config.tpu_context import TPUContext
from estimator.config.warm_start import WarmStartSettings
from estimator.estimator import Estimator
from estimator.graph.batch_size import check_batch_size
from estimator.graph.dealing import pipeline_kind
from estimator.graph.input import Input
from estimator.graph.workers import workers_of
from estimator.spec import ModeKeys


class TPUEstimator(Estimator):
    """An Estimator whose batch sizes are global, as TPUEstimator's were, on any strategy.

    `params["batch_size"]` is the batch size of one replica; `model_fn` has none in an export, whose
    batches are of any size. `params["use_tpu"]` tells it whether the strategy is a TPU's, and
    `params["context"]` is a `TPUContext`.
    """

    def __init__(  # noqa: PLR0913  (the documented signature of TPUEstimator)
        self,
        model_fn: Callable,
        model_dir: str | os.PathLike | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        use_tpu: bool | None = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Sequence[int] | None = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: str | bytes | os.PathLike | WarmStartSettings | None = None,
        embedding_config_spec: None = None,
        export_saved_model_api_version: int = 1,
    ) -> None:
        """Checks its arguments; builds nothing and writes nothing.

        Args:
          model_fn: returns a TPUEstimatorSpec or an EstimatorSpec.
          model_dir: as for Estimator.
          config: an `estimator.tpu.RunConfig`.
          params: must hold neither "batch_size" nor "context".
          use_tpu: train, evaluate and predict on the TPU that the config names. None and False
            leave it to the config's strategy.
          train_batch_size: examples a step over all replicas; a multiple of their number.
          eval_batch_size: likewise, in `evaluate`.
          predict_batch_size: likewise, in `predict`.
          batch_axis: of each tensor of (features, labels), flattened, the dimension that counts
            the examples, along which InputPipelineConfig.SLICED cuts; None is the first of each.
          eval_on_tpu: with `use_tpu`, evaluate and predict there too; else on this machine.
          export_to_tpu: no effect: what is exported runs on whatever loads it.
          export_to_cpu: must be true.
          warm_start_from: as for Estimator.
          embedding_config_spec: must be None: only a TPU has such tables.
          export_saved_model_api_version: 1 or 2; no effect without a TPU.

        Raises:
          TypeError, ValueError: an argument is wrong, or there is no TPU.
          NotImplementedError: an `embedding_config_spec` is given.
        """
        arguments.check_tpu_arguments(params, use_tpu, batch_axis, export_to_cpu)
        arguments.check_tpu_switches(eval_on_tpu, export_to_tpu, export_saved_model_api_version)
        arguments.check_no_embedding(embedding_config_spec)
        config = arguments.checked_config(config or TPURunConfig())
        if use_tpu:
            config = on_tpu(config, eval_on_tpu=eval_on_tpu)
        super().__init__(model_fn, model_dir, config, params, warm_start_from)
        self._batch_sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        self._batch_axis = batch_axis
        self._tpu_config: TPUConfig = getattr(self._config, "tpu_config", TPUConfig())
        strategies = {mode: make_strategy(self._config, mode) for mode in self._batch_sizes}
        num_replicas = strategies[ModeKeys.TRAIN].num_replicas_in_sync
        arguments.check_num_shards(self._tpu_config.num_shards, num_replicas)
        for mode, strategy in strategies.items():
            self._model_batch_size(mode, strategy)

    def with_model_fn(self, model_fn: Callable) -> TPUEstimator:
        """Another estimator of the same arguments but for the `model_fn`; see `add_metrics`."""
        rest: dict[str, Any] = dict(self._batch_sizes.values())
        rest["batch_axis"] = self._batch_axis
        return TPUEstimator(model_fn, self.model_dir, self._config, self._params, **rest)

    def _assert_members_are_not_overridden(self) -> None:
        arguments.check_overrides(type(self), TPUEstimator)

    def _shown(self) -> dict[str, str]:
        sizes = {name: str(size) for name, size in self._batch_sizes.values() if size is not None}
        return {**super()._shown(), **sizes}

    def _params_for(self, mode: str, strategy: tf.distribute.Strategy) -> dict[str, Any]:
        params = super()._params_for(mode, strategy)
        context = TPUContext(strategy.num_replicas_in_sync)
        params.update(use_tpu=is_tpu(strategy), context=context)
        batch_size = self._model_batch_size(mode, strategy)
        return params if batch_size is None else {**params, "batch_size": batch_size}

    def _export_params_for(self, mode: str) -> dict[str, Any]:
        params = super()._export_params_for(mode)
        params.pop("batch_size", None)
        return params

    def _input_params_for(
        self, mode: str, strategy: tf.distribute.Strategy, input_context: tf.distribute.InputContext
    ) -> dict[str, Any]:
        params = super()._input_params_for(mode, strategy, input_context)
        params["context"] = TPUContext(strategy.num_replicas_in_sync, input_context)
        # Only to `model_fn` it always says what is so.
        params["use_tpu"] = self._params.get("use_tpu", False)
        batch_size = self._input_batch_size(mode, strategy)
        return params if batch_size is None else {**params, "batch_size": batch_size}

    def _build_input(
        self, input_fn: Callable, mode: str, strategy: tf.distribute.Strategy
    ) -> Input:
        source = super()._build_input(input_fn, mode, strategy)
        asked_for = self._input_batch_size(mode, strategy)
        if asked_for is not None:
            argument, global_batch_size = self._batch_sizes[mode]
            meaning = f"as `{argument}` says"
            if asked_for != global_batch_size:
                meaning = f"a replica's part of `{argument}` ({global_batch_size})"
            check_batch_size(input_fn, source, asked_for, meaning, self._batch_axis)
        return source

    def _input_batch_size(self, mode: str, strategy: tf.distribute.Strategy) -> int | None:
        """How many examples a batch of `input_fn` should have, if that was said."""
        if self._pipeline(mode) == InputPipelineConfig.SLICED:
            size = self._batch_sizes[mode][1]
            return size if size is None else size // workers_of(strategy).count
        return self._model_batch_size(mode, strategy)

    def _model_batch_size(self, mode: str, strategy: tf.distribute.Strategy) -> int | None:
        """How many examples a replica takes a step; None if that was not said."""
        argument, global_batch_size = self._batch_sizes[mode]
        if global_batch_size is None:
            return None
        num_replicas = strategy.num_replicas_in_sync
        if self._is_broadcast(mode):
            num_replicas = 1  # Each replica gets all of them.
        return per_replica_batch_size(global_batch_size, num_replicas, argument)

    def _is_broadcast(self, mode: str) -> bool:
        return mode == ModeKeys.TRAIN and self._pipeline(mode) == InputPipelineConfig.BROADCAST

    def _batch_in_words(self, mode: str, strategy: tf.distribute.Strategy) -> str:
        batch_size = self._model_batch_size(mode, strategy)
        if batch_size is not None and self._is_broadcast(mode):
            return f"the same {batch_in_words(batch_size, 1)} on each replica"
        return batch_in_words(batch_size, strategy.num_replicas_in_sync)

    def _pipeline(self, mode: str) -> int:
        return pipeline_kind(self._tpu_config, mode)

    def _host_call_steps(self) -> int:
        return self._tpu_config.experimental_host_call_every_n_steps
