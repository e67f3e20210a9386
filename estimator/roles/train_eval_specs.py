"""The arguments of `train_and_evaluate`: what to train, how to evaluate, and their checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

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
from estimator.export.exporter_checks import check_exporter_name
from estimator.export.exporters import Exporter
from estimator.hooks.early_stopping import EarlyStoppingHook
from estimator.input.input_calls import check_input_fn
from estimator.session.hooked_session import Hook, check_hooks


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
        write_fields(self, exporters=checked_exporters(self.exporters))
        check_number("start_delay_secs", self.start_delay_secs, minimum=0)
        check_number("throttle_secs", self.throttle_secs, minimum=0)
        by_time = "leave it out to go by `throttle_secs`"
        every_steps = checked_limit("every_steps", self.every_steps, by_time)
        write_fields(self, every_steps=every_steps)


def checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
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
    exporters = [e for spec in specs for e in checked_exporters(spec.exporters)]
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
    stopping = [hook for hook in train_spec.hooks or () if isinstance(hook, EarlyStoppingHook)]
    if not stopping:
        return
    written = {os.path.normpath(model.eval_dir(spec.name)) for spec in specs}
    for read in (hook.eval_dir for hook in stopping):
        if read is not None and os.path.normpath(read) not in written:
            log.warning(
                "An early-stopping hook reads the evaluations in %s, but `eval_spec` writes to %s. "
                "Pass the hook `eval_dir=estimator.eval_dir(name)` with the name of the EvalSpec.",
                read,
                ", ".join(sorted(written)),
            )
