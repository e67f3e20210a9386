"""A bar on a terminal that says how far a training is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# How often it is drawn, at most.
_REDRAW_SECS = 0.1


class ProgressBar:
    """A bar with the rate, the loss and the time that is left, in place of lines of a log.

    Between two drawings, of which there are ten a second at most, it reads the clock and no more.
    """

    def __init__(
        self,
        first_step: int,
        last_step: int | None,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        """Draws it empty.

        Args:
          first_step: from which the training goes on.
          last_step: where it is full; None if that is not known, and so there is no time left.
          clock: in seconds.
          options: of tqdm.
        """
        # Here, as most processes never draw one.
        from tqdm import tqdm

        class Unwatched(tqdm):
            """Without tqdm's thread, which draws a bar that is late: a loop may well be long."""

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
        """Draws it for this step if it is time to."""
        now = self._clock()
        if now >= self._next_draw:
            self._next_draw = now + _REDRAW_SECS
            self._bar.set_postfix_str("" if loss is None else f"loss={loss:.4g}", refresh=False)
            self._bar.update(step - self._bar.n)

    def clear(self) -> None:
        """Takes it off the terminal until it is drawn again."""
        self._bar.clear()

    def close(self) -> None:
        """Takes it off the terminal for good."""
        self._bar.close()
