"""Writes a small file that appears whole or not at all."""

from __future__ import annotations

import contextlib

import tensorflow as tf


def write_file(path: str, content: bytes, ending: str = ".tmp") -> None:
    """Writes a file beside itself and renames it; removes what a failed write leaves.

    Args:
      path: the path of the file.
      content: what to write.
      ending: of the unfinished file's name; one's own if others may write the file.
    """
    unfinished = path + ending
    try:
        with tf.io.gfile.GFile(unfinished, "wb") as file:
            file.write(content)
        tf.io.gfile.rename(unfinished, path, overwrite=True)
    except BaseException:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(unfinished)
        raise
