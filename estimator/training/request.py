"""What a call of `train` asks for, and its result."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from estimator.checkpoint.old_model import OldModel
from estimator.cluster.server import Connection
from estimator.config.run_config import RunConfig
from estimator.console import log
from estimator.hooks.stock_hooks_in_loops import saver_hooks
from estimator.session.hooked_session import Hook
from estimator.spec import EstimatorSpec

_WRITERS = (
    tf.compat.v1.train.CheckpointSaverHook,
    tf.compat.v1.train.StepCounterHook,
    tf.compat.v1.train.SummarySaverHook,
)


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended.

    Attributes:
      global_step: the global step at the end.
      loss: the loss of the last step that a session call reported; None if no step ran.
      reason: why training stopped: "max_steps", "steps", "max_time", "end of input", "hook",
        "listener", "nan loss" or "signal".
      skipped_steps: how many steps the `nan_policy` "skip" reverted, in the last session.
    """

    global_step: int
    loss: float | None
    reason: str
    skipped_steps: int = 0


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """What a call of `train` asks for.

    Attributes:
      config: the RunConfig, with `model_dir` set.
      steps: the number of further steps to run, or None.
      max_steps: the global step to stop at, or None.
      hooks: the caller's and the model's.
      listeners: called around every save.
      is_same_input: whether a saved input position may be restored; False after this process has
        trained with another input.
      old_model: the model to warm-start from if there is no checkpoint, or None. In a cluster only
        the chief has it.
      connection: how the session reaches the cluster.
      batch: describes the batch, in words; "" if the caller leaves that to the report.
      batch_size: the global batch size, to report examples/sec, or None.
      clock: returns seconds since some fixed moment.
    """

    config: RunConfig
    steps: int | None
    max_steps: int | None
    hooks: Sequence[Hook]
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
    is_same_input: bool
    old_model: OldModel | None = None
    connection: Connection = Connection()
    batch: str = ""
    batch_size: int | None = None
    clock: Callable[[], float] = time.monotonic

    @property
    def limits(self) -> dict[str, int | None]:
        """How long to train, by the names of the arguments, which must be equal on all workers."""
        return {"`steps`": self.steps, "`max_steps`": self.max_steps}

    @property
    def own_hooks(self) -> list[Hook]:
        """The hooks that this task runs: only the chief runs those that write to `model_dir`."""
        if self.config.is_chief:
            return list(self.hooks)
        return [hook for hook in self.hooks if not isinstance(hook, _WRITERS)]


def training_hooks(hooks: Sequence[Hook], spec: EstimatorSpec, is_chief: bool) -> list[Hook]:
    """Returns the hooks of a training: `training_chief_hooks` on the chief, `hooks`, the spec's.

    All workers get those of them that save. Only the chief runs these, but if a hook saves, no
    worker may wait for the others to save.
    """
    chief_hooks = spec.training_chief_hooks
    return [
        *(chief_hooks if is_chief else saver_hooks(chief_hooks)),
        *hooks,
        *spec.training_hooks,
    ]


def warn_of_no_steps(step: int, max_steps: int) -> None:
    """Warns that a call of `train` runs no step."""
    log.warning("Nothing to train: the global step is %d, and `max_steps` is %d.", step, max_steps)
