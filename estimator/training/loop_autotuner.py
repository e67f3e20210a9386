"""How many steps the next loop has, if it is to last a time."""

from __future__ import annotations

import collections

from estimator.config.loop_length import LoopLength

# A loop is at most so many times as long as the longest of those before it: the time of a step is
# not known well from a loop that is mostly the cost of the session call.
_GROWTH = 8
_NUM_LOOPS = 3
_MOST_STEPS = 10**9


class LoopAutotuner:
    """The length of loops; where a time is asked for, from what the loops before took."""

    def __init__(self, length: LoopLength) -> None:
        """Starts with one step, if a time is asked for."""
        self._length = length
        self._is_warm = False
        self._loops: collections.deque[tuple[int, float]] = collections.deque(maxlen=_NUM_LOOPS)

    def num_steps(self) -> int:
        """How many steps the next loop may have."""
        if self._length.secs is None:
            return self._length.steps or 1
        if not self._loops:
            return 1
        longest = max(steps for steps, _ in self._loops)
        secs_per_step = sum(secs for _, secs in self._loops) / sum(s for s, _ in self._loops)
        most = min(longest * _GROWTH, _MOST_STEPS)
        if secs_per_step * most <= self._length.secs:
            return most
        return max(1, round(self._length.secs / secs_per_step))

    def record(self, num_steps: int, secs: float) -> None:
        """Takes in how long a loop took.

        The first says nothing of the next: the session optimizes the graph in it.
        """
        if self._is_warm:
            self._loops.append((num_steps, secs))
        self._is_warm = True
