"""The position in the input, saved beside the newest checkpoint.

It is a file of its own: it is as large as the input's shuffle buffer, and only the newest is of
use. A resumed run goes on with the element after the last one that the saved step had seen.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence

import tensorflow as tf

from estimator.checkpoint.files import restore_error
from estimator.console import no_internal_deprecations

_NAME = "input-position"
_FILE = re.compile(re.escape(_NAME) + r"-(\d+)\.")
_log = logging.getLogger("estimator")


class InputPosition:
    """Saves and restores where an iterator stands."""

    def __init__(self, saver: tf.compat.v1.train.Saver, initializer: tf.Operation) -> None:
        """Wraps the saver that `build_input_position` made, and the iterator's initializer."""
        self._saver: tf.compat.v1.train.Saver | None = saver
        self._initializer = initializer

    def save(self, session: tf.compat.v1.Session, model_dir: str, step: int) -> None:
        """Writes `input-position-<step>`; after a pipeline that cannot, warns and stops trying."""
        if self._saver is None:
            return
        try:
            self._saver.save(
                session,
                os.path.join(model_dir, _NAME),
                global_step=step,
                write_meta_graph=False,
                write_state=False,
            )
        except tf.errors.OpError as error:
            self._saver = None
            _log.warning(
                "The position in the input cannot be saved, so a resumed run starts its input "
                "anew: %s",
                restore_error(error),
            )

    def restore(self, session: tf.compat.v1.Session, model_dir: str, step: int) -> bool:
        """Goes to where the input stood at `step`; returns whether that was possible."""
        path = os.path.join(model_dir, f"{_NAME}-{step}")
        if self._saver is None or not tf.io.gfile.exists(path + ".index"):
            return False
        try:
            self._saver.restore(session, path)
        except (tf.errors.OpError, ValueError) as error:
            _log.warning(
                "The saved position %s does not fit this input, which starts at its beginning: %s",
                path,
                restore_error(error),
            )
            session.run(self._initializer)  # Half restored, it would be at its end.
            return False
        return True

    def keep_only(self, model_dir: str, step: int) -> None:
        """Removes the positions of other steps."""
        remove_positions(model_dir, except_step=step)


class PositionListener(tf.compat.v1.train.CheckpointSaverListener):
    """Saves the position whenever a CheckpointSaverHook of the user saves."""

    def __init__(self, position: InputPosition, model_dir: str) -> None:
        """Touches nothing yet."""
        self._position = position
        self._model_dir = model_dir

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Before, so that a checkpoint never lacks the position that belongs to it."""
        self._position.save(session, self._model_dir, global_step_value)

    def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Removes those of older checkpoints."""
        self._position.keep_only(self._model_dir, global_step_value)


def remove_positions(model_dir: str, except_step: int | None = None) -> None:
    """Removes saved positions: the next run starts its input at the beginning."""
    if not tf.io.gfile.isdir(model_dir):
        return
    for name in tf.io.gfile.listdir(model_dir):
        match = _FILE.match(name)
        if match and int(match.group(1)) != except_step:
            tf.io.gfile.remove(os.path.join(model_dir, name))


def build_input_position(
    iterators: Sequence[tf.compat.v1.data.Iterator], initializer: tf.Operation
) -> InputPosition:
    """Adds the ops that save and restore the iterators' positions to the default graph.

    Args:
      iterators: of the input.
      initializer: starts all of them at their beginning.
    """
    with no_internal_deprecations():
        saveables = [
            tf.data.experimental.make_saveable_from_iterator(i, external_state_policy="ignore")
            for i in iterators
        ]
    return InputPosition(tf.compat.v1.train.Saver(saveables, max_to_keep=1), initializer)
