"""Handles SIGINT and SIGTERM in training: save after the current loop, then end the process."""

from __future__ import annotations

import contextlib
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

from estimator import _tf
from estimator.console import log

_PATIENCE_SECS = 3.0
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class StopSignal:
    """The signal that has asked training to stop, if any.

    Attributes:
      received: the signal; None if none was received.
      is_interrupted: whether SIGINT was received twice.
      end_call: ends the main thread's session call when a signal is received a second time; called
        on another thread. None while there is no call to end.
    """

    received: signal.Signals | None = None
    is_interrupted = False
    _given_up_at: float | None = None

    def __init__(self) -> None:
        """Starts without a received signal."""
        self.end_call: Callable[[], None] | None = None
        self._callbacks: list[Callable[[], None]] = []

    def when_received(self, callback: Callable[[], None]) -> None:
        """Registers a callback, called on any thread as soon as a signal is received."""
        self._callbacks.append(callback)
        if self.received is not None:
            callback()

    def tell(self) -> None:
        """Runs the callbacks; on another thread while the main thread is in a session call."""
        for callback in self._callbacks:
            callback()

    def check_waiting(self) -> None:
        """Ends the process soon after a signal; called repeatedly while training waits to begin.

        The short delay lets workers that wait for each other's last opening step end together.

        Raises:
          KeyboardInterrupt, SystemExit: a signal was received some seconds ago.
        """
        if self.received is None:
            return
        if self._given_up_at is None:
            self._given_up_at = time.monotonic() + _PATIENCE_SECS
        if time.monotonic() >= self._given_up_at:
            self.end_process()

    def end_process(self) -> None:
        """Raises the exception that ends the process as the received signal would have, if any."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)


@contextlib.contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Defers the first SIGINT or SIGTERM to the end of the block.

    SIGINT then raises KeyboardInterrupt, and SIGTERM raises SystemExit with code 143 (128 plus its
    number). A second signal of the same kind acts at once and ends the running session call.

    Handlers that the program has installed stay in place, also those that it installs inside the
    block. So do all handlers outside the main thread, which alone can handle signals.

    Yields:
      The signal received, if any.
    """
    stop = StopSignal()
    is_main = threading.current_thread() is threading.main_thread()
    ours = [s for s, default in _DEFAULTS.items() if is_main and signal.getsignal(s) == default]
    try:
        with _Arrivals(stop, ours).handled() if ours else contextlib.nullcontext():
            yield stop
    except Exception:
        if stop.is_interrupted:  # The second signal arrived while the call was raising its error.
            raise KeyboardInterrupt from None
        raise
    stop.end_process()


class _Arrivals:
    """Counts incoming signals and acts on them at once.

    Python runs its handlers only when the main thread's session call has returned, at the end of a
    loop that may last an hour. But the C part of a handler writes the signal's number to a pipe at
    once, and a thread here reads that pipe.
    """

    def __init__(self, stop: StopSignal, ours: Sequence[signal.Signals]) -> None:
        """Prepares to handle signals; `handled` installs the handlers.

        Args:
          stop: updated with the first signal of each kind.
          ours: the signals to handle; others belong to the program.
        """
        self._stop, self._ours = stop, ours
        self._counts: Counter[signal.Signals] = Counter()
        self._lock = threading.RLock()  # Reentrant, because a handler may interrupt another.
        self._reader, self._writer = socket.socketpair()
        self._before = -1
        self._is_over = False

    @contextlib.contextmanager
    def handled(self) -> Iterator[None]:
        """Handles signals inside the block."""
        for end in (self._reader, self._writer):
            end.setblocking(False)
        thread = threading.Thread(target=self._watch, daemon=True)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        _handling.append(self)
        thread.start()
        for number in self._ours:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            self._is_over = True
            if self in _handling:  # Not in a forked process.
                _handling.remove(self)
            signal.set_wakeup_fd(self._before)
            self._writer.send(b"\0")
            thread.join()
            self._reader.close()
            self._writer.close()
            self._restore_defaults()

    def forget_in_child(self) -> None:
        """Restores the defaults in a forked process, whose signals its parent would count, too."""
        signal.set_wakeup_fd(self._before)
        self._restore_defaults()

    def _restore_defaults(self) -> None:
        for number in self._ours:
            if signal.getsignal(number) == self._handle:  # Else a hook has installed another one.
                signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handles, in Python, all signals of a kind that arrived during a session call.

        A hook may have replaced this handler, and call it from its own. When training is over, it
        may have been put back.
        """
        kind = signal.Signals(number)
        if self._is_over:
            signal.signal(kind, _DEFAULTS[kind])
            signal.raise_signal(kind)
            return
        if self._is_left_to_us(kind):
            self._read()
        else:
            self._act(kind, self._count(kind))
        count = self._counts[kind]
        if kind == signal.SIGTERM and (count > 1 or self._is_left_to_us(kind)):
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
        """Counts the signals that have arrived, and acts on them."""
        come = []
        with self._lock, contextlib.suppress(BlockingIOError):
            for number in self._reader.recv(4096):
                if self._before >= 0 and number:  # Forwarded to the program's own wakeup fd.
                    os.write(self._before, bytes([number]))
                if number in self._ours and self._is_left_to_us(kind := signal.Signals(number)):
                    come.append((kind, self._count(kind)))
        # Releases the lock first: the main thread's handler may have interrupted it while logging.
        for kind, count in come:
            self._act(kind, count)

    @classmethod
    def _is_left_to_us(cls, kind: signal.Signals) -> bool:
        """Returns whether no hook has installed a handler; `_handle` itself installs SIG_DFL."""
        handler = signal.getsignal(kind)
        return handler is signal.SIG_DFL or getattr(handler, "__func__", None) is cls._handle

    def _count(self, kind: signal.Signals) -> int:
        with self._lock:
            self._counts[kind] += 1
            if self._counts[kind] == 1:
                self._stop.received = kind
            return self._counts[kind]

    def _act(self, kind: signal.Signals, count: int) -> None:
        if count == 1:
            log.warning(
                "%s: training will save and stop after this loop. Send it again to stop at once.",
                kind.name,
            )
            self._stop.tell()
        elif count == 2:
            threading.Thread(target=self._end_call, args=[kind], daemon=True).start()
        elif not self._stop.is_interrupted:
            os._exit(128 + kind)  # The running call cannot be ended in any other way.

    def _end_call(self, kind: signal.Signals) -> None:
        """Ends the session call so that the handler runs; SIGTERM waits for that only briefly."""
        if self._stop.end_call is not None:
            with _tf.stopped_at_exit():
                self._stop.end_call()
        if kind == signal.SIGTERM:
            time.sleep(_PATIENCE_SECS)
            if not self._is_over:
                os._exit(128 + kind)


# Of the main thread: one, unless a hook trains, too, after a first signal.
_handling: list[_Arrivals] = []
_forking = threading.local()


def _hold_signals() -> None:
    """Holds back signals to a process that is about to be forked, until it has its own handlers."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS if _handling else ())


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget_in_child() -> None:
    try:
        for arrivals in _handling:
            arrivals.forget_in_child()
    finally:
        _handling.clear()
        _release_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_release_signals, after_in_child=_forget_in_child
    )
