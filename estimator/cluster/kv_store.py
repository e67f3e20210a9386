"""A key-value store on the servers of tasks, through which the tasks of a cluster talk."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import tensorflow as tf

from estimator.cluster.stop_policies import STOP_POLICIES

KeyT = TypeVar("KeyT", bound=Hashable)
_REASONS = tuple(STOP_POLICIES)


class _Shared:
    """A variable on the server of a task, shared by every task that uses its name.

    Attributes:
      is_written: scalar, bool: whether it has a value.
      tensor: reads the value; valid only after it was written.
    """

    dtype: tf.DType

    def __init__(self, name: str, device: str) -> None:
        """Adds its ops to the default graph."""
        dtype = self.dtype
        with tf.device(device):
            handle = tf.raw_ops.VarHandleOp(
                dtype=dtype, shape=[], shared_name=f"estimator/{name}", name="shared"
            )
            self._value = tf.compat.v1.placeholder(dtype, [])
            self._write = tf.raw_ops.AssignVariableOp(resource=handle, value=self._value)
            self.is_written = tf.raw_ops.VarIsInitializedOp(resource=handle)
            self.tensor = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)

    def write(self, session: tf.compat.v1.Session, value: int | bytes) -> None:
        """Writes the value, which all tasks can then read."""
        session.run(self._write, {self._value: value})


class SharedNumber(_Shared):
    """A shared number (int64) that is 0 until it is written.

    Attributes:
      tensor: reads the number; valid only after it was written.
    """

    dtype = tf.int64

    def read(self, session: tf.compat.v1.Session) -> int:
        """Returns the number that was written last."""
        return int(session.run(self.tensor)) if session.run(self.is_written) else 0


class SharedText(_Shared):
    """Shared bytes that are empty until they are written.

    Attributes:
      tensor: reads the bytes; valid only after they were written.
    """

    dtype = tf.string

    def read(self, session: tf.compat.v1.Session) -> bytes:
        """Returns the bytes that were written last."""
        return bytes(session.run(self.tensor)) if session.run(self.is_written) else b""


def read_written(
    texts: Mapping[KeyT, SharedText], session: tf.compat.v1.Session
) -> dict[KeyT, bytes]:
    """Returns the bytes of those texts that were written, by their keys."""
    is_written = session.run({key: text.is_written for key, text in texts.items()})
    written = {key: text.tensor for key, text in texts.items() if is_written[key]}
    return session.run(written) if written else {}


def on_ps(index: int) -> str:
    """Returns the device of variables on a ps task."""
    return f"/job:ps/task:{index}/cpu:0"


def encode_stop(count: int, reason: str) -> int:
    """Encodes the count of a training and its reason to stop, one of `STOP_POLICIES`."""
    return count * len(_REASONS) + _REASONS.index(reason)


def decode_stop(value: int, own_count: int) -> str | None:
    """Returns the reason; None if no training of that count, or a later one, was asked to stop."""
    count, reason = divmod(value, len(_REASONS))
    return _REASONS[reason] if count >= own_count else None
