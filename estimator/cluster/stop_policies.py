"""How a training with ps tasks ends, by its reason: who is told, who is waited for, what is left.

Its workers do not step together, so each ends by itself unless it is told to.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

# The whole of what a chief may take that is about to be killed; a checkpoint comes before it.
_HURRY_SECS = 10.0


@dataclass(frozen=True)
class StopPolicy:
    """What a reason to stop means for the other tasks.

    Attributes:
      is_told: whether the other workers are to stop, too, and for the same reason.
      is_chiefs: whether that is so only if it is the chief that stops.
      patience_secs: how long the chief waits for workers that have not stopped yet. None: as long
        as they take, and then it saves what they left. Else it saves first.
      exit_status: of the chief, and of all tasks that were told.
    """

    is_told: bool = False
    is_chiefs: bool = False
    patience_secs: float | None = None
    exit_status: int = 0

    def is_told_by(self, is_chief: bool) -> bool:
        """Whether a worker that stops tells the others."""
        return self.is_told and (is_chief or not self.is_chiefs)


def _by_signal(number: signal.Signals) -> StopPolicy:
    # A worker that is drained comes back, and the others can do without it. The chief they cannot.
    return StopPolicy(True, is_chiefs=True, patience_secs=_HURRY_SECS, exit_status=128 + number)


STOP_POLICIES: Final = {
    "max_steps": StopPolicy(),  # Each finds it in the global step that all share.
    "steps": StopPolicy(),
    "end of input": StopPolicy(),  # Others may have more.
    "max_time": StopPolicy(is_told=True),
    "hook": StopPolicy(is_told=True),
    "listener": StopPolicy(is_told=True),
    "nan loss": StopPolicy(is_told=True),  # It is in the variables of all.
    "SIGINT": _by_signal(signal.SIGINT),
    "SIGTERM": _by_signal(signal.SIGTERM),
}


def stop_policy_name(reason: str, received: signal.Signals | None) -> str:
    """The key in `STOP_POLICIES` of why training stopped, of which `TrainResult` says less."""
    return received.name if reason == "signal" and received is not None else reason


def exit_status(received: signal.Signals | None) -> int:
    """What a process exits with that trained to its end, or to that signal."""
    return 0 if received is None else STOP_POLICIES[received.name].exit_status
