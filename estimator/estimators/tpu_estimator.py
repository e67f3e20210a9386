"""The `TPUEstimator` class: an Estimator with global batch sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from estimator.config.checks import checked_count
from estimator.config.run_config import RunConfig
from estimator.config.tpu_run_config import TPURunConfig
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.estimators import arguments
from estimator.estimators.estimator import Estimator
from estimator.estimators.global_batches import GlobalBatches
from estimator.runtime.tpu_strategy import on_tpu
from estimator.spec import ModeKeys


class TPUEstimator(Estimator):
    """An Estimator with global batch sizes, on any strategy.

    `params["batch_size"]` is the batch size of one replica; in an export, whose batches may have
    any size, `model_fn` gets no batch size. `params["use_tpu"]` tells `model_fn` whether the
    strategy is a TPU strategy, and `params["context"]` is a `TPUContext`.
    """

    def __init__(  # noqa: PLR0913  (the documented signature of TPUEstimator)
        self,
        model_fn: Callable,
        model_dir: str | os.PathLike | None = None,
        config: RunConfig | None = None,
        params: Any = None,
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
          config: a RunConfig; None for the default `estimator.tpu.RunConfig`, with loops of 2.
          params: a dict, or HParams of tf.contrib.training; must contain neither "batch_size" nor
            "context".
          use_tpu: whether to train, evaluate and predict on the TPU that the config names. With
            None or False, the config's strategy decides.
          train_batch_size: the number of examples per batch over all replicas in `train`; a
            multiple of the number of replicas.
          eval_batch_size: likewise for `evaluate`.
          predict_batch_size: likewise for `predict`.
          batch_axis: the batch dimension of each tensor of (features, labels), flattened, along
            which InputPipelineConfig.SLICED splits; None for the first dimension of each.
          eval_on_tpu: with `use_tpu`, whether to also evaluate and predict on the TPU; otherwise on
            this machine.
          export_to_tpu: no effect: an export runs on any device that loads it.
          export_to_cpu: must be true.
          warm_start_from: as for Estimator.
          embedding_config_spec: must be None: embedding tables on a TPU are not supported.
          export_saved_model_api_version: 1 or 2; no effect.

        Raises:
          TypeError, ValueError: an argument is invalid, or there is no TPU.
          NotImplementedError: an `embedding_config_spec` is given.
        """
        arguments.check_tpu_arguments(params, use_tpu, batch_axis, export_to_cpu)
        arguments.check_tpu_switches(eval_on_tpu, export_to_tpu, export_saved_model_api_version)
        arguments.check_no_embedding(embedding_config_spec)
        config = arguments.checked_config(TPURunConfig() if config is None else config)
        if use_tpu:
            config = on_tpu(config, eval_on_tpu=eval_on_tpu)
        self.__batch_axis = batch_axis
        self.__sizes = {
            ModeKeys.TRAIN: _checked_size("train_batch_size", train_batch_size),
            ModeKeys.EVAL: _checked_size("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: _checked_size("predict_batch_size", predict_batch_size),
        }
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def with_model_fn(self, model_fn: Callable) -> TPUEstimator:
        """Returns an estimator with another `model_fn` and otherwise equal arguments.

        `add_metrics` uses it.

        Args:
          model_fn: the model function of the new estimator.
        """
        rest: dict[str, Any] = {
            **self._input_batches.given_sizes,
            "batch_axis": self.__batch_axis,
            "warm_start_from": self._warm_start_settings,
        }
        return TPUEstimator(model_fn, self.model_dir, self._config, self._params, **rest)

    def _make_input_batches(self) -> GlobalBatches:
        return GlobalBatches(self._config, self._params, self.__batch_axis, sizes=self.__sizes)

    def _assert_members_are_not_overridden(self) -> None:
        arguments.check_overrides(type(self), TPUEstimator)


def _checked_size(argument: str, size: Any) -> tuple[str, int | None]:
    return argument, None if size is None else checked_count(argument, size)
