"""`tf.contrib.learn`: `Experiment` and `learn_runner`, for an Estimator of tf.estimator."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from estimator.config.checks import check_choice
from estimator.config.run_config import RunConfig
from estimator.export.exporters import FinalExporter
from estimator.roles.train_and_evaluate import train_and_evaluate
from estimator.roles.train_eval_specs import EvalSpec, TrainSpec


class Experiment:
    """An Estimator with the inputs that it trains on and is evaluated on."""

    def __init__(
        self,
        estimator: Any,
        train_input_fn: Callable,
        eval_input_fn: Callable,
        eval_metrics: None = None,
        train_steps: int | None = None,
        eval_steps: int | None = 100,
        train_monitors: Sequence | None = None,
        eval_hooks: Sequence | None = None,
        local_eval_frequency: int | None = None,
        eval_delay_secs: float = 120,
        continuous_eval_throttle_secs: float = 60,
        min_eval_frequency: int | None = None,
        delay_workers_by_global_step: bool = False,
        export_strategies: Any = None,
        train_steps_per_iteration: int | None = None,
        checkpoint_and_export: bool = False,
        saving_listeners: Sequence | None = None,
        check_interval_secs: float = 5,
    ) -> None:
        """Takes the parts; builds nothing.

        Args:
          estimator: an Estimator.
          train_input_fn: the input to train on.
          eval_input_fn: the input to evaluate on.
          eval_metrics: must be None: the model's metrics are its `eval_metric_ops`.
          train_steps: the global step to stop at; None for the end of the input.
          eval_steps: the number of batches to evaluate; None for all.
          train_monitors: hooks of the training.
          eval_hooks: hooks of the evaluations.
          eval_delay_secs: as `start_delay_secs` of an EvalSpec.
          continuous_eval_throttle_secs: as `throttle_secs` of an EvalSpec.
          local_eval_frequency: no effect, as that of `min_eval_frequency`.
          min_eval_frequency: no effect: each checkpoint is evaluated.
          delay_workers_by_global_step: no effect: workers start when the chief has.
          export_strategies: exporters, or functions that make a ServingInputReceiver.
          train_steps_per_iteration: no effect: RunConfig says how often checkpoints are saved.
          checkpoint_and_export: no effect: exporters decide when they export.
          saving_listeners: called around saves.
          check_interval_secs: no effect.

        Raises:
          ValueError: `eval_metrics` are given.
        """
        if eval_metrics is not None:
            raise ValueError(
                "`eval_metrics` must be None: return the metrics as `eval_metric_ops` of the "
                "EstimatorSpec, or wrap the estimator with tf.contrib.estimator.add_metrics."
            )
        self.estimator = estimator
        self.train_steps, self.eval_steps = train_steps, eval_steps
        self._train: dict[str, Any] = {
            "input_fn": train_input_fn,
            "hooks": list(train_monitors or ()),
            "saving_listeners": saving_listeners,
        }
        self._eval: dict[str, Any] = {"input_fn": eval_input_fn, "hooks": list(eval_hooks or ())}
        self._delays = eval_delay_secs, continuous_eval_throttle_secs
        strategies = export_strategies or []
        if not isinstance(strategies, list | tuple):
            strategies = [strategies]
        self._exporters = [
            one if hasattr(one, "export") else FinalExporter(f"export_{i}", one)
            for i, one in enumerate(strategies)
        ]

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains to `train_steps`; at once, whatever `delay_secs` is."""
        return self.estimator.train(**self._train, max_steps=self.train_steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> dict[str, Any]:
        """Evaluates the newest checkpoint; at once, whatever `delay_secs` is."""
        return self.estimator.evaluate(**self._eval, steps=self.eval_steps, name=name)

    def train_and_evaluate(self) -> Any:
        """Trains, and evaluates and exports checkpoints, as `estimator.train_and_evaluate` does."""
        train_spec = TrainSpec(**self._train, max_steps=self.train_steps)
        delay, throttle = self._delays
        eval_spec = EvalSpec(
            **self._eval,
            steps=self.eval_steps,
            exporters=self._exporters,
            start_delay_secs=delay,
            throttle_secs=throttle,
        )
        return train_and_evaluate(self.estimator, train_spec, eval_spec)

    continuous_train_and_eval = train_and_evaluate

    def test(self) -> Any:
        """Trains one step and evaluates one batch."""
        self.estimator.train(**self._train, steps=1)
        return self.estimator.evaluate(**self._eval, steps=1)


_SCHEDULES = ("continuous_train_and_eval", "evaluate", "test", "train", "train_and_evaluate")


def run(
    experiment_fn: Callable,
    output_dir: str | None = None,
    schedule: str | None = None,
    run_config: RunConfig | None = None,
    hparams: Any = None,
) -> Any:
    """Makes an Experiment and calls the method that `schedule` names.

    Args:
      experiment_fn: takes `run_config` and `hparams`; or the output directory, if that is given.
      output_dir: the only argument of `experiment_fn`; excludes `run_config`.
      schedule: by default, "train_and_evaluate", in which each task of a cluster does its part.
      run_config: has a `model_dir`.
      hparams: passed on; excludes `output_dir`.

    Raises:
      ValueError: neither or both of `output_dir` and `run_config` are given, or `hparams` without
        `run_config`, or the schedule is unknown.
    """
    if (output_dir is None) == (run_config is None):
        raise ValueError("Pass `run_config`, with a `model_dir`, or `output_dir`, and not both.")
    if run_config is not None:
        experiment = experiment_fn(run_config=run_config, hparams=hparams)
    elif hparams is not None:
        raise ValueError(
            f"`hparams` ({hparams!r}) are passed on together with `run_config`, which is missing. "
            "Pass RunConfig(model_dir=...) instead of `output_dir`."
        )
    else:
        experiment = experiment_fn(output_dir)
    schedule = schedule or "train_and_evaluate"
    check_choice("schedule", schedule, _SCHEDULES)
    return getattr(experiment, schedule)()


learn_runner = types.ModuleType("tensorflow.contrib.learn.learn_runner")
vars(learn_runner).update(run=run)


def make_export_strategy(
    serving_input_fn: Callable,
    default_output_alternative_key: str | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    strip_default_attrs: bool | None = None,
) -> FinalExporter:
    """Makes a FinalExporter: the model is exported when training has ended.

    Args:
      serving_input_fn: makes a ServingInputReceiver.
      default_output_alternative_key: no effect: the key of "serving_default" is the default.
      assets_extra: by the path in assets.extra, the file to copy.
      as_text: whether the SavedModel is a text proto.
      exports_to_keep: no effect: there is one export.
      strip_default_attrs: no effect: they are always stripped.
    """
    return FinalExporter("Servo", serving_input_fn, assets_extra, as_text)
