"""The error of a hook that uses what is inside a loop."""

from __future__ import annotations

from estimator.config.run_config import RunConfig
from estimator.config.tpu_run_config import TPURunConfig

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


def may_leave_loop(config: RunConfig, *, is_compiled: bool) -> bool:
    """Returns whether a HookInLoopError has training run one step a call instead.

    It does if the loop was meant for a TPU: a program for TPUs that runs without one had no loop in
    tf.estimator.

    Args:
      config: the config of the training.
      is_compiled: whether the step is a TPU's program.
    """
    return isinstance(config, TPURunConfig) and not is_compiled and config.cluster.is_alone
