"""SIGINT and SIGTERM while training: save after the loop that runs, then end the process."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

_log = logging.getLogger("estimator")

_PATIENCE_SECS = 3.0
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class StopSignal:
    """The signal that asked training to stop; None so far."""

    received: signal.Signals | None = None
    _given_up_at: float | None = None

    def check_waiting(self) -> None:
        """To be called while training waits to begin: ends the process soon after a signal.

        Not at once: workers that wait for each other's last step of opening end together.

        Raises:
          KeyboardInterrupt, SystemExit: the signal came some seconds ago.
        """
        if self.received is None:
            return
        if self._given_up_at is None:
            self._given_up_at = time.monotonic() + _PATIENCE_SECS
        if time.monotonic() >= self._given_up_at:
            self.end_process()

    def end_process(self) -> None:
        """Raises what ends the process as the signal would have; nothing without a signal."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)


@contextlib.contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Inside, the first SIGINT or SIGTERM is only noted; it takes effect at the end of the block.

    SIGINT then raises KeyboardInterrupt, SIGTERM raises SystemExit with the code 143, which is 128
    and its number. A second one of the same kind acts at once, as it does outside the block. Python
    sees a signal when a session call has ended, so at the end of a loop.

    A handler that the program has installed stays, and so it is in any thread but the main one,
    which alone can handle signals.

    Yields:
      What has been received.
    """
    stop = StopSignal()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        stop.received = signal.Signals(number)
        signal.signal(number, _DEFAULTS[stop.received])
        _log.warning(
            "%s: training stops after this loop and saves. Once more, and it stops at once.",
            stop.received.name,
        )

    is_main = threading.current_thread() is threading.main_thread()
    ours = [s for s, default in _DEFAULTS.items() if is_main and signal.getsignal(s) == default]
    for number in ours:
        signal.signal(number, note)
    try:
        yield stop
    finally:
        for number in ours:
            signal.signal(number, _DEFAULTS[number])
    stop.end_process()
