"""A hook that stops every task of a training at a step, whose checkpoint the chief writes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_int, check_number
from estimator.session.hooked_session import Hook, config_of


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """A hook for `train` that stops every task of a training at a step; the chief then saves it.

    No task looks for the checkpoint, nor needs to: the chief waits for the others before it writes,
    so none is left alone with the last steps.

    Args:
      estimator: the Estimator that is trained.
      last_step: the global step to stop at.
      wait_after_file_check_secs: was between two looks for the checkpoint; has no effect.

    Raises:
      TypeError, ValueError: an argument is wrong.
    """
    config_of(estimator)
    check_int("last_step", last_step)
    check_number("wait_after_file_check_secs", wait_after_file_check_secs, minimum=0)
    return tf.compat.v1.train.StopAtStepHook(last_step=last_step)
