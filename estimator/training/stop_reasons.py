"""Finds the reason to stop training: this worker's own, or the one that all workers agreed on."""

from __future__ import annotations

import signal

from estimator.hooks.stock_hooks_in_loops import first_stop
from estimator.training.open_training import OpenTraining
from estimator.training.request import TrainRequest


class StopReasons:
    """Finds reasons to stop.

    Attributes:
      first_step: the global step that training started from; None before it has.
      max_step: the global step at which training stops at the latest; None if unknown.
      is_ending: whether the last save and the `end` of hooks have begun.
    """

    first_step: int | None = None
    max_step: int | None = None
    is_ending = False

    def __init__(self, training: OpenTraining) -> None:
        """Finds no reason before `begin`.

        Args:
          training: the training run, whose request, hooks and signals give reasons to stop.
        """
        self._training = training
        self._clock = training.request.clock
        self._started_at: float | None = None
        self._limit = "hook"

    def begin(self, first_step: int) -> None:
        """Counts steps and seconds from here, unless an earlier session of the training has begun.

        Args:
          first_step: the global step that the session starts from.
        """
        if self._started_at is None:
            self._started_at = self._clock()
            self.first_step = first_step
            self.max_step, self._limit = _end_of(self._training.request, first_step)

    def find(self, step: int) -> str | None:
        """Returns why to stop at `step`, or None; shares reasons of its own with other workers."""
        worker_group, config = self._training.worker_group, self._training.config
        reasons = []
        if self._training.stop.received is not None:
            reasons.append(self._training.stop.received.name)
        if self._training.session.should_stop:
            reasons.append("hook")
        limit = config.max_time_secs
        if limit is not None and self._clock() - (self._started_at or 0.0) >= limit:
            reasons.append("max_time")
        is_at_end = self.max_step is not None and step >= self.max_step
        if reasons and worker_group.decides_alone and not (is_at_end and reasons[0] == "max_time"):
            return "signal" if reasons[0].startswith("SIG") else reasons[0]
        for reason in reasons:
            worker_group.request(reason)
        return self._limit if is_at_end else None

    def agreed(self) -> str | None:
        """Returns the reason that any worker gave all to stop after the last call, or None."""
        agreed = self._training.worker_group.stop
        if agreed is not None and agreed.startswith("SIG"):
            # Every worker ends like the one that received the signal.
            self._training.stop.received = signal.Signals[agreed]
            return "signal"
        return agreed


def _end_of(request: TrainRequest, first_step: int) -> tuple[int | None, str]:
    """Returns the earliest step to stop at, or None, and the reason."""
    ends: list[tuple[int, str]] = []
    if request.steps is not None:
        ends.append((first_step + request.steps, "steps"))
    if request.max_steps is not None:
        ends.append((request.max_steps, "max_steps"))
    if (stop_hook := first_stop(request.hooks)) is not None:
        ends.append((stop_hook, "hook"))
    return min(ends, key=lambda end: end[0], default=(None, "hook"))
