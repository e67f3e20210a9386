"""Schedules of periodic work, and the length of the next loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Protocol


class Schedule:
    """Fires on crossing a multiple of `every_steps`, or after `every_secs`."""

    def __init__(
        self,
        every_steps: int | None = None,
        every_secs: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_due_at_once: bool = False,
    ) -> None:
        """Never fires if neither is given; `every_secs` counts from now unless `is_due_at_once`."""
        self._every_steps = every_steps
        self._every_secs = every_secs
        self._clock = clock
        self._last = -math.inf if is_due_at_once else clock()

    @property
    def is_by_clock(self) -> bool:
        """Whether the schedule depends on time, not on steps."""
        return self._every_secs is not None

    def next_step(self, step: int) -> int | None:
        """Returns the next step at which it fires; None if it does not depend on steps."""
        if self._every_steps is None:
            return None
        return (step // self._every_steps + 1) * self._every_steps

    def is_due(self, before: int, after: int) -> bool:
        """Returns whether it fires for the steps from `before` to `after`.

        If it fires by the clock, the next interval begins: ask once a loop.
        """
        if self._every_steps is not None:
            return before // self._every_steps != after // self._every_steps
        if self._every_secs is None or self._clock() - self._last < self._every_secs:
            return False
        self._last = self._clock()
        return True


class HasNextStep(Protocol):
    """Anything that requires loops to end on certain steps."""

    def next_step(self, step: int) -> int | None:
        """Returns the next step that a loop must end on after `step`; None if there is none."""


def loop_length(
    step: int, iterations_per_loop: int, max_step: int | None, schedules: Iterable[HasNextStep]
) -> int:
    """Returns the length of the next loop: it ends on the first step that anything waits for."""
    ends = [step + iterations_per_loop]
    ends += [end for schedule in schedules if (end := schedule.next_step(step)) is not None]
    if max_step is not None:
        ends.append(max_step)
    return min(ends) - step
