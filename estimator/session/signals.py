"""SIGINT and SIGTERM while training: save after the loop that runs, then end the process."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_log = logging.getLogger("estimator")

_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class StopSignal:
    """The signal that asked training to stop; None so far."""

    received: signal.Signals | None = None


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
    if stop.received == signal.SIGINT:
        raise KeyboardInterrupt
    if stop.received is not None:
        raise SystemExit(128 + stop.received)
