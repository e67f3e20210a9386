"""Manages the temporary directory of an export, and removes those that killed processes left."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator

import tensorflow as tf

from estimator.console import note

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so nothing is cleaned up there.
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"temp-([0-9]+)-[0-9a-f]{8}")
# Allows for the time between creating and locking a directory, and for clock differences.
_NEW_SECS = 60


def unfinished_path(base: str, seconds: int) -> str:
    """Returns a new path in `base` for an incomplete directory, with the time since 1970."""
    return os.path.join(base, f"temp-{seconds}-{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def unfinished_dir(base: str, seconds: int) -> Iterator[str]:
    """Creates an empty directory in `base`, which is removed if an error occurs.

    A lock shows that its process is alive, however the process ends. `base` is created too.

    Args:
      base: the directory of the exports.
      seconds: the time in seconds since 1970.
    """
    path = unfinished_path(base, seconds)
    with contextlib.ExitStack() as stack:
        try:
            tf.io.gfile.makedirs(path)
            stack.enter_context(_locked(path))
            yield path
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):  # The first error is more informative.
                tf.io.gfile.rmtree(path)
            raise


def remove_abandoned_dirs(base: str, seconds: int) -> None:
    """Removes directories of exports whose process has died.

    On file systems that are not local or have no locks, everything is left alone.

    Args:
      base: the directory of the exports.
      seconds: the time in seconds since 1970.
    """
    for name in os.listdir(base) if os.path.isdir(base) else ():
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) > seconds - _NEW_SECS:
            continue
        path = os.path.join(base, match[0])
        with _locked(path) as is_locked:
            if is_locked:
                with contextlib.suppress(tf.errors.OpError):  # Another process may remove it too.
                    tf.io.gfile.rmtree(path)
                    note("Removed %s, which a killed export left behind", path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Holds the lock of a directory, released when the process ends; yields whether it got it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # Not on a local file system, or already gone.
        yield False
        return
    try:
        yield fcntl is not None and _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
