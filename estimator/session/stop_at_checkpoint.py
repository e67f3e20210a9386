"""A hook that stops every task of a training at a step once its checkpoint is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files
from estimator.config.checks import check_int, check_number
from estimator.session.hooks import Hook, build_step_read, config_of


class StopAtCheckpointStepHook(Hook):
    """Stops a task that writes no checkpoints once there is one of the last step, or a later one.

    So it does not leave the chief alone with the last steps.
    """

    def __init__(
        self,
        model_dir: str,
        last_step: int,
        wait_secs: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Looks for nothing yet.

        Args:
          model_dir: where the chief writes.
          last_step: of the training.
          wait_secs: between two looks.
          sleep: waits for so many seconds.
        """
        self._model_dir = model_dir
        self._last_step = last_step
        self._wait_secs = wait_secs
        self._sleep = sleep

    def begin(self) -> None:
        """Adds the op that reads the global step."""
        self._step_read = build_step_read()

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Waits for the checkpoint when the step is reached, and then stops."""
        del run_values
        if int(run_context.session.run(self._step_read)) < self._last_step:
            return
        while not self._has_checkpoint():
            self._sleep(self._wait_secs)
        run_context.request_stop()

    def _has_checkpoint(self) -> bool:
        path = files.latest_checkpoint(self._model_dir)
        step = files.checkpoint_step(path) if path else None
        return step is not None and step >= self._last_step


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """A hook for `train` that stops at a step, on every task once its checkpoint is there.

    The chief, and so every run on one machine, stops at the step itself and then saves it. A task
    that writes no checkpoints waits until there is one of that step or a later one.

    Args:
      estimator: the Estimator that is trained.
      last_step: the global step to stop at.
      wait_after_file_check_secs: between two looks for the checkpoint.

    Raises:
      TypeError, ValueError: an argument is wrong.
    """
    config = config_of(estimator)
    check_int("last_step", last_step)
    check_number("wait_after_file_check_secs", wait_after_file_check_secs, minimum=0)
    if config.is_chief:
        return tf.compat.v1.train.StopAtStepHook(last_step=last_step)
    return StopAtCheckpointStepHook(estimator.model_dir, last_step, wait_after_file_check_secs)
