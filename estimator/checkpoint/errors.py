"""What is wrong with a checkpoint, as an error that programs catch by either of its names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class CheckpointError(ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
    """A checkpoint is not there, lacks a variable, or has one of another shape.

    tf.estimator found that out by restoring, and TensorFlow's error for it was NotFoundError or
    InvalidArgumentError. Here it is checked before, by one check for both, as a wrong value.
    """

    def __init__(self, message: str) -> None:
        """No op has failed: there is only the message."""
        tf.errors.OpError.__init__(self, None, None, message, tf.errors.INVALID_ARGUMENT)

    def __reduce__(self) -> Any:
        """Copies and pickles are made of the message."""
        return type(self), (self.message,)
