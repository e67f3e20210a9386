"""Removes checkpoints, and what processes that were killed have left of them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection

import tensorflow as tf

from estimator.checkpoint.files import PREFIX, data_files, main_file, prunable_checkpoints
from estimator.console import log, note
from estimator.summary.metrics_log import FILE_NAME

# What TensorFlow, `write_file` and `MetricsLog` call a file until it is whole.
_UNFINISHED = re.compile(
    re.escape(PREFIX) + r"-\d+\.([^.]+\.tempstate\d+|meta\.tmp)$|checkpoint\.tmp[0-9a-f]{32}$"
    rf"|{re.escape(FILE_NAME)}\.\d+\.tmp$"
)
# The folder of a sharded saver, which removes it once the parts are merged.
_UNFINISHED_PARTS = re.compile(re.escape(PREFIX) + r"-\d+_temp/?$")
# The index of a checkpoint is written last, and removed first.
_DATA_OF_STEP = re.compile(f"({re.escape(PREFIX)}" + r"-\d+)\.data-\d+-of-\d+$")
# If nobody wrote into an unfinished file for so long, its process was killed.
_ABANDONED_SECS = 3600


def remove_checkpoint(path: str) -> None:
    """Removes a checkpoint's files, starting with the index, without which it is no checkpoint."""
    names = [main_file(path), *data_files(path), path + ".meta"]
    for name in names:
        if tf.io.gfile.exists(name):
            tf.io.gfile.remove(name)


def remove_unfinished(model_dir: str) -> None:
    """Removes parts of checkpoints that killed processes left, which may be large."""
    # A file may be finished by now, and an object store may have no empty directory.
    with contextlib.suppress(tf.errors.NotFoundError):
        names = tf.io.gfile.listdir(model_dir)
        for name in [*filter(_UNFINISHED.match, names), *_without_index(model_dir, names)]:
            path = os.path.join(model_dir, name)
            if _is_abandoned([path]):
                _remove_left(path, tf.io.gfile.remove)
        for name in filter(_UNFINISHED_PARTS.match, names):
            path = os.path.join(model_dir, name)
            parts = tf.io.gfile.listdir(path) if tf.io.gfile.isdir(path) else []
            if _is_abandoned([os.path.join(path, part) for part in parts]):
                _remove_left(path, tf.io.gfile.rmtree)


def _remove_left(path: str, remove: Callable[[str], None]) -> None:
    try:
        remove(path)
    except tf.errors.PermissionDeniedError as error:
        log.warning("%s, which a killed process left, cannot be removed: %s", path, error)
    else:
        note("Removed %s, which a killed process did not finish", path)


def _is_abandoned(paths: Collection[str]) -> bool:
    """Returns whether there are files, and nobody has written to any of them for long."""
    written_at = [tf.io.gfile.stat(path).mtime_nsec * 1e-9 for path in paths]
    return bool(paths) and time.time() - max(written_at) > _ABANDONED_SECS


def _without_index(model_dir: str, names: Collection[str]) -> list[str]:
    """Returns the data and `.meta` files of checkpoints that have no index and are not listed.

    One that the file `checkpoint` lists may be on its way: somebody copies the directory. One that
    is being saved has unfinished files, too.
    """
    data = {name: match.group(1) for name in names if (match := _DATA_OF_STEP.match(name))}
    left = {name: prefix for name, prefix in data.items() if prefix + ".index" not in names}
    listed = prunable_checkpoints(model_dir) if left else None
    if listed is None:
        return []
    kept = {os.path.basename(path) for path in listed}
    kept |= {".".join(name.split(".")[:2]) for name in names if ".tempstate" in name}
    left = {name: prefix for name, prefix in left.items() if prefix not in kept}
    return sorted(left.keys() | {f"{prefix}.meta" for prefix in left.values()}.intersection(names))
