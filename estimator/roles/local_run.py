"""`train_and_evaluate` on one machine: evaluations during training, and the result."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.errors import CheckpointsRemovedError, DamagedCheckpointsError
from estimator.checkpoint.trainer_lock import is_locked
from estimator.checkpoint.writer import LastSaveListener
from estimator.cluster.task_health import StartTimeoutError
from estimator.console import log
from estimator.estimators.estimator import Estimator
from estimator.roles.completion import check_ended_early
from estimator.roles.left_alone import is_left_alone
from estimator.roles.train_eval_specs import EvalSpec, TrainSpec, checked_exporters
from estimator.roles.unfinished_step import UnfinishedStep
from estimator.session.schedule import Schedule
from estimator.training.end_record import NothingLeftError, read_end
from estimator.training.request import TrainResult


class _Pair(NamedTuple):
    metrics: dict[str, Any] | None
    export_results: list[Any]


class TrainAndEvaluateResult(_Pair):
    """The result of `train_and_evaluate`, which unpacks into `metrics, export_results`.

    Attributes:
      metrics: the metrics of the last evaluation, for the first EvalSpec if there are several. None
        if training stopped without a checkpoint, as it may after a NaN.
      export_results: what each exporter returned for the last checkpoint, in the order of the
        EvalSpecs and their exporters: a path, or None.
      metrics_by_name: the last metrics of each EvalSpec, by its name (None if it has none).
      train_result: the step at which training ended, and why.
    """

    metrics_by_name: dict[str | None, dict[str, Any]]
    train_result: TrainResult

    def __new__(
        cls, evaluations: Sequence[Evaluation], train_result: TrainResult
    ) -> TrainAndEvaluateResult:
        """Takes the results from the evaluations, some of which may not have been run."""
        metrics = {one.spec.name: one.metrics for one in evaluations if one.metrics is not None}
        exported = [result for one in evaluations for result in one.export_results]
        self = super().__new__(cls, next(iter(metrics.values()), None), exported)
        self.metrics_by_name = metrics
        self.train_result = train_result
        return self


def newest_step(model: Estimator) -> int:
    """Returns the step of the newest checkpoint; 0 if there is none."""
    newest = model.latest_checkpoint()
    return (files.checkpoint_step(newest) if newest else None) or 0


def last_train_result(model: Any) -> TrainResult | None:
    """Returns an Estimator's `train_result`; None if a subclass has something else there."""
    result = getattr(model, "train_result", None)
    return result if isinstance(result, TrainResult) else None


def recorded_result(model: Estimator) -> TrainResult:
    """Returns how training ended, according to the files in the model's directory."""
    end = read_end(model.model_dir) or {}
    return TrainResult(newest_step(model), None, end.get("reason", "max_steps"))


def run_training(
    model: Estimator,
    train_spec: TrainSpec,
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None,
) -> TrainResult:
    """Trains; returns how it ended, even if a subclass's `train` has another estimator train."""
    if is_left_alone(model.config, train_spec.max_steps):
        return TrainResult(newest_step(model), None, "max_steps")
    before = last_train_result(model)
    try:
        trained = model.train(
            train_spec.input_fn,
            hooks=list(train_spec.hooks or ()),
            max_steps=train_spec.max_steps,
            saving_listeners=listeners,
        )
    except NothingLeftError:
        return TrainResult(newest_step(model), None, "max_steps")
    except StartTimeoutError as error:
        check_ended_early(model.config, error)
        return recorded_result(model)
    for estimator in (model, trained):
        result = last_train_result(estimator)
        if result is not None and result is not before:
            return result
    step = newest_step(model)
    is_at_max = train_spec.max_steps is not None and step >= train_spec.max_steps
    return TrainResult(step, None, "max_steps" if is_at_max else "end of input")


def run_local(
    model: Estimator,
    train_spec: TrainSpec,
    eval_specs: Sequence[EvalSpec],
    clock: Callable[[], float] = time.monotonic,
) -> TrainAndEvaluateResult:
    """Runs `train_and_evaluate` on one machine; `clock` returns the time in seconds."""
    start = newest_step(model)
    evaluations = [Evaluation(model, spec, start, clock) for spec in eval_specs]
    for evaluation in evaluations:
        evaluation.run_unfinished()
    listener = _EvaluationListener(evaluations, start, train_spec.max_steps)
    train_result = run_training(model, train_spec, [*(train_spec.saving_listeners or ()), listener])
    if model.latest_checkpoint() is None:
        log.warning("Training stopped without a checkpoint, so nothing is evaluated.")
        return TrainAndEvaluateResult(evaluations, train_result)
    for evaluation in evaluations:
        evaluation.run_last()
    return TrainAndEvaluateResult(evaluations, train_result)


class Evaluation:
    """The evaluations of one EvalSpec.

    From the save of a checkpoint to the end of its evaluation, a file names its step. If the
    process is killed in between, or the evaluation or an exporter fails, the next one does it
    again; after a second failure, no more.

    Attributes:
      spec: how and when to evaluate.
      metrics: the metrics of the last evaluation; None before the first.
      export_results: the exporters' results for the last checkpoint; None for each that has none.
    """

    def __init__(
        self,
        model: Estimator,
        spec: EvalSpec,
        start: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Sets the schedule of evaluations.

        Args:
          model: the Estimator to evaluate.
          spec: how and when to evaluate.
          start: the step that training starts from.
          clock: returns seconds since an arbitrary fixed time.
        """
        self._model = model
        self.spec = spec
        self._schedule = Schedule(spec.every_steps, spec.throttle_secs, clock, is_due_at_once=True)
        self._step = start
        self._mark = UnfinishedStep(model.eval_dir(spec.name))
        self._unfinished_step = self._mark.left
        self._evaluated = ""
        self._is_exported_as_final = False
        self._exporters = checked_exporters(spec.exporters)
        self.metrics: dict[str, Any] | None = None
        self.export_results: list[Any] = [None] * len(self._exporters)

    def prepare(self, step: int) -> bool:
        """Returns whether to evaluate the checkpoint of `step`, the next to be saved; notes it.

        Is called again for the same step if it has to be saved again after an error.
        """
        if not self.is_due(step) and step != self._unfinished_step:
            return False
        self._unfinished_step = step
        self._mark.write(step)
        return True

    def run_prepared(self) -> None:
        """Evaluates the checkpoint, which is the newest now."""
        self.run(self._newest())
        self._unfinished_step = None

    def is_due(self, step: int) -> bool:
        """Returns whether the checkpoint of `step` is due; called once for each checkpoint."""
        before, self._step = self._step, step
        return self._schedule.is_due(before, step)

    def run(self, path: str, is_final: bool = False) -> None:
        """Evaluates a checkpoint and calls the exporters; `is_final` says if it is the last one."""
        step = files.checkpoint_step(path)
        self._mark.write(step)
        try:
            self._run(path)
            self._export(is_final)
        except (DamagedCheckpointsError, CheckpointsRemovedError):
            self._mark.remove()
            raise
        except Exception:  # After Ctrl-C, which is none of these, the step stays unfinished, too.
            self._mark.note_failure(step)
            raise
        self._mark.remove()

    def run_unfinished(self) -> None:
        """Does what a killed process did not come to the end of, if its checkpoint is whole."""
        step, self._unfinished_step = self._unfinished_step, None
        path = os.path.join(self._model.model_dir, f"{files.PREFIX}-{step}")
        # Another process that trains there may be about to come to the end of it.
        if step is None or is_locked(self._model.model_dir) or not files.is_readable(path):
            return
        with contextlib.suppress(DamagedCheckpointsError, CheckpointsRemovedError):
            self.run(path)

    def run_last(self, path: str | None = None) -> None:
        """Evaluates and exports the last checkpoint as the final model, unless already done.

        Args:
          path: the last checkpoint; None for the newest.
        """
        path = path or self._newest()
        if self._evaluated != path:
            self._run(path)
        if not self._is_exported_as_final:
            self._export(is_final=True)

    def _newest(self) -> str:
        path = self._model.latest_checkpoint()
        if path is None:
            raise ValueError(
                f"There is no checkpoint in `model_dir` ({self._model.model_dir}), though one was "
                "just saved. Let the CheckpointSaverHook write to it, or leave the hook out."
            )
        return path

    def _run(self, path: str) -> None:
        self.metrics = self._model.evaluate(
            self.spec.input_fn,
            steps=self.spec.steps,
            hooks=list(self.spec.hooks or ()),
            checkpoint_path=path,
            name=self.spec.name,
        )
        self._evaluated = path
        self._is_exported_as_final = False
        self.export_results = [None] * len(self._exporters)

    def _export(self, is_final: bool) -> None:
        for i, exporter in enumerate(self._exporters):
            exported = exporter.export(
                estimator=self._model,
                export_path=os.path.join(self._model.model_dir, "export", exporter.name),
                checkpoint_path=self._evaluated,
                eval_result=dict(self.metrics or {}),
                is_the_final_export=is_final,
            )
            # If the checkpoint was exported before it was known to be the last, None does not
            # replace that.
            self.export_results[i] = exported or self.export_results[i]
        self._is_exported_as_final = is_final


class _EvaluationListener(LastSaveListener):
    """Evaluates during training; the last checkpoint is left to the end of training."""

    def __init__(
        self, evaluations: Sequence[Evaluation], start: int, max_steps: int | None
    ) -> None:
        self._evaluations = evaluations
        self._start = start
        self._max_steps = max_steps
        self._is_last = False
        self._due: list[Evaluation] = []

    def begin(self) -> None:
        """Evaluates again if `train` of a subclass trains in parts, with a last save each."""
        self._is_last = False

    def before_last_save(self) -> None:
        """Stops evaluating during training."""
        self._is_last = True

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Notes what to evaluate, so that a kill after the save loses no evaluation."""
        if self._is_evaluated_now(global_step_value):
            self._due = [one for one in self._evaluations if one.prepare(global_step_value)]

    def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Evaluates a checkpoint; is called again if training goes on after an error in it."""
        if self._is_evaluated_now(global_step_value):
            while self._due:
                self._due[0].run_prepared()
                self._due.pop(0)

    def _is_evaluated_now(self, step: int) -> bool:
        """Returns whether a checkpoint is neither the last nor that of the start.

        Stock hooks save that of the start, too.
        """
        is_at_end = self._max_steps is not None and step >= self._max_steps
        return not (self._is_last or is_at_end or step == self._start)
