"""What a call of `train` asks for, and how it ended."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint.old_model import OldModel
from estimator.cluster.server import Connection
from estimator.config.run_config import RunConfig
from estimator.session.hooked_session import Hook

_log = logging.getLogger("estimator")


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended.

    Attributes:
      global_step: the step that was reached.
      loss: of the last step that a session call reported; None if no step ran.
      reason: why it stopped: "max_steps", "steps", "max_time", "end of input", "hook", "listener",
        "nan loss" or "signal".
      skipped_steps: how many steps the `nan_policy` "skip" took back.
    """

    global_step: int
    loss: float | None
    reason: str
    skipped_steps: int = 0


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """What a call of `train` asks for.

    Attributes:
      config: when to save, to write and to log; `model_dir` is filled in.
      session_config: of the session.
      steps: this many more, or None.
      max_steps: stop at this global step, or None.
      hooks: the caller's and the model's.
      listeners: told of every checkpoint.
      is_same_input: whether the input is the one that the newest checkpoint's position is in.
      old_model: what to start from if there is no checkpoint, or None. In a cluster the
        chief alone has it.
      connection: how the session reaches the cluster.
      equal: what must be equal on all workers besides the model and the config, by name.
      batch: how many examples the replicas take at a time, in words, if the caller says.
      batch_size: their number, if it is to be recorded how many there are a second.
      clock: seconds from any fixed moment.
    """

    config: RunConfig
    session_config: tf.compat.v1.ConfigProto
    steps: int | None
    max_steps: int | None
    hooks: Sequence[Hook]
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
    is_same_input: bool
    old_model: OldModel | None = None
    connection: Connection = Connection()
    equal: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch: str = ""
    batch_size: int | None = None
    clock: Callable[[], float] = time.monotonic


def warn_of_no_steps(step: int, max_steps: int) -> None:
    """Says that a call of `train` makes no step."""
    _log.warning("Nothing to train: the global step is %d, and `max_steps` is %d.", step, max_steps)
