"""Checks periodically whether the tasks of a cluster still answer.

A machine that loses power or network closes no connection, so a task that waits for it would wait
for a quarter of an hour, until TCP gives up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

# A method that no server implements. TensorFlow answers its own methods, such as GetStatus, on the
# threads that run the ops of a step, where a few slow Python functions can block it. gRPC itself
# answers that a method is unknown, on the threads that serve connections: also while the process
# compiles, holds the GIL or is in a long session call, but not while it is stopped.
METHOD = "/estimator.Heartbeat/Check"
ANSWER = "UNIMPLEMENTED"

_MAX_INTERVAL_SECS = 5.0
_HURRIED_CHECKS = 3


class Heartbeat:
    """Periodic checks of some tasks, by name, on a separate thread.

    A task is lost after a number of unanswered checks in a row, not after a time: if this process
    was stopped or could not run its checks, the other tasks are not to blame.
    """

    def __init__(
        self,
        channels: Mapping[str, grpc.Channel],
        timeout_secs: float,
        on_silent: Callable[[str], None],
    ) -> None:
        """Prepares the checks; `start` begins them.

        Args:
          channels: the channels to the tasks, by name.
          timeout_secs: a task that stops answering counts as silent within this time.
          on_silent: called on the checking thread, with the name of a task that became silent.
        """
        self._channels = channels
        self._on_silent = on_silent
        # Three quarters of the time, because up to one more interval passes before the first
        # unanswered check, and the process of a task takes some seconds to end.
        self._interval_secs = min(timeout_secs / 12, _MAX_INTERVAL_SECS)
        self._num_checks = max(1, int(timeout_secs * 9 / 12 / self._interval_secs))
        self._calls: dict[str, grpc.Future] = {}
        self._missed = dict.fromkeys(channels, 0)
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the checks, unless they have already started."""
        if self._thread is None and self._channels:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Makes a few unanswered checks count as silence, because this task must end soon."""
        self._num_checks = min(self._num_checks, _HURRIED_CHECKS)

    def is_silent(self, name: str) -> bool:
        """Returns whether a task has missed so many checks in a row that it counts as lost."""
        return self._missed.get(name, 0) >= self._num_checks

    def quiet(self) -> list[str]:
        """Returns the tasks that have missed more than one check in a row."""
        return [name for name, missed in self._missed.items() if missed > 1]

    def check_all(self) -> None:
        """Checks every task once; called at each interval."""
        for name, channel in self._channels.items():
            self._check(name, channel)

    def close(self) -> None:
        """Stops the checks."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()
        for call in self._calls.values():
            call.cancel()

    def _run(self) -> None:
        while not self._is_closed.wait(self._interval_secs):
            self.check_all()

    def _check(self, name: str, channel: grpc.Channel) -> None:
        """Counts the last check as answered or missed, and sends another unless one is pending."""
        call = self._calls.get(name)
        if call is not None and not call.done():
            self._missed[name] += 1
        else:
            is_answered = call is None or call.code().name == ANSWER
            self._missed[name] = 0 if is_answered else self._missed[name] + 1
            # TCP resends lost packets, so a check outlives a short network interruption.
            self._calls[name] = channel.unary_unary(METHOD).future(
                b"", timeout=self._interval_secs * self._num_checks, wait_for_ready=True
            )
        if self.is_silent(name):
            self._on_silent(name)
