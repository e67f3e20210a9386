"""The error of a hook that uses what is inside a loop."""

from __future__ import annotations

_WAYS_OUT = (
    "Either train with `iterations_per_loop=1`, or log it with a LoggingTensorHook among the "
    "`training_hooks` of the EstimatorSpec, which sees the last step of each loop."
)


class HookInLoopError(ValueError):
    """A hook uses what is inside the loop.

    Attributes:
      reason: the message without the ways out.
      has_trained: whether a session call has run, after which training cannot begin again.
    """

    def __init__(self, reason: str, *, has_trained: bool) -> None:
        """Adds the ways out to the reason."""
        super().__init__(f"{reason} {_WAYS_OUT}")
        self.reason = reason
        self.has_trained = has_trained
