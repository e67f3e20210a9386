"""A hook that stops all tasks of a training at a step, which the chief then saves."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_number, checked_count
from estimator.hooks.estimator_config import config_of
from estimator.session.hooked_session import Hook


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """Returns a hook for `train` that stops all tasks at a step, which the chief then saves.

    No task has to look for the checkpoint: the chief waits for the others before it saves, so none
    is left to run the last steps alone.

    Args:
      estimator: the Estimator that is trained.
      last_step: the global step to stop at.
      wait_after_file_check_secs: ignored; in tf.estimator, the interval between two checks for the
        checkpoint.

    Raises:
      TypeError, ValueError: an argument is wrong.
    """
    config_of(estimator)
    last_step = checked_count("last_step", last_step)
    check_number("wait_after_file_check_secs", wait_after_file_check_secs, minimum=0)
    return tf.compat.v1.train.StopAtStepHook(last_step=last_step)
