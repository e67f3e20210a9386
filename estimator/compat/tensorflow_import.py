"""Imports TensorFlow for a program of TensorFlow 1: with tf-keras, and without log lines."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import tempfile
from collections.abc import Iterator

from estimator.config.cluster import choose_cpp_log_level, use_legacy_keras


def import_tensorflow() -> None:
    """Imports TensorFlow, which then uses tf-keras if that is installed, and logs errors alone.

    The environment variables TF_USE_LEGACY_KERAS and TF_CPP_MIN_LOG_LEVEL say otherwise.
    """
    if importlib.util.find_spec("tf_keras") is not None:
        use_legacy_keras()
    level = choose_cpp_log_level("2" if _has_cuda_driver() else "3")
    with contextlib.nullcontext() if level in ("0", "1") else stderr_held():
        import tensorflow  # noqa: F401


def _has_cuda_driver() -> bool:
    """Returns whether there is a driver; if there is none, TensorFlow logs that as an error."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def stderr_held() -> Iterator[None]:
    """Hides what is written to stderr inside the block, unless that raises an error.

    TensorFlow logs some lines during its import whatever the environment says.
    """
    with tempfile.TemporaryFile() as held, open(os.dup(2), "wb") as stderr:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            stderr.write(held.read())
            raise
        finally:
            os.dup2(stderr.fileno(), 2)
