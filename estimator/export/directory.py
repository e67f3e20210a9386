"""Writes the numbered directory of an export, which is complete or absent."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_no_pattern, check_type
from estimator.export.unfinished import remove_abandoned_dirs, unfinished_dir, unfinished_path


def make_base_path(export_dir_base: Any) -> str:
    """Returns the parent of the numbered directories as a string; it need not exist.

    Raises:
        ValueError: it is empty, not a path, or a file.
    """
    if not isinstance(export_dir_base, str | bytes | os.PathLike) or not export_dir_base:
        raise ValueError(
            f"`export_dir_base` ({export_dir_base!r}) must be the path of a directory, which need "
            "not exist."
        )
    path = os.fsdecode(export_dir_base)
    check_no_pattern("export_dir_base", path)
    if _is_file(path):
        raise ValueError(
            f"`export_dir_base` ({path!r}) is a file; it must be a directory, or not exist yet."
        )
    return path


def write_numbered_dir(
    base: str, write: Callable[[str], None], clock: Callable[[], float] = time.time
) -> str:
    """Creates `<base>/<number>` with the contents that `write` produces.

    The number is the time in seconds, or one more than the highest existing number if that is not
    lower, so that the newest export always has the highest number. `write` gets a directory with
    another name, which is renamed when `write` returns, and removed if it raises an error. Such
    directories of processes that were killed are removed here.

    Args:
        base: the parent directory, created if needed.
        write: called once with the path of an empty directory.
        clock: returns seconds since 1970.

    Returns:
        The path of the numbered directory.
    """
    seconds = int(clock())
    with unfinished_dir(base, seconds) as unfinished:
        remove_abandoned_dirs(base, seconds)
        write(unfinished)
        return _rename_to_number(unfinished, base, seconds)


def numbered_dirs(base: str) -> list[str]:
    """Returns the numbered directories in `base`, which need not exist, in order."""
    if not tf.io.gfile.isdir(base):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(base)]
    numbers = sorted((int(name), name) for name in names if re.fullmatch("[0-9]+", name))
    paths = [os.path.join(base, name) for _, name in numbers]
    return [path for path in paths if tf.io.gfile.isdir(path)]


def remove_numbered_dir(path: str) -> None:
    """Removes a numbered directory atomically."""
    unfinished = unfinished_path(os.path.dirname(path), int(time.time()))
    tf.io.gfile.rename(path, unfinished)
    tf.io.gfile.rmtree(unfinished)


def make_extra_assets(
    assets_extra: Mapping[str, str] | None, *, must_exist: bool = True
) -> dict[str, str]:
    """Maps each normalized relative destination to the source of the file to copy.

    Args:
        assets_extra: the destinations and the sources.
        must_exist: whether the sources must be files already.

    Raises:
        ValueError: it is not a dict of paths, a source is not a file, or a destination is outside
          the directory or given twice.
    """
    check_type("assets_extra", assets_extra, Mapping, "a dict: path in assets.extra -> file")
    extra: dict[str, str] = {}
    for destination, source in (assets_extra or {}).items():
        relative = _make_relative(destination)
        if relative in extra:
            raise ValueError(f"`assets_extra` has two files for {relative!r}. Rename one.")
        is_path = isinstance(source, str | bytes | os.PathLike)
        if not is_path or (must_exist and not _is_file(source)):
            raise ValueError(
                f"`assets_extra[{destination!r}]` ({source!r}) must be the path of a file that "
                "exists."
            )
        extra[relative] = os.fsdecode(source)
    return extra


def _is_file(path: str) -> bool:
    return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def write_extra_assets(extra: Mapping[str, str], directory: str) -> None:
    """Copies each source to its destination in `<directory>/assets.extra`."""
    for relative, source in extra.items():
        destination = os.path.join(directory, "assets.extra", relative)
        tf.io.gfile.makedirs(os.path.dirname(destination))
        tf.io.gfile.copy(source, destination)


def _rename_to_number(directory: str, base: str, seconds: int) -> str:
    """Renames `directory` to the first number that no other process takes meanwhile."""
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(base))
    number = max([seconds, *(int(name) + 1 for name in names if re.fullmatch("[0-9]+", name))])
    while True:
        path = os.path.join(base, str(number))
        try:
            tf.io.gfile.rename(directory, path)
        except tf.errors.OpError:
            if not tf.io.gfile.exists(path):
                raise
            number += 1
        else:
            return path


def _make_relative(destination: Any) -> str:
    parts = re.split(r"[/\\]", destination) if isinstance(destination, str) else []
    relative = "/".join(part for part in parts if part not in ("", "."))
    is_absolute = not relative or destination[0] in "/\\" or ":" in parts[0]
    if is_absolute or ".." in parts:
        raise ValueError(
            f"`assets_extra` has the destination {destination!r}: it must be a path relative to "
            'assets.extra and stay inside it, such as "labels.txt".'
        )
    return relative
