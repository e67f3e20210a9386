"""Errors of checkpoints: of one that does not fit, and of a file system that is away."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_PASSING = (tf.errors.AbortedError, tf.errors.UnavailableError)


class CheckpointError(ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError):
    """A checkpoint does not exist, lacks a variable, or holds one with another shape.

    tf.estimator detected this while restoring, where TensorFlow raises NotFoundError or
    InvalidArgumentError. Here one check before restoring raises a ValueError that is also both of
    these.
    """

    def __init__(self, message: str) -> None:
        """Creates the error from a message, without a failed op."""
        tf.errors.OpError.__init__(self, None, None, message, tf.errors.INVALID_ARGUMENT)

    def __reduce__(self) -> Any:
        """Copies and pickles the error by its message."""
        return type(self), (self.message,)


class DamagedCheckpointsError(CheckpointError):
    """None of the checkpoints can be restored, as a file of each is missing or damaged."""


class CheckpointsRemovedError(CheckpointError):
    """All checkpoints have been removed since they were listed, as by a training that keeps few."""


def may_pass(error: BaseException) -> bool:
    """Returns whether an error may pass, such as that of a file system that is away for a moment.

    It says nothing about a file, which may be there and whole.
    """
    return isinstance(error, _PASSING)
