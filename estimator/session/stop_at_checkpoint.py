"""A hook that stops every task of a training at a step, whose checkpoint the chief writes."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_int, check_number
from estimator.session.hooks import Hook, config_of


def make_stop_at_checkpoint_step_hook(
    estimator: Any, last_step: int, wait_after_file_check_secs: float = 30
) -> Hook:
    """A hook for `train` that stops at a step, once every task of a cluster is there.

    The end of a training is agreed on: all workers stop at the step, the chief saves it, and none
    is left alone with the last steps. So no task needs to look for the checkpoint, which the chief
    writes only when the others have stopped.

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
