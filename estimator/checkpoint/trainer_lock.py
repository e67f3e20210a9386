"""Prevents two trainers from writing checkpoints to the same directory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from estimator import console

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so trainers do not detect each other there.
    fcntl = None  # type: ignore[assignment]

FILE_NAME = "training.lock"
_POLL_SECS = 0.2
# The descriptors of the files that this process has locked, by their paths.
_held: dict[str, int] = {}


def _forget_in_child() -> None:
    """Closes the locked files in a forked process, which would hold the locks of a dead parent."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


if fcntl is not None:
    os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def trainer_lock(
    model_dir: str,
    patience_secs: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Locks `model_dir`, which is created if needed, against training by other processes.

    The kernel releases the lock when its process ends for any reason. There is no lock on file
    systems that are not local or do not support locks.

    Args:
      model_dir: the directory of the training.
      patience_secs: how long to wait for another trainer, which may be saving its last step.
      clock: returns seconds since an arbitrary fixed time.
      sleep: waits for a number of seconds.

    Raises:
      RuntimeError: another trainer holds the lock for longer than `patience_secs`, or this process
        holds it already.
      ValueError: the directory cannot be created, because something else has its name.
    """
    if "://" in model_dir or fcntl is None:
        yield
        return
    is_new = not os.path.isdir(model_dir)
    try:
        os.makedirs(model_dir, exist_ok=True)
    except FileExistsError as error:
        raise ValueError(
            f"`model_dir` ({model_dir!r}) is no directory, or leads through a link to one that is "
            "not there, as of a disk that is not mounted. Make that one, or pass another."
        ) from error
    path = os.path.join(model_dir, FILE_NAME)
    _held[path] = _wait_for_lock(path, clock() + patience_secs, clock, sleep)
    try:
        yield
    finally:
        if path in _held:  # It is not in a forked process.
            _unlock(path, _held.pop(path))
        if is_new:
            with contextlib.suppress(OSError):  # The directory may not be empty.
                os.rmdir(model_dir)


def check_not_replaced(model_dir: str) -> None:
    """Checks that `model_dir`, if this process has locked it, is still the one that it locked.

    If only the file is gone, it is locked again.

    Raises:
      RuntimeError: the directory is gone, or another process trains in a new one.
    """
    path = os.path.join(model_dir, FILE_NAME)
    if path not in _held or _is_at(path, _held[path]) or _read_owner(path) == _myself():
        return
    descriptor = _try_lock(path) if os.path.isdir(model_dir) else None
    if descriptor is None:
        raise RuntimeError(
            f"`model_dir` ({model_dir!r}) was removed, moved or replaced while this process "
            "trained in it, or it is relative and the working directory has changed, so nothing "
            "is saved there. Train again, in a directory that stays or by an absolute path."
        )
    os.close(_held[path])
    _held[path] = descriptor


def is_locked(model_dir: str) -> bool:
    """Returns whether a trainer, of any process, has locked `model_dir`."""
    if "://" in model_dir or fcntl is None:
        return False
    try:
        descriptor = os.open(os.path.join(model_dir, FILE_NAME), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # This file system does not support locks.
        return False
    finally:
        os.close(descriptor)
    return False


def _wait_for_lock(
    path: str, deadline: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> int:
    """Returns the descriptor of the locked file."""
    is_waiting = False
    while (descriptor := _try_lock(path)) is None:
        owner = _read_owner(path)
        where = f"{os.path.dirname(path)} is being trained in by {_describe(owner)}"
        if clock() >= deadline or owner == _myself():
            raise RuntimeError(
                f"`model_dir` {where}. Two trainings would overwrite each other's checkpoints: end "
                "that one first, or train in another `model_dir`."
            )
        if not is_waiting:
            console.say("%s: waiting for it to end", where)
        is_waiting = True
        sleep(_POLL_SECS)
    return descriptor


def _try_lock(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:
        descriptor = os.open(path, os.O_RDONLY)  # Another user's trainer was killed.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous owner may have removed the file since it was opened.
        is_current = _is_at(path, descriptor)
    except BlockingIOError:
        is_current = False
    except OSError:  # This file system does not support locks.
        return descriptor
    if not is_current:
        os.close(descriptor)
        return None
    with contextlib.suppress(OSError):  # The disk may be full. It only tells others who it is.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(_myself()).encode())
    return descriptor


def _unlock(path: str, descriptor: int) -> None:
    """Removes the file and releases the lock; raises nothing that would hide a training's error."""
    try:
        # The directory may be gone, with another trainer in a new one, or read-only by now.
        with contextlib.suppress(OSError):
            if _is_at(path, descriptor):
                os.unlink(path)
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int) -> bool:
    """Returns whether the open file is the one at `path`."""
    return os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.stat(path))


def _read_owner(path: str) -> dict[str, Any]:
    """Returns who holds the lock; empty while that is being written."""
    try:
        with open(path) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def _describe(owner: dict[str, Any]) -> str:
    if owner == _myself():
        return "this process already"
    return "process {pid} on {host}".format(**owner) if owner else "another process"


def _myself() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}
