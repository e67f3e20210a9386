"""Why training stops: what this worker knows of, and what all workers agreed on."""

from __future__ import annotations

import signal

from estimator.hooks.stock_hooks_in_loops import first_stop
from estimator.training.open_training import OpenTraining
from estimator.training.request import TrainRequest


class StopReasons:
    """Finds a reason to stop.

    Attributes:
      max_step: the step that training stops at, at the latest; None if none is known.
    """

    def __init__(self, training: OpenTraining, first_step: int) -> None:
        """Starts the time that `max_time_secs` limits.

        Args:
          training: its request, hooks and signals give reasons.
          first_step: from which it goes on.
        """
        self._training = training
        self._clock = training.request.clock
        self._started_at = self._clock()
        self.max_step, self._limit = _end_of(training.request, first_step)

    def find(self, step: int) -> str | None:
        """Why this worker stops at `step`; what it alone knows of, it tells the others."""
        team, config = self._training.team, self._training.config
        reasons = []
        if self._training.stop.received is not None:
            reasons.append(self._training.stop.received.name)
        if self._training.session.should_stop:
            reasons.append("hook")
        if config.max_time_secs is not None and self._elapsed() >= config.max_time_secs:
            reasons.append("max_time")
        is_at_end = self.max_step is not None and step >= self.max_step
        if reasons and team.is_one and not (is_at_end and reasons[0] == "max_time"):
            return "signal" if reasons[0].startswith("SIG") else reasons[0]
        for reason in reasons:
            team.request(reason)
        return self._limit if is_at_end else None

    def agreed(self) -> str | None:
        """Why any worker wanted all of them to stop after the last call."""
        agreed = self._training.team.stop
        if agreed is not None and agreed.startswith("SIG"):
            # Each ends as the one does that the signal came to.
            self._training.stop.received = signal.Signals[agreed]
            return "signal"
        return agreed

    def _elapsed(self) -> float:
        return self._clock() - self._started_at


def _end_of(request: TrainRequest, first_step: int) -> tuple[int | None, str]:
    """The first step that something says to stop at, and its name."""
    ends: list[tuple[int, str]] = []
    if request.steps is not None:
        ends.append((first_step + request.steps, "steps"))
    if request.max_steps is not None:
        ends.append((request.max_steps, "max_steps"))
    if (stop_hook := first_stop(request.hooks)) is not None:
        ends.append((stop_hook, "hook"))
    return min(ends, key=lambda end: end[0], default=(None, "hook"))
