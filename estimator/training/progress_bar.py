"""A progress bar for training on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# The shortest time between two redraws.
_REDRAW_SECS = 0.1


class ProgressBar:
    """A progress bar with the speed, the loss and the remaining time, instead of log lines.

    It is redrawn at most ten times a second; in between, `advance` only reads the clock.
    """

    def __init__(
        self,
        first_step: int,
        last_step: int | None,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        """Draws an empty bar.

        Args:
          first_step: the global step that training continues from.
          last_step: the step at which the bar is full; None if unknown, which leaves out the
            remaining time.
          clock: returns seconds.
          options: passed on to tqdm.
        """
        # Imported here because most processes never draw a bar.
        from tqdm import tqdm

        class Unwatched(tqdm):
            """Disables tqdm's monitor thread, which redraws stalled bars: loops may take long."""

            monitor_interval = 0

        self._clock = clock
        self._bar = Unwatched(
            initial=first_step,
            total=last_step,
            unit=" steps",
            dynamic_ncols=True,
            leave=False,
            mininterval=0,
            miniters=1,
            **options,
        )
        self._next_draw = clock() + _REDRAW_SECS

    def advance(self, step: int, loss: float | None) -> None:
        """Redraws the bar at this step, if it is time to."""
        now = self._clock()
        if now >= self._next_draw:
            self._next_draw = now + _REDRAW_SECS
            self._bar.set_postfix_str("" if loss is None else f"loss={loss:.4g}", refresh=False)
            self._bar.update(step - self._bar.n)

    def clear(self) -> None:
        """Removes the bar from the terminal until it is drawn again."""
        self._bar.clear()

    def close(self) -> None:
        """Removes the bar from the terminal for good."""
        self._bar.close()
