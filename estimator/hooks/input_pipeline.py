"""The hook of TensorFlow 2.15 that saved the position of the input, which checkpoints hold now."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.hooks.estimator_config import config_of


class CheckpointInputPipelineHook(tf.compat.v1.train.SessionRunHook):
    """Does nothing while training: each checkpoint has the position of the input, too.

    `install` puts it back into `tf.data.experimental`, for programs that pass it to `train`.
    """

    def __init__(self, estimator: Any, external_state_policy: str | None = None) -> None:
        """Checks that the input will be resumed.

        Args:
          estimator: the Estimator that trains.
          external_state_policy: has no effect.

        Raises:
          TypeError: `estimator` is not an Estimator.
          ValueError: its config says not to resume the input.
        """
        if not config_of(estimator).resume_input:
            raise ValueError(
                "A CheckpointInputPipelineHook resumes the input, and the RunConfig has "
                "`resume_input=False`. Leave one of them out."
            )
