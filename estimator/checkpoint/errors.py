"""Errors of checkpoints: of one that does not fit, of files that are damaged or away."""

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

    _code = tf.errors.INVALID_ARGUMENT

    def __init__(self, message: str) -> None:
        """Creates the error from a message, without a failed op."""
        tf.errors.OpError.__init__(self, None, None, message, self._code)

    def __reduce__(self) -> Any:
        """Copies and pickles the error by its message."""
        return type(self), (self.message,)


class DamagedCheckpointsError(CheckpointError, tf.errors.DataLossError):
    """None of the checkpoints can be restored, as a file of each is missing or damaged."""

    _code = tf.errors.DATA_LOSS


class CheckpointsRemovedError(CheckpointError):
    """All checkpoints have been removed since they were listed, as by a training that keeps few."""


def may_pass(error: BaseException) -> bool:
    """Returns whether an error may pass, such as that of a file system that is away for a moment.

    It says nothing about a file, which may be there and whole.
    """
    return isinstance(error, _PASSING)


def restore_error(error: Exception) -> str:
    """Returns the cause in a long message of TensorFlow: its last line that names no node.

    If it failed on several devices, such as a GPU and its host, the message lists what happened on
    each: "(0) DATA_LOSS: Checksum does not match".
    """
    lines = [line.strip() for line in getattr(error, "message", str(error)).splitlines()]
    lines = [line for line in lines if line and not line.startswith(("[[", "Hint: "))]
    roots = [line for line in lines if line.startswith("(0) ")]
    if roots:
        return roots[0].partition(": ")[2].strip()
    return lines[-1] if lines else type(error).__name__
