"""Finds checkpoints in a directory and compares them with a graph."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator.checkpoint.errors import CheckpointError
from estimator.checkpoint.variables import saved_variables
from estimator.config.checks import WrongTypeError, check_no_pattern

PREFIX = "model.ckpt"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_DATA = re.compile(r"\.data-\d{5}-of-(\d{5})$")
# What tf.train.Checkpoint calls the graph of its objects in its files.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_STEP = re.compile(re.escape(PREFIX) + r"-(\d+)\.index$")
_log = logging.getLogger("estimator")


def checkpoint_step(path: str) -> int | None:
    """The global step in a checkpoint's name, as in `model.ckpt-100`; None if it has none."""
    match = re.search(r"-(\d+)$", path)
    return int(match.group(1)) if match else None


def checkpoints_newest_first(model_dir: str) -> list[str]:
    """Paths of the checkpoints in a directory, the newest first.

    The file `checkpoint` says which is the newest; if it is empty or wrong, the files' steps do.
    The first looks whole; the others were not opened, for there may be very many of them.
    """
    found = _saved_in(model_dir)
    named = _named_latest(model_dir)
    if named is not None:
        newer = [path for path in found if (checkpoint_step(path) or 0) > _step_or_zero(named)]
        found = [named, *(path for path in found if path != named and path not in newer), *newer]
    return list(itertools.dropwhile(lambda path: not is_readable(path), found))


def _saved_in(model_dir: str) -> list[str]:
    """Paths of the checkpoints in a directory, by their steps, whole or not."""
    if not tf.io.gfile.isdir(model_dir):
        return []
    steps = [int(m.group(1)) for name in tf.io.gfile.listdir(model_dir) if (m := _STEP.match(name))]
    return [os.path.join(model_dir, f"{PREFIX}-{step}") for step in sorted(steps, reverse=True)]


def latest_checkpoint(model_dir: str) -> str | None:
    """The newest checkpoint in a directory that looks whole; None if there is none."""
    paths = checkpoints_newest_first(model_dir)
    return paths[0] if paths else None


def existing_checkpoints(directories: Sequence[str], path: Any = None) -> list[str]:
    """The checkpoint at `path`, else those of the first of the directories that has any.

    Returns:
      Their paths, the newest first.

    Raises:
      TypeError, ValueError: there is none; the first directory is the `model_dir`.
    """
    if paths := any_checkpoints(directories, path):
        return paths
    raise ValueError(
        f"There is no checkpoint in `model_dir` ({directories[0]}). Call `train` first, or "
        "pass a `checkpoint_path`."
    )


def any_checkpoints(directories: Sequence[str], path: Any = None) -> list[str]:
    """As `existing_checkpoints`, but no paths if nothing was saved yet.

    Raises:
      TypeError, ValueError: there is none at `path`, or those that are there cannot be read.
    """
    if path is not None and path != "":  # As an empty flag, it is no path.
        return [checked_checkpoint(path)]
    for directory in directories:
        if paths := checkpoints_newest_first(directory):
            return paths
        if damaged := _saved_in(directory):
            raise ValueError(
                f"None of the checkpoints in `model_dir` ({directory}) can be read: "
                f"{', '.join(damaged)}. Remove them to start anew."
            )
    return []


def checkpoint_identity(path: str) -> tuple[str, bytes]:
    """Differs for another checkpoint, also for one written later under the same name.

    The index holds a checksum of every tensor; TensorFlow's file times are whole seconds.
    """
    try:
        with tf.io.gfile.GFile(path + ".index", "rb") as file:
            return path, file.read()
    except tf.errors.NotFoundError:  # Removed since it was listed.
        return path, b""


def checked_checkpoint(path: Any, argument: str = "checkpoint_path") -> str:
    """The path as a string; raises if there is no checkpoint at it."""
    if not isinstance(path, str | os.PathLike):
        raise WrongTypeError(f"`{argument}` ({path!r}) must be a path, or None.")
    path = os.fspath(path)
    check_no_pattern(argument, path)
    if tf.io.gfile.exists(path + ".index"):
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
    """Raises if `path` is one of the files that make up a checkpoint, not the checkpoint's path."""
    without_ending = _ENDING.sub("", path)
    if without_ending != path and tf.io.gfile.exists(without_ending + ".index"):
        raise ValueError(
            f"`{argument}` ({path!r}) is a file of a checkpoint. Pass its path without the ending: "
            f"{without_ending!r}."
        )


def check_matches(path: str, variables: Iterable[tf.Variable]) -> None:
    """Raises unless the checkpoint holds every variable with its shape.

    Raises:
      ValueError: names the variables that are missing and those whose shapes differ.
    """
    there = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    model = saved_variables(variables)
    missing, differing = [], []
    for name, variable in model.items():
        if name not in there:
            missing.append(name)
        elif not variable.shape.is_compatible_with(there[name]):
            differing.append(f"{name}: {variable.shape} in the model, {there[name]} in the file")
    if not missing and not differing:
        return
    unused = sorted(set(there) - set(model))
    lines = [f"  not in the checkpoint: {', '.join(sorted(missing))}"] if missing else []
    lines += [f"  other shape: {line}" for line in differing]
    lines += [f"  only in the checkpoint: {', '.join(unused)}"] if unused else []
    raise CheckpointError("\n".join([_of_another_model(path), *lines]))


def check_names(path: str, names: Collection[str]) -> None:
    """Raises unless the checkpoint holds all that a saver of the model's will ask for.

    One that was saved by objects may: a saver finds out how the names map.

    Raises:
      ValueError: names what is missing.
    """
    there = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    missing = sorted(set(names) - set(there))
    if not missing or _OBJECT_GRAPH in there:
        return
    lines = [f"  not in the checkpoint: {', '.join(missing)}"]
    if unused := sorted(set(there) - set(names)):
        lines.append(f"  only in the checkpoint: {', '.join(unused)}")
    raise CheckpointError("\n".join([_of_another_model(path), *lines]))


def check_complete(path: str, error: tf.errors.NotFoundError) -> None:
    """Raises if a restore failed with `error`, but not for want of a file.

    Raises:
      ValueError: says what the restore did not find.
    """
    data = [match for name in _data_files(path) if (match := _DATA.search(name))]
    is_whole = data and len(data) == int(data[0].group(1))
    if is_whole and tf.io.gfile.exists(path + ".index"):
        raise CheckpointError(f"{_of_another_model(path)}\n  {restore_error(error)}") from error


def _of_another_model(path: str) -> str:
    return (
        f"The checkpoint {path} is another model's. Use another `model_dir`, or the model that "
        "wrote it, with an `input_fn` that yields features of the same shapes."
    )


def _data_files(path: str) -> list[str]:
    """The files at `path` that hold values; the path may have characters of a pattern in it."""
    directory, prefix = os.path.split(path)
    if not tf.io.gfile.isdir(directory or "."):
        return []
    return [n for n in tf.io.gfile.listdir(directory or ".") if n.startswith(prefix + ".data-")]


def missing_variables(path: str, variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Those of some variables that a checkpoint does not hold."""
    if not variables:
        return []
    there = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    return [variable for variable in variables if variable.name.partition(":")[0] not in there]


def prunable_checkpoints(model_dir: str) -> list[str] | None:
    """The paths that a saver may remove when it has newer ones; None if no file says which.

    Those that it keeps for good, one in so many hours, are not among them.
    """
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except (tf.errors.OpError, ValueError):
        return None
    if state is None:
        return None
    paths = [_resolved(model_dir, path) for path in state.all_model_checkpoint_paths]
    return [path for path in paths if is_inside(model_dir, path)]


def is_inside(model_dir: str, path: str) -> bool:
    """Whether a checkpoint is in a directory, or below it: only what is may be removed."""
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(model_dir), ""))


def _resolved(model_dir: str, path: str) -> str:
    """The checkpoint that the file `checkpoint` of a directory means by a path.

    It may be a copy of a directory whose saver wrote absolute paths.
    """
    if is_inside(model_dir, path) and os.path.dirname(os.path.abspath(path)) != os.path.abspath(
        model_dir
    ):
        return path
    here = os.path.join(model_dir, os.path.basename(path))
    return here if tf.io.gfile.exists(here + ".index") else path


def remove_checkpoint(path: str) -> None:
    """Removes a checkpoint's files, the index first: without it the others are no checkpoint."""
    names = [path + ".index", *tf.io.gfile.glob(path + ".data-*"), path + ".meta"]
    for name in names:
        if tf.io.gfile.exists(name):
            tf.io.gfile.remove(name)


def restore_error(error: Exception) -> str:
    """What is wrong, out of a restore's long message: its last line that names no node."""
    lines = [line.strip() for line in getattr(error, "message", str(error)).splitlines()]
    lines = [line for line in lines if line and not line.startswith("[[")]
    return lines[-1] if lines else type(error).__name__


def _named_latest(model_dir: str) -> str | None:
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except (tf.errors.OpError, ValueError) as error:
        _log.warning("The file `checkpoint` in %s cannot be read: %s", model_dir, error)
        return None
    if state is None:
        return None
    path = _resolved(model_dir, state.model_checkpoint_path)
    if not tf.io.gfile.exists(path + ".index"):
        _log.warning(
            "The newest checkpoint in %s should be %s, which is not whole and is passed over.",
            model_dir,
            path,
        )
        return None
    return path


def _step_or_zero(path: str) -> int:
    return checkpoint_step(path) or 0


def is_readable(path: str) -> bool:
    """Whether a checkpoint looks whole; warns that it is passed over if not."""
    try:
        tf.train.load_checkpoint(path)
    except (tf.errors.OpError, ValueError) as error:
        _log.warning("The checkpoint %s is not whole and is passed over: %s", path, error)
        return False
    return True
