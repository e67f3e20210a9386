"""`train_and_evaluate` on one machine: specs, results, and evaluations during training."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.errors import CheckpointsRemovedError, DamagedCheckpointsError
from estimator.checkpoint.trainer_lock import is_locked
from estimator.checkpoint.writer import LastSaveListener
from estimator.config.checks import (
    WrongTypeError,
    check_instance,
    check_name,
    check_number,
    checked_limit,
)
from estimator.config.frozen import TupleFields, write_fields
from estimator.config.run_config import RunConfig
from estimator.console import log
from estimator.estimators import arguments
from estimator.estimators.estimator import Estimator
from estimator.export.exporters import Exporter, check_exporter_name
from estimator.hooks.early_stopping import EarlyStoppingHook
from estimator.input.input_calls import check_input_fn
from estimator.roles.left_alone import is_left_alone
from estimator.session.hooked_session import Hook, check_hooks
from estimator.session.schedule import Schedule
from estimator.training.end_record import NothingLeftError
from estimator.training.request import TrainResult


@dataclass(frozen=True)
class TrainSpec(TupleFields):
    """Specifies how to train.

    Attributes:
      input_fn: see `Estimator.train`, as for all attributes.
      max_steps: the global step to stop at; None trains to the end of the input.
      hooks: hooks called around each session call.
      saving_listeners: listeners called for every checkpoint.

    Raises:
      TypeError, ValueError: a value is wrong.
    """

    input_fn: Callable
    max_steps: int | None = None
    hooks: Sequence[Hook] | None = None
    saving_listeners: Sequence[arguments.Listener] | None = None

    def __post_init__(self) -> None:
        """Checks every value."""
        check_input_fn(self.input_fn)
        write_fields(self, max_steps=checked_limit("max_steps", self.max_steps))
        write_fields(self, hooks=tuple(check_hooks(self.hooks)))
        listeners = arguments.checked_listeners(self.saving_listeners)
        write_fields(self, saving_listeners=tuple(listeners))


@dataclass(frozen=True)
class EvalSpec(TupleFields):
    """Specifies how and when to evaluate, and what to export then.

    Evaluation needs a checkpoint, so it happens when one is written: at the RunConfig's interval,
    and at the end. The last checkpoint is always evaluated.

    Attributes:
      input_fn: see `Estimator.evaluate`.
      steps: the maximum number of global batches; None for all.
      name: the name of the evaluation, for its directory: `Estimator.eval_dir(name)`.
      hooks: hooks called around each batch.
      exporters: an Exporter, or a list of them with different names; called after each evaluation.
      start_delay_secs: how long an evaluator task waits before it starts, unless training ends
        first. Other tasks ignore it.
      throttle_secs: skips a checkpoint if the last evaluation was started less than this many
        seconds ago. 0 evaluates every checkpoint.
      every_steps: evaluates at multiples of this number of steps instead, regardless of time. It
        must be a multiple of the RunConfig's `save_checkpoints_steps`.

    Raises:
      TypeError, ValueError: a value is wrong.
    """

    input_fn: Callable
    steps: int | None = 100
    name: str | None = None
    hooks: Sequence[Hook] | None = None
    exporters: Exporter | Sequence[Exporter] | None = None
    start_delay_secs: float = 120
    throttle_secs: float = 600
    _: KW_ONLY
    every_steps: int | None = None

    def __post_init__(self) -> None:
        """Checks every value."""
        check_input_fn(self.input_fn)
        write_fields(self, steps=checked_limit("steps", self.steps))
        check_name(self.name)
        write_fields(self, hooks=tuple(check_hooks(self.hooks)))
        write_fields(self, exporters=_checked_exporters(self.exporters))
        check_number("start_delay_secs", self.start_delay_secs, minimum=0)
        check_number("throttle_secs", self.throttle_secs, minimum=0)
        by_time = "leave it out to go by `throttle_secs`"
        every_steps = checked_limit("every_steps", self.every_steps, by_time)
        write_fields(self, every_steps=every_steps)


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


def run_training(
    model: Estimator,
    train_spec: TrainSpec,
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None,
) -> TrainResult:
    """Trains; returns how it ended, even if a subclass's `train` has another estimator train."""
    if is_left_alone(model.config, train_spec.max_steps):
        return TrainResult(newest_step(model), None, "max_steps")
    before = model.train_result
    try:
        trained = model.train(
            train_spec.input_fn,
            hooks=list(train_spec.hooks or ()),
            max_steps=train_spec.max_steps,
            saving_listeners=listeners,
        )
    except NothingLeftError:
        return TrainResult(newest_step(model), None, "max_steps")
    for estimator in (model, trained):
        result = getattr(estimator, "train_result", None)
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

    While a checkpoint is evaluated for exporters, a file names its step. If the process is killed
    after the metrics are written and before the exporters have run, the next one does it again.

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
        self._mark = os.path.join(model.eval_dir(spec.name), "unfinished-step")
        self._unfinished_step = self._read_mark()
        self._evaluated = ""
        self._exporters = _checked_exporters(spec.exporters)
        self.metrics: dict[str, Any] | None = None
        self.export_results: list[Any] = [None] * len(self._exporters)

    def run_if_due(self, step: int) -> None:
        """Evaluates the checkpoint of `step`, the newest, if that is due.

        Is called again for the same step if training goes on after an error of the evaluation.
        """
        if self.is_due(step) or step == self._unfinished_step:
            self._unfinished_step = step
            self.run(self._newest())
            self._unfinished_step = None

    def is_due(self, step: int) -> bool:
        """Returns whether the checkpoint of `step` is due; called once for each checkpoint."""
        before, self._step = self._step, step
        return self._schedule.is_due(before, step)

    def run(self, path: str) -> None:
        """Evaluates a checkpoint and calls the exporters."""
        if self._exporters:
            self._write_mark(path)
        try:
            self._run(path)
            self._export(is_final=False)
        finally:  # What has failed has said so.
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(self._mark)

    def run_unfinished(self) -> None:
        """Does what a killed process did not come to the end of, if its checkpoint is whole."""
        step, self._unfinished_step = self._unfinished_step, None
        path = os.path.join(self._model.model_dir, f"{files.PREFIX}-{step}")
        # Another process that trains there may be about to come to the end of it.
        if step is None or is_locked(self._model.model_dir) or not files.is_readable(path):
            return
        with contextlib.suppress(DamagedCheckpointsError, CheckpointsRemovedError):
            self.run(path)

    def run_last(self) -> None:
        """Evaluates the last checkpoint unless already done; calls the exporters a last time."""
        if self._evaluated != self._model.latest_checkpoint():
            self._run(self._newest())
        self._export(is_final=True)

    def _write_mark(self, path: str) -> None:
        try:
            tf.io.gfile.makedirs(os.path.dirname(self._mark))
            files.write_file(self._mark, str(files.checkpoint_step(path)).encode())
        except tf.errors.OpError as error:
            log.warning("%s cannot be written: %s", self._mark, error.message)

    def _read_mark(self) -> int | None:
        try:
            with tf.io.gfile.GFile(self._mark) as file:
                return int(file.read())
        except (tf.errors.NotFoundError, ValueError):
            return None

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


class _EvaluationListener(LastSaveListener):
    """Evaluates during training; the last checkpoint is left to the end of training."""

    def __init__(
        self, evaluations: Sequence[Evaluation], start: int, max_steps: int | None
    ) -> None:
        self._evaluations = evaluations
        self._start = start
        self._max_steps = max_steps
        self._is_last = False

    def begin(self) -> None:
        """Evaluates again if `train` of a subclass trains in parts, with a last save each."""
        self._is_last = False

    def before_last_save(self) -> None:
        """Stops evaluating during training."""
        self._is_last = True

    def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Evaluates a checkpoint unless it is the initial one, which stock hooks also save."""
        is_at_end = self._max_steps is not None and global_step_value >= self._max_steps
        if self._is_last or is_at_end or global_step_value == self._start:
            return
        for evaluation in self._evaluations:
            evaluation.run_if_due(global_step_value)


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    """Returns the checked exporters as a tuple."""
    if exporters is None:
        return ()
    listed = (exporters,) if isinstance(exporters, Exporter) else exporters
    check_instance("exporters", listed, list | tuple, "an Exporter or a list of them")
    for exporter in listed:
        if not isinstance(exporter, Exporter):
            raise WrongTypeError(
                f"`exporters` holds {exporter!r}, which is not an estimator.Exporter. Derive its "
                "class from that class."
            )
        if not isinstance(exporter.name, str):
            raise WrongTypeError(f"The `name` of an exporter ({exporter.name!r}) must be a string.")
        check_exporter_name(exporter.name)
    _check_names([exporter.name for exporter in listed], "exporters")
    return tuple(listed)


def checked_specs(model: Any, train_spec: Any, eval_spec: Any) -> list[EvalSpec]:
    """Returns the EvalSpecs as a list; checks the arguments of `train_and_evaluate`."""
    check_instance("estimator", model, Estimator, "an estimator.Estimator")
    check_instance("train_spec", train_spec, TrainSpec, "an estimator.TrainSpec")
    specs = list(eval_spec) if isinstance(eval_spec, list | tuple) else [eval_spec]
    if not specs or not all(isinstance(spec, EvalSpec) for spec in specs):
        raise WrongTypeError(
            f"`eval_spec` ({eval_spec!r}) must be an estimator.EvalSpec or a list of them."
        )
    _check_names([spec.name for spec in specs], "eval_spec")
    exporters = [e for spec in specs for e in _checked_exporters(spec.exporters)]
    _check_names([exporter.name for exporter in exporters], "exporters")
    for spec in specs:
        _check_every_steps(spec, model.config)
    _check_early_stopping(model, train_spec, specs)
    return specs


def _check_names(names: list[Any], argument: str) -> None:
    """Raises an error for a duplicate name, because two would write to the same directory."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"`{argument}` has the name {name!r} {names.count(name)} times. Give each another "
                "`name`: it is the name of its directory."
            )


def _check_every_steps(spec: EvalSpec, config: RunConfig) -> None:
    every, saves = spec.every_steps, config.save_checkpoints_steps
    if every is not None and (saves is None or every % saves != 0):
        raise ValueError(
            f"`every_steps` ({every}) must be a multiple of the RunConfig's "
            f"`save_checkpoints_steps` ({saves}): an evaluation needs a checkpoint of its step. "
            f"Pass RunConfig(save_checkpoints_steps={every})."
        )


def _check_early_stopping(
    model: Estimator, train_spec: TrainSpec, specs: Sequence[EvalSpec]
) -> None:
    """Warns about an early-stopping hook whose evaluations nobody makes."""
    written = {os.path.normpath(model.eval_dir(spec.name)) for spec in specs}
    for hook in train_spec.hooks or ():
        read = hook.eval_dir if isinstance(hook, EarlyStoppingHook) else None
        if read is not None and os.path.normpath(read) not in written:
            log.warning(
                "An early-stopping hook reads the evaluations in %s, but `eval_spec` writes to %s. "
                "Pass the hook `eval_dir=estimator.eval_dir(name)` with the name of the EvalSpec.",
                read,
                ", ".join(sorted(written)),
            )
