"""Chooses the number of steps of the next loop, to match a target duration."""

from __future__ import annotations

import collections

from estimator.config.loop_length import loop_secs

# A loop grows at most by this factor: a loop so short that the session call dominates its duration
# says little about the time of a step.
_GROWTH = 8
_NUM_LOOPS = 3
_MAX_STEPS = 10**9


class LoopAutotuner:
    """Chooses loop lengths: a fixed number of steps, or from the durations of recent loops."""

    def __init__(self, length: int | str) -> None:
        """Starts with a loop of one step if `length`, an `iterations_per_loop`, is a time."""
        self._length = length
        self._is_warm = False
        self._loops: collections.deque[tuple[int, float]] = collections.deque(maxlen=_NUM_LOOPS)

    def num_steps(self) -> int:
        """Returns the largest number of steps that the next loop may have."""
        if isinstance(self._length, int):
            return self._length
        if not self._loops:
            return 1
        goal_secs = loop_secs(self._length)
        longest = max(steps for steps, _ in self._loops)
        secs_per_step = sum(secs for _, secs in self._loops) / sum(s for s, _ in self._loops)
        most = min(longest * _GROWTH, _MAX_STEPS)
        if secs_per_step * most <= goal_secs:
            return most
        return max(1, round(goal_secs / secs_per_step))

    def record(self, num_steps: int, secs: float) -> None:
        """Records the duration of a loop.

        The first loop is ignored, because the session also optimizes the graph in it.
        """
        if self._is_warm:
            self._loops.append((num_steps, secs))
        self._is_warm = True
