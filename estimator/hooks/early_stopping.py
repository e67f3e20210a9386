"""Hooks that stop training when a metric, or a function, says so.

The metrics are read from the event files of the evaluations, so that the best value and how long
ago it was outlive a restart.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    check_int,
    check_number,
    check_takes_nothing,
    check_type,
    did_you_mean,
)
from estimator.console import say
from estimator.session.hooked_session import Hook, ScheduledHook, config_of
from estimator.session.schedule import Schedule
from estimator.summary.event_reader import read_evaluations


class EarlyStoppingHook(ScheduledHook):
    """Asks a function at the ends of loops, as its schedule says, whether to stop there.

    Attributes:
      eval_dir: where the evaluations are that the function reads; None if it reads none. If it
        does, it is also asked before the first loop and after each checkpoint, so that an
        evaluation of a step stops training at that step.
    """

    def __init__(
        self,
        should_stop_fn: Callable[[int], bool],
        schedule: Schedule,
        eval_dir: str | None = None,
    ) -> None:
        """Asks nothing yet.

        Args:
          should_stop_fn: takes the global step.
          schedule: when to ask; loops end on its steps.
          eval_dir: see above.
        """
        self._should_stop_fn = should_stop_fn
        self.schedule = schedule
        self.eval_dir = eval_dir

    def act(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Asks."""
        if self._should_stop_fn(self._step):
            say("Early stopping at step %d.", self._step)
            run_context.request_stop()

    def should_stop_at(self, step: int) -> bool:
        """Asks, where evaluations count."""
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
    """A hook for `train` that stops when a function says so.

    Args:
      estimator: the Estimator that is trained.
      should_stop_fn: takes nothing; returns whether to stop.
      run_every_secs: it is called at the end of the first loop, and then of the first loop after
        so many seconds, each time. None if steps are given.
      run_every_steps: or it is called at every multiple of so many steps, exactly: loops end there.
        A small number makes loops short, however large `iterations_per_loop` is.

    Raises:
      TypeError, ValueError: an argument is wrong, or not exactly one interval is given.
    """
    config = config_of(estimator)
    if not callable(should_stop_fn):
        raise WrongTypeError(
            f"`should_stop_fn` ({should_stop_fn!r}) must be a function of no arguments that "
            "returns whether to stop."
        )
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
    """A hook for `train` that stops when a metric of some evaluation was above a threshold.

    It reads the evaluations' event files, so a run that is started again stops at once. Besides
    at its interval it looks after each checkpoint: with `train_and_evaluate` training stops at the
    very step that was evaluated, whatever the strategy and the loop's length.

    Args:
      estimator: the Estimator that is trained.
      metric_name: of `eval_metric_ops`, or "loss".
      threshold: the metric must be above it.
      eval_dir: where the event files are; `estimator.eval_dir()` if None. For an EvalSpec with a
        name it is `estimator.eval_dir(name)`.
      min_steps: evaluations of earlier steps do not count.
      run_every_secs: as for `make_early_stopping_hook`.
      run_every_steps: likewise.

    Raises:
      TypeError, ValueError: as for `make_early_stopping_hook`; and when the hook runs, if there
        are evaluations and none has that metric.
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
    """A hook for `train` that stops when a metric of some evaluation was below a threshold.

    Arguments and errors are those of `stop_if_higher_hook`.
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
    """A hook for `train` that stops when a metric has had no new maximum for some steps.

    It stops if one evaluation came `max_steps_without_increase` steps, or more, after the one with
    the maximum until then. NaN is no maximum. The rest is as for `stop_if_higher_hook`.
    """
    check_int("max_steps_without_increase", max_steps_without_increase, minimum=0)
    return _make_metric_hook(
        lambda values: _longest_wait(values) >= max_steps_without_increase,
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
    """A hook for `train` that stops when a metric has had no new minimum for some steps.

    It is `stop_if_no_increase_hook` the other way round.
    """
    check_int("max_steps_without_decrease", max_steps_without_decrease, minimum=0)
    return _make_metric_hook(
        lambda values: (
            _longest_wait({step: -value for step, value in values.items()})
            >= max_steps_without_decrease
        ),
        _Metric(estimator, metric_name, eval_dir, min_steps),
        _make_schedule(run_every_secs, run_every_steps),
    )


def _make_metric_hook(
    should_stop: Callable[[dict[int, float]], bool], metric: _Metric, schedule: Schedule
) -> EarlyStoppingHook:
    """A hook that stops as the values of a metric, by step, say."""
    if not metric.is_read_here:
        return _make_hook_without_effect(metric.eval_dir)
    return EarlyStoppingHook(
        lambda step: should_stop(metric.read_until(step)), schedule, metric.eval_dir
    )


def _make_hook_without_effect(directory: str | None = None) -> EarlyStoppingHook:
    """For all tasks but the chief: they stop when its hook says so."""
    return EarlyStoppingHook(lambda step: False, Schedule(), directory)


class _Metric:
    """One metric of the evaluations in a directory.

    Attributes:
      eval_dir: the directory.
      is_read_here: whether this task decides by it.
    """

    def __init__(
        self,
        estimator: Any,
        metric_name: str,
        eval_dir: str | os.PathLike | None,
        min_steps: int,
    ) -> None:
        """Checks its arguments; reads nothing yet."""
        self.is_read_here = config_of(estimator).is_chief
        if not isinstance(metric_name, str):
            raise WrongTypeError(f"`metric_name` ({metric_name!r}) must be the name of a metric.")
        check_type("eval_dir", eval_dir, (str, os.PathLike), "a path, or None")
        check_int("min_steps", min_steps, minimum=0)
        self.eval_dir = os.fspath(eval_dir) if eval_dir is not None else estimator.eval_dir()
        self._name = metric_name
        self._min_steps = min_steps
        self._steps_before: set[int] | None = None

    def read_until(self, last_step: int) -> dict[int, float]:
        """Its value by step, where it was evaluated.

        Later steps are of a run that was taken back to an earlier checkpoint.

        Raises:
          ValueError: there are evaluations, also since the first call, and none has the metric.
        """
        evaluations = read_evaluations(os.path.join(self.eval_dir, "*tfevents*"))
        if self._steps_before is None:
            # Those of earlier runs may be of a model that did not have the metric yet.
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
    """The most steps that lie between a maximum so far and an evaluation until the next one."""
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
        check_int("run_every_steps", every_steps)
        return Schedule(every_steps)
    check_number("run_every_secs", every_secs, minimum=0)
    return Schedule(every_secs=every_secs, is_due_at_once=True)
