"""SIGINT and SIGTERM while training: save after the loop that runs, then end the process."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

_log = logging.getLogger("estimator")

_PATIENCE_SECS = 3.0
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class StopSignal:
    """The signal that asked training to stop; None so far.

    Attributes:
      received: the signal.
      is_interrupted: whether SIGINT has come twice.
      end_call: ends the session call that the main thread is in, for a signal that has come a
        second time; called on another thread. None as long as there is nothing to end.
    """

    received: signal.Signals | None = None
    is_interrupted = False
    _given_up_at: float | None = None

    def __init__(self) -> None:
        """Nothing has come yet."""
        self.end_call: Callable[[], None] | None = None
        self._callbacks: list[Callable[[], None]] = []

    def when_received(self, callback: Callable[[], None]) -> None:
        """Has something called, on any thread, as soon as a signal has come."""
        self._callbacks.append(callback)
        if self.received is not None:
            callback()

    def tell(self) -> None:
        """Calls what is to be called; while the main thread is in a session call, on another."""
        for callback in self._callbacks:
            callback()

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
    and its number. A second one of the same kind acts at once, and ends the session call that runs.

    A handler that the program has installed stays, and so it is in any thread but the main one,
    which alone can handle signals.

    Yields:
      What has been received.
    """
    stop = StopSignal()
    is_main = threading.current_thread() is threading.main_thread()
    ours = [s for s, default in _DEFAULTS.items() if is_main and signal.getsignal(s) == default]
    try:
        with _Arrivals(stop, ours).handled() if ours else contextlib.nullcontext():
            yield stop
    except Exception:
        if stop.is_interrupted:  # It came while the session call that it ended made its error.
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in ours:
            signal.signal(number, _DEFAULTS[number])
    stop.end_process()


class _Arrivals:
    """Counts the signals that come, and acts on them at once.

    Python calls its handlers when the session call of the main thread has returned, so at the end
    of a loop, which may last an hour. But the part of a handler that is in C writes the signal's
    number to a pipe as it comes, which a thread reads here.
    """

    def __init__(self, stop: StopSignal, ours: Sequence[signal.Signals]) -> None:
        """Handles nothing yet.

        Args:
          stop: is told of the first of each kind.
          ours: the signals to handle; others are the program's.
        """
        self._stop, self._ours = stop, ours
        self._counts: Counter[signal.Signals] = Counter()
        self._lock = threading.RLock()  # A handler may interrupt another.
        self._reader, self._writer = socket.socketpair()
        self._before = -1
        self._is_over = False

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Inside, signals are handled; afterwards the handlers are still there."""
        for end in (self._reader, self._writer):
            end.setblocking(False)
        thread = threading.Thread(target=self._watch, daemon=True)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        thread.start()
        for number in self._ours:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            self._is_over = True
            signal.set_wakeup_fd(self._before)
            self._writer.send(b"\0")
            thread.join()
            self._reader.close()
            self._writer.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """What Python calls, once for all of a kind that came during a session call."""
        kind = signal.Signals(number)
        self._read()
        count = self._counts[kind]
        if kind == signal.SIGTERM:
            signal.signal(kind, signal.SIG_DFL)
            if count > 1:
                signal.raise_signal(kind)
        elif count > 1:
            self._stop.is_interrupted = True
            signal.default_int_handler(number, frame)

    def _watch(self) -> None:
        while not self._is_over:
            select.select([self._reader], [], [])
            self._read()

    def _read(self) -> None:
        """Counts all that has come, and acts on it."""
        come = []
        with self._lock, contextlib.suppress(BlockingIOError):
            for number in self._reader.recv(4096):
                if self._before >= 0 and number:  # Where the program is told of signals.
                    os.write(self._before, bytes([number]))
                if number in self._ours:
                    kind = signal.Signals(number)
                    self._counts[kind] += 1
                    come.append((kind, self._counts[kind]))
                    self._stop.received = self._stop.received if self._counts[kind] > 1 else kind
        # Without the lock: the main thread's handler may have interrupted it while it was logging.
        for kind, count in come:
            self._act(kind, count)

    def _act(self, kind: signal.Signals, count: int) -> None:
        if count == 1:
            _log.warning(
                "%s: training stops after this loop and saves. Once more, and it stops at once.",
                kind.name,
            )
            self._stop.tell()
        elif count == 2:
            threading.Thread(target=self._end_call, args=[kind], daemon=True).start()
        elif not self._stop.is_interrupted:
            os._exit(128 + kind)  # What runs cannot be ended in any other way.

    def _end_call(self, kind: signal.Signals) -> None:
        """Lets the main thread come to its handler; SIGTERM does not wait for that for long."""
        if self._stop.end_call is not None:
            self._stop.end_call()
        if kind == signal.SIGTERM:
            time.sleep(_PATIENCE_SECS)
            if not self._is_over:
                os._exit(128 + kind)
