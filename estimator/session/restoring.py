"""Restores a session from the first checkpoint that is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files, same_model
from estimator.checkpoint.errors import (
    CheckpointError,
    CheckpointsRemovedError,
    DamagedCheckpointsError,
    restore_error,
)
from estimator.checkpoint.saver_ops import has_stock_methods, restored_names
from estimator.console import log

if TYPE_CHECKING:
    from estimator.session.opening import Setup, StartCallbacks


def restore_first(
    setup: Setup,
    session: tf.compat.v1.Session,
    checkpoint_paths: Sequence[str],
    find_paths: Callable[[], Sequence[str]] | None = None,
) -> str | None:
    """Restores the first checkpoint that is complete; returns its path, or None if none was given.

    Args:
      setup: the program's setup.
      session: an open session on its graph.
      checkpoint_paths: newest first.
      find_paths: returns the checkpoints that there are by now: a training may remove all of those
        given before they are read. None if there are none to find.

    Raises:
      CheckpointError: a checkpoint belongs to another model.
      DamagedCheckpointsError: none of those given is complete.
      CheckpointsRemovedError: all of them have been removed.
    """
    while True:
        try:
            return _restore_first_of(checkpoint_paths, setup, session)
        except CheckpointsRemovedError:
            again = checkpoint_paths if find_paths is None else find_paths()
            if not again or again == checkpoint_paths:
                raise
            checkpoint_paths = again


def _restore_first_of(
    paths: Sequence[str], setup: Setup, session: tf.compat.v1.Session
) -> str | None:
    reason = ""
    for path in paths:
        if not files.is_readable(path):
            continue
        try:
            _restore(setup, session, path)
        except CheckpointError:
            raise
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.NotFoundError) as e:
            if isinstance(e, tf.errors.NotFoundError):
                same_model.check_complete(path, e)
            way_out = "" if path == paths[-1] else " Trying the one before."
            log.warning("The checkpoint %s is damaged (%s).%s", path, restore_error(e), way_out)
            reason = reason or f" ({os.path.basename(path)}: {restore_error(e)})"
        else:
            return path
    if paths and not any(map(files.exists, paths)):
        raise CheckpointsRemovedError(
            f"The checkpoints {', '.join(paths)} were removed before they could be restored. If a "
            "training removes them, have it keep more (`keep_checkpoint_max`)."
        )
    if paths:
        raise DamagedCheckpointsError(
            f"None of the checkpoints can be restored: {', '.join(paths)}. A file is missing or "
            f"damaged{reason}. Name another one, or remove them to start from scratch."
        )
    return None


def _restore(setup: Setup, session: tf.compat.v1.Session, path: str) -> None:
    """Restores a complete checkpoint and initializes the variables that it lacks."""
    with setup.graph.as_default():
        saver, lacking = setup.saver, []
        if setup.is_saver_ours:
            lacking = same_model.missing_variables(path, setup.may_lack)
            names = {variable.name for variable in lacking}
            variables = [v for v in tf.compat.v1.global_variables() if v.name not in names]
            same_model.check_matches(path, variables)
            saver = tf.compat.v1.train.Saver(variables) if lacking else saver
        elif isinstance(saver, tf.compat.v1.train.Saver) and saver.saver_def is not None:
            same_model.check_names(path, restored_names(setup.graph, saver))
        callbacks = setup.callbacks if has_stock_methods(saver, ["restore"]) else None
        try:
            saver.restore(preparing(session, callbacks, is_restoring=True), path)
        except ValueError as error:  # The saver found no file.
            if files.exists(path):
                raise
            raise tf.errors.NotFoundError(None, None, f"{path}.index was removed") from error
        session.run([variable.initializer for variable in lacking])


def preparing(
    session: tf.compat.v1.Session, callbacks: StartCallbacks | None, is_restoring: bool
) -> tf.compat.v1.Session | _tf.FunctionSession:
    """Returns the session, or one whose call the callbacks prepare."""
    if callbacks is None:
        return session

    def run(fetch: Any, feeds: dict[tf.Tensor, np.ndarray]) -> Any:
        call = callbacks.prepare(session, is_restoring, [fetch], list(feeds))
        return call(*feeds.values())[0]

    return _tf.FunctionSession(session.graph, run)
