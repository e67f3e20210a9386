"""The directory that an export is written in, and those that killed processes left behind."""

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
except ImportError:  # Not on Windows, where nothing is removed that was left behind.
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"temp-([0-9]+)-[0-9a-f]{8}")
# Between the making of a directory and its lock; clocks of several machines may differ, too.
_NEW_SECS = 60


def unfinished_path(base: str, seconds: int) -> str:
    """A new name in `base` for what is not whole yet, or not any more, at that time since 1970."""
    return os.path.join(base, f"temp-{seconds}-{uuid.uuid4().hex[:8]}")


@contextlib.contextmanager
def unfinished_dir(base: str, seconds: int) -> Iterator[str]:
    """Makes an empty directory in `base` to write in; what is still there at an error is removed.

    A lock says that its process lives, however that may end. `base` is made too.

    Args:
      base: the directory of the exports.
      seconds: since 1970.
    """
    path = unfinished_path(base, seconds)
    with contextlib.ExitStack() as stack:
        try:
            tf.io.gfile.makedirs(path)
            stack.enter_context(_locked(path))
            yield path
        except BaseException:
            with contextlib.suppress(tf.errors.OpError):  # The first error says more.
                tf.io.gfile.rmtree(path)
            raise


def remove_abandoned_dirs(base: str, seconds: int) -> None:
    """Removes what exports that did not live to their end left in `base`.

    Where a file system knows no locks, or is not a local one, everything is left alone.

    Args:
      base: the directory of the exports.
      seconds: since 1970.
    """
    for name in os.listdir(base) if os.path.isdir(base) else ():
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) > seconds - _NEW_SECS:
            continue
        path = os.path.join(base, match[0])
        with _locked(path) as is_locked:
            if is_locked:
                with contextlib.suppress(tf.errors.OpError):  # Another process does it, too.
                    tf.io.gfile.rmtree(path)
                    note("Removed %s, which a killed export left behind", path)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool]:
    """Holds the lock of a directory, which ends with its process; tells whether it got it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # Not of a local file system, or already gone.
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
