"""How training with ps tasks ends for each reason: which tasks stop, and what the chief waits for.

The workers run their steps independently, so each ends by itself unless it is told to stop.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

# The time in which a chief that is about to be killed must finish, after its checkpoint is saved.
_HURRY_SECS = 10.0


@dataclass(frozen=True)
class StopPolicy:
    """The consequences of a reason to stop for the other tasks.

    Attributes:
      stops_others: whether the other workers stop too, for the same reason.
      only_from_chief: whether they stop only if it is the chief that stops.
      patience_secs: how long the chief, which saves first, waits for workers that are still
        running. None: it waits as long as they take, and saves afterwards.
      exit_status: the exit status of the chief and of all tasks that were told to stop.
    """

    stops_others: bool = False
    only_from_chief: bool = False
    patience_secs: float | None = None
    exit_status: int = 0

    def stops_others_from(self, is_chief: bool) -> bool:
        """Returns whether a task that stops tells the others."""
        return self.stops_others and (is_chief or not self.only_from_chief)


def _by_signal(number: signal.Signals) -> StopPolicy:
    # A preempted worker comes back, and the others can train without it, but not without the chief.
    return StopPolicy(
        True, only_from_chief=True, patience_secs=_HURRY_SECS, exit_status=128 + number
    )


STOP_POLICIES: Final = {
    "max_steps": StopPolicy(),  # Every worker sees it in the shared global step.
    "steps": StopPolicy(),
    "end of input": StopPolicy(),  # Other workers may have more input.
    "max_time": StopPolicy(stops_others=True),
    "hook": StopPolicy(stops_others=True),
    "listener": StopPolicy(stops_others=True),
    "nan loss": StopPolicy(stops_others=True),  # The shared variables are NaN for all workers.
    "SIGINT": _by_signal(signal.SIGINT),
    "SIGTERM": _by_signal(signal.SIGTERM),
}


def stop_policy_name(reason: str, received: signal.Signals | None) -> str:
    """Returns the key in `STOP_POLICIES` for a `TrainResult`'s reason and the signal received."""
    return received.name if reason == "signal" and received is not None else reason


def exit_status(received: signal.Signals | None) -> int:
    """Returns the exit status after training to the end, or until a signal was received."""
    return 0 if received is None else STOP_POLICIES[received.name].exit_status
