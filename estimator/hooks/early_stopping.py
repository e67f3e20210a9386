"""Hooks that stop training depending on a metric or a function.

The metrics are read from the evaluations' event files, so that the best value and its age survive a
restart.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.config.checks import (
    check_instance,
    check_number,
    check_takes_nothing,
    check_type,
    checked_count,
    did_you_mean,
)
from estimator.console import say
from estimator.hooks.estimator_config import config_of
from estimator.session.hooked_session import Hook, ScheduledHook
from estimator.session.schedule import Schedule
from estimator.summary.event_reader import read_evaluations


class EarlyStoppingHook(ScheduledHook):
    """Asks a function at the ends of loops, on a schedule, whether to stop.

    Attributes:
      eval_dir: the directory of the evaluations that the function reads; None if it reads none. If
        it reads evaluations, it is also asked before the first loop and after each checkpoint, so
        that an evaluation of a step stops training at that step.
    """

    def __init__(
        self, should_stop_fn: Callable[[int], bool], schedule: Schedule, eval_dir: str | None = None
    ) -> None:
        """Stores the arguments.

        Args:
          should_stop_fn: takes the global step; returns whether to stop.
          schedule: when to ask; loops end on its steps.
          eval_dir: see the class.
        """
        self._should_stop_fn = should_stop_fn
        self.schedule = schedule
        self.eval_dir = eval_dir

    def act(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Stops training if the function says so."""
        if self._should_stop_fn(self._step):
            say("Early stopping at step %d.", self._step)
            run_context.request_stop()

    def should_stop_at(self, step: int) -> bool:
        """Returns whether to stop, if the function reads evaluations."""
        should_stop = self.eval_dir is not None and self._should_stop_fn(step)
        if should_stop:
            say("Early stopping at step %d.", step)
        return should_stop


def make_early_stopping_hook(
    estimator: Any,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Returns a hook for `train` that stops when a function returns True.

    Args:
      estimator: the Estimator that is trained.
      should_stop_fn: takes no arguments; returns whether to stop.
      run_every_secs: calls the function at the end of the first loop, and then at the end of the
        first loop after each interval of this many seconds. None if steps are given.
      run_every_steps: calls the function at exactly every multiple of this many steps: loops end
        there. A small number makes loops short, even if `iterations_per_loop` is large.

    Raises:
      TypeError, ValueError: an argument is wrong, or not exactly one interval is given.
    """
    config = config_of(estimator)
    rule = "a function of no arguments that returns whether to stop"
    check_instance("should_stop_fn", should_stop_fn, Callable, rule)
    check_takes_nothing("should_stop_fn", should_stop_fn)
    schedule = _make_schedule(run_every_secs, run_every_steps)
    if not config.is_chief:
        return _make_hook_without_effect()
    return EarlyStoppingHook(lambda step: bool(should_stop_fn()), schedule)


def stop_if_higher_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Returns a hook for `train` that stops if an evaluation's metric was above a threshold.

    It reads the evaluations' event files, so a restarted run stops at once. It checks at its
    interval and after each checkpoint: with `train_and_evaluate`, training stops at exactly the
    step that was evaluated, whatever the strategy and the loop's length.

    Args:
      estimator: the Estimator that is trained.
      metric_name: a name in `eval_metric_ops`, or "loss".
      threshold: the value that the metric must exceed.
      eval_dir: the directory of the event files; `estimator.eval_dir()` if None. For an EvalSpec
        with a name it is `estimator.eval_dir(name)`.
      min_steps: ignores evaluations of earlier steps.
      run_every_secs: see `make_early_stopping_hook`.
      run_every_steps: see `make_early_stopping_hook`.

    Raises:
      TypeError, ValueError: as for `make_early_stopping_hook`; and when the hook runs, if there are
        evaluations but none has the metric.
    """
    _check_threshold(threshold)
    return _make_metric_hook(
        lambda values: any(value > threshold for value in values.values()),
        _Metric(estimator, metric_name, eval_dir, min_steps),
        _make_schedule(run_every_secs, run_every_steps),
    )


def stop_if_lower_hook(
    estimator: Any,
    metric_name: str,
    threshold: float,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Returns a hook for `train` that stops if an evaluation's metric was below a threshold.

    The arguments and errors are those of `stop_if_higher_hook`.
    """
    _check_threshold(threshold)
    return _make_metric_hook(
        lambda values: any(value < threshold for value in values.values()),
        _Metric(estimator, metric_name, eval_dir, min_steps),
        _make_schedule(run_every_secs, run_every_steps),
    )


def stop_if_no_increase_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Returns a hook for `train` that stops when a metric has no new maximum for some steps.

    It stops if an evaluation came at least `max_steps_without_increase` steps after the one with
    the maximum so far. NaN is never a maximum. The rest is as for `stop_if_higher_hook`.
    """
    patience = checked_count("max_steps_without_increase", max_steps_without_increase, minimum=0)
    return _make_metric_hook(
        lambda values: bool(values) and _longest_wait(values) >= patience,
        _Metric(estimator, metric_name, eval_dir, min_steps),
        _make_schedule(run_every_secs, run_every_steps),
    )


def stop_if_no_decrease_hook(
    estimator: Any,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: str | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> Hook:
    """Returns a hook for `train` that stops when a metric has no new minimum for some steps.

    It is the counterpart of `stop_if_no_increase_hook`.
    """
    patience = checked_count("max_steps_without_decrease", max_steps_without_decrease, minimum=0)

    def should_stop(values: dict[int, float]) -> bool:
        negative = {step: -value for step, value in values.items()}
        return bool(values) and _longest_wait(negative) >= patience

    return _make_metric_hook(
        should_stop,
        _Metric(estimator, metric_name, eval_dir, min_steps),
        _make_schedule(run_every_secs, run_every_steps),
    )


def _make_metric_hook(
    should_stop: Callable[[dict[int, float]], bool], metric: _Metric, schedule: Schedule
) -> EarlyStoppingHook:
    """Makes a hook that decides by a metric's values by step."""
    if not metric.is_read_here:
        return _make_hook_without_effect(metric.eval_dir)
    return EarlyStoppingHook(
        lambda step: should_stop(metric.read_until(step)), schedule, metric.eval_dir
    )


def _make_hook_without_effect(directory: str | None = None) -> EarlyStoppingHook:
    """Makes a hook for tasks other than the chief, which stop when the chief's hook does."""
    return EarlyStoppingHook(lambda step: False, Schedule(), directory)


class _Metric:
    """One metric of the evaluations in a directory.

    Attributes:
      eval_dir: the directory of the evaluations.
      is_read_here: whether this task makes the decision.
    """

    def __init__(
        self, estimator: Any, metric_name: str, eval_dir: str | os.PathLike | None, min_steps: int
    ) -> None:
        """Checks the arguments; event files are read when a step is due."""
        self.is_read_here = config_of(estimator).is_chief
        check_instance("metric_name", metric_name, str, "the name of a metric")
        check_type("eval_dir", eval_dir, (str, os.PathLike), "a path, or None")
        self.eval_dir = os.fspath(eval_dir) if eval_dir is not None else estimator.eval_dir()
        self._name = metric_name
        self._min_steps = checked_count("min_steps", min_steps, minimum=0)
        self._steps_before: set[int] | None = None

    def read_until(self, last_step: int) -> dict[int, float]:
        """Returns the metric's values by step, up to `last_step`.

        Later steps belong to a run that was reset to an earlier checkpoint.

        Raises:
          ValueError: there are evaluations, some since the first call, but none has the metric.
        """
        evaluations = read_evaluations(os.path.join(self.eval_dir, "*tfevents*"))
        if self._steps_before is None:
            # Evaluations of earlier runs may be of a model without the metric.
            self._steps_before = set(evaluations)
        values = {at: row[self._name] for at, row in evaluations.items() if self._name in row}
        if not values and not self._steps_before.issuperset(evaluations):
            names = sorted({name for row in evaluations.values() for name in row})
            raise ValueError(
                f"`metric_name` ({self._name!r}) is in none of the evaluations in "
                f"{self.eval_dir}. {did_you_mean(self._name, names)}"
            )
        return {at: value for at, value in values.items() if self._min_steps <= at <= last_step}


def _longest_wait(values: dict[int, float]) -> int:
    """Returns the most steps from a maximum so far to an evaluation before the next maximum."""
    longest, best, best_step = 0, -math.inf, None
    for step, value in values.items():
        if best_step is None or value > best:
            best_step = step
            best = -math.inf if math.isnan(value) else value
        longest = max(longest, step - best_step)
    return longest


def _check_threshold(threshold: Any) -> None:
    check_number("threshold", threshold)
    if math.isnan(threshold):
        raise ValueError(
            f"`threshold` ({threshold}) must be a number that others can be compared with."
        )


def _make_schedule(every_secs: float | None, every_steps: int | None) -> Schedule:
    if (every_secs is None) == (every_steps is None):
        raise ValueError(
            f"Exactly one of `run_every_secs` ({every_secs}) and `run_every_steps` ({every_steps}) "
            "must be given. For steps, pass `run_every_secs=None` too: its default is 60."
        )
    if every_steps is not None:
        return Schedule(checked_count("run_every_steps", every_steps))
    check_number("run_every_secs", every_secs, minimum=0)
    return Schedule(every_secs=every_secs, is_due_at_once=True)
