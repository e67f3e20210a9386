"""Finds the checkpoints of a directory, and reads them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint.errors import may_pass
from estimator.config.checks import WrongTypeError, check_no_pattern
from estimator.console import log

PREFIX = "model.ckpt"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
# The key of tf.train.Checkpoint's object graph in its files.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SAVED = re.compile(f"({re.escape(PREFIX)}" + r"-\d+)(\.index)?$")
# How many times at most a directory is listed that changes meanwhile.
_LISTINGS = 10


def checkpoint_step(path: str) -> int | None:
    """Returns the global step in a checkpoint's name, such as `model.ckpt-100`, or None."""
    match = re.search(r"-(\d+)$", path)
    return int(match.group(1)) if match else None


def checkpoints_newest_first(model_dir: str) -> list[str]:
    """Returns the paths of the checkpoints in a directory, newest first.

    The file `checkpoint` names the newest; if it is empty or wrong, the files' steps decide. Only
    the first path is checked to be readable, because there may be very many.
    """
    found = _saved_in(model_dir)
    named = _named_latest(model_dir)
    if named is not None:
        step = checkpoint_step(named) or 0
        newer = [path for path in found if (checkpoint_step(path) or 0) > step]
        found = [named, *(path for path in found if path != named and path not in newer), *newer]
    return list(itertools.dropwhile(lambda path: not is_readable(path), found))


def _saved_in(model_dir: str) -> list[str]:
    """Returns the paths of the checkpoints in a directory, newest step first, complete or not."""
    # `isdir` and `listdir` take a file system that is away for one without the directory.
    if not tf.io.gfile.exists(model_dir) or not tf.io.gfile.isdir(model_dir):
        return []
    matches = [match for name in tf.io.gfile.listdir(model_dir) if (match := _SAVED.match(name))]
    saved = {
        name
        for name, index in (match.groups() for match in matches)
        if index or _is_of_format_v1(os.path.join(model_dir, name))
    }
    by_step = sorted(saved, key=lambda name: checkpoint_step(name) or 0, reverse=True)
    return [os.path.join(model_dir, name) for name in by_step]


def exists(path: str) -> bool:
    """Returns whether there is a checkpoint at a path, complete or not."""
    return tf.io.gfile.exists(path + ".index") or _is_of_format_v1(path)


def main_file(path: str) -> str:
    """Returns the file without which there is no checkpoint: its index, or the only one of V1."""
    index = path + ".index"
    return path if not tf.io.gfile.exists(index) and _is_of_format_v1(path) else index


def _is_of_format_v1(path: str) -> bool:
    """Returns whether a path is a checkpoint of the format before 2017, a single file."""
    if _ENDING.search(path) or not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        return False
    try:
        tf.compat.v1.train.NewCheckpointReader(path)
    except tf.errors.OpError:
        return False
    return True


def latest_checkpoint(model_dir: str) -> str | None:
    """Returns the newest readable checkpoint in a directory; None if there is none."""
    paths = checkpoints_newest_first(model_dir)
    return paths[0] if paths else None


def existing_checkpoints(directories: Sequence[str], path: Any = None) -> list[str]:
    """Returns the checkpoint at `path`, or those of the first directory that has any.

    Returns:
      The paths, newest first.

    Raises:
      TypeError, ValueError: there is no checkpoint; the message names the first directory, the
        `model_dir`.
    """
    if paths := any_checkpoints(directories, path):
        return paths
    raise ValueError(
        f"There is no checkpoint in `model_dir` ({directories[0]}). Call `train` first, or "
        "pass a `checkpoint_path`."
    )


def any_checkpoints(directories: Sequence[str], path: Any = None) -> list[str]:
    """Does the same as `existing_checkpoints`, but returns no paths if nothing was saved yet.

    What a save that was killed before any other was complete has left counts as nothing.

    Raises:
      TypeError, ValueError: there is no checkpoint at `path`, or the existing ones cannot be read.
    """
    if path is not None and path != "":  # An empty flag is no path.
        return [checked_checkpoint(path)]
    for directory in directories:
        found: list[str] = []
        for _ in range(_LISTINGS):
            if paths := checkpoints_newest_first(directory):
                return paths
            before, found = found, _saved_in(directory)
            if found == before:  # Otherwise another process may save and remove.
                break
        is_named = tf.io.gfile.exists(os.path.join(directory, "checkpoint"))
        if found and (is_named or len(found) > 1):
            raise ValueError(
                f"None of the checkpoints in `model_dir` ({directory}) can be read: "
                f"{', '.join(found)}. Remove them to start from scratch."
            )
    return []


def open_checkpoint(path: str) -> Any:
    """Returns a tf.train.CheckpointReader of the checkpoint at `path`.

    `tf.train.load_checkpoint` first asks the file system whether the path is a directory, and an
    in-memory one (`ram://`) says so of every prefix of a file's name.

    Raises:
      tf.errors.NotFoundError: there is none.
      tf.errors.OpError: it cannot be read.
    """
    try:
        return tf.compat.v1.train.NewCheckpointReader(path)
    except tf.errors.OpError as error:
        # Without a file, the reader's error is of no kind.
        if exists(path):
            raise
        raise tf.errors.NotFoundError(None, None, f"{path}.index was removed") from error


def read_tensor(reader: Any, name: str) -> Any:
    """Returns a tensor that a tf.train.CheckpointReader reads.

    Raises:
      tf.errors.DataLossError: the file is truncated; TensorFlow's reader raises an IndexError.
    """
    try:
        return reader.get_tensor(name)
    except IndexError as error:
        message = f"The checkpoint file that holds {name!r} is truncated: {error}"
        raise tf.errors.DataLossError(None, None, message) from error


def checkpoint_identity(path: str) -> tuple[str, bytes]:
    """Identifies a checkpoint, so that one written later under the same name differs.

    Compares the index, which holds a checksum of every tensor; TensorFlow's file times are in whole
    seconds. The format V1 has none.
    """
    try:
        with tf.io.gfile.GFile(path + ".index", "rb") as file:
            return path, file.read()
    except tf.errors.NotFoundError:
        if not _is_of_format_v1(path):  # It was removed after it was listed.
            return path, b""
        found = tf.io.gfile.stat(path)
        return path, f"{found.mtime_nsec} {found.length}".encode()


def checked_checkpoint(path: Any) -> str:
    """Returns a `checkpoint_path` as a string; raises an error if there is no checkpoint at it."""
    argument = "checkpoint_path"
    if not isinstance(path, str | os.PathLike):
        raise WrongTypeError(f"`{argument}` ({path!r}) must be a path, or None.")
    path = os.fspath(path)
    check_no_pattern(argument, path)
    if exists(path):
        return path
    if tf.io.gfile.isdir(path) and (newest := latest_checkpoint(path)):
        raise ValueError(
            f"`{argument}` ({path!r}) is a directory. Pass the newest checkpoint in it: {newest!r}."
        )
    check_is_no_part(path, argument)
    raise ValueError(
        f"`{argument}` ({path!r}) is not a checkpoint: there is no file {path}.index. Pass the "
        f"path without its ending, as in .../{PREFIX}-1000, or leave it out for the newest."
    )


def check_is_no_part(path: str, argument: str) -> None:
    """Raises an error if `path` is a file of a checkpoint, not the checkpoint's path."""
    without_ending = _ENDING.sub("", path)
    if without_ending != path and tf.io.gfile.exists(without_ending + ".index"):
        raise ValueError(
            f"`{argument}` ({path!r}) is a file of a checkpoint. Pass its path without the ending: "
            f"{without_ending!r}."
        )


def data_files(path: str) -> list[str]:
    """Returns the paths of a checkpoint's data files; its own path may contain glob characters."""
    directory, prefix = os.path.split(path)
    if not tf.io.gfile.isdir(directory or "."):
        return []
    names = tf.io.gfile.listdir(directory or ".")
    return [os.path.join(directory, name) for name in names if name.startswith(prefix + ".data-")]


def prunable_checkpoints(model_dir: str) -> list[str] | None:
    """Returns the paths that a saver may remove for newer ones; None if no file lists them.

    Checkpoints that are kept forever (`keep_checkpoint_every_n_hours`) are not included.
    """
    state = _read_state(model_dir)
    if state is None:
        return None
    return [_resolved(model_dir, path) for path in state.all_model_checkpoint_paths]


def is_inside(model_dir: str, path: str) -> bool:
    """Returns whether a checkpoint is inside a directory: only then may it be removed."""
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(model_dir), ""))


def _resolved(model_dir: str, path: str) -> str:
    """Resolves a path in a directory's `checkpoint` file.

    The directory may be a copy of one whose saver wrote absolute paths.
    """
    if is_inside(model_dir, os.path.dirname(path)):  # In a subdirectory.
        return path
    here = os.path.join(model_dir, os.path.basename(path))
    return here if exists(here) else path


def _read_state(model_dir: str) -> Any:
    """Returns what the file `checkpoint` of a directory says; None if it cannot be read."""
    try:
        return tf.train.get_checkpoint_state(model_dir)
    except (tf.errors.OpError, ValueError) as error:
        if may_pass(error):
            raise
        log.warning("The file `checkpoint` in %s cannot be read: %s", model_dir, error)
        return None


def _named_latest(model_dir: str) -> str | None:
    state = _read_state(model_dir)
    if state is None:
        return None
    path = _resolved(model_dir, state.model_checkpoint_path)
    if not exists(path):
        log.warning(
            "The newest checkpoint in %s should be %s, which is incomplete and is skipped.",
            model_dir,
            path,
        )
        return None
    return path


def is_readable(path: str) -> bool:
    """Returns whether a checkpoint is readable; logs a warning that it is skipped if not."""
    try:
        open_checkpoint(path)
    except (tf.errors.OpError, ValueError) as error:
        if may_pass(error):
            raise
        if exists(path):
            log.warning("The checkpoint %s cannot be read and is skipped: %s", path, error)
        else:
            log.info("The checkpoint %s was removed before it was read.", path)
        return False
    return True
