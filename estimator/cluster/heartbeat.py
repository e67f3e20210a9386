"""Asks the tasks of a cluster again and again whether they are there.

A machine that loses its power or its network closes no connection: whoever waits for it would wait
for a quarter of an hour, until TCP gives up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

# A method that no server has. TensorFlow answers its own, such as GetStatus, on the threads that
# run the ops of a step, so a few slow Python functions there keep it from answering for as long as
# they take. That a method is unknown gRPC says itself, on the threads that serve connections: also
# while the process compiles, holds the GIL or is in a long session call, but not if it is stopped.
METHOD = "/estimator.Heartbeat/Check"
ANSWER = "UNIMPLEMENTED"

_MOST_INTERVAL_SECS = 5.0
_HURRIED_CHECKS = 3


class Heartbeat:
    """Checks of some tasks, each by its name, on a thread of its own.

    What counts is how many checks in a row had no answer, not the time: if this process is the one
    that was stopped, or did not come to its checks, the others are not to blame.
    """

    def __init__(
        self,
        channels: Mapping[str, grpc.Channel],
        timeout_secs: float,
        on_silent: Callable[[str], None],
    ) -> None:
        """Asks nobody yet.

        Args:
          channels: to the tasks, by name.
          timeout_secs: a task that does not answer is known to be silent within this time.
          on_silent: called on the thread of the checks, with the name of one that became silent.
        """
        self._channels = channels
        self._on_silent = on_silent
        # Three quarters, for up to one more interval passes before the first of these checks, and
        # the process of a task takes some seconds to end.
        self._interval_secs = min(timeout_secs / 12, _MOST_INTERVAL_SECS)
        self._num_checks = max(1, int(timeout_secs * 9 / 12 / self._interval_secs))
        self._calls: dict[str, grpc.Future] = {}
        self._missed = dict.fromkeys(channels, 0)
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to ask; a second time, does nothing."""
        if self._thread is None and self._channels:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """From now on a few checks without an answer are enough: this task is to end soon."""
        self._num_checks = min(self._num_checks, _HURRIED_CHECKS)

    def is_silent(self, name: str) -> bool:
        """Whether a task has left so many checks in a row unanswered that it counts as lost."""
        return self._missed.get(name, 0) >= self._num_checks

    def quiet(self) -> list[str]:
        """The tasks that have left more than one check in a row unanswered."""
        return [name for name, missed in self._missed.items() if missed > 1]

    def check_all(self) -> None:
        """What the thread does once in each interval."""
        for name, channel in self._channels.items():
            self._check(name, channel)

    def close(self) -> None:
        """Stops asking."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join()
        for call in self._calls.values():
            call.cancel()

    def _run(self) -> None:
        while not self._is_closed.wait(self._interval_secs):
            self.check_all()

    def _check(self, name: str, channel: grpc.Channel) -> None:
        """Looks whether the last check was answered, and asks again unless it still may be."""
        call = self._calls.get(name)
        if call is not None and not call.done():
            self._missed[name] += 1
        else:
            is_answered = call is None or call.code().name == ANSWER
            self._missed[name] = 0 if is_answered else self._missed[name] + 1
            # TCP sends again what was lost, so this outlives an interruption of the network.
            self._calls[name] = channel.unary_unary(METHOD).future(
                b"", timeout=self._interval_secs * self._num_checks, wait_for_ready=True
            )
        if self.is_silent(name):
            self._on_silent(name)
