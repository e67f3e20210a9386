"""Writes checkpoints, the position of the input beside them, and removes old ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import tensorflow as tf

from estimator.checkpoint.files import PREFIX
from estimator.checkpoint.position import InputPosition, remove_positions

_log = logging.getLogger("estimator")


class CheckpointWriter:
    """Saves a session's variables as `model.ckpt-N`, each step at most once."""

    def __init__(
        self,
        model_dir: str,
        saver: tf.compat.v1.train.Saver,
        *,
        position: InputPosition | None = None,
        listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] = (),
        save_graph_def: bool = True,
        last_step: int | None = None,
    ) -> None:
        """Makes the writer; touches nothing.

        Args:
          model_dir: where to.
          saver: knows the variables and how many checkpoints to keep.
          position: of the input; None if it is not saved.
          listeners: told before and after each save.
          save_graph_def: write a `.meta` file too.
          last_step: the step of the newest checkpoint there, None without one.
        """
        self._model_dir = model_dir
        self._saver = saver
        self._position = position
        self._listeners = listeners
        self._save_graph_def = save_graph_def
        self._last_step = last_step

    def begin(self) -> None:
        """Tells the listeners, before the session is opened."""
        for listener in self._listeners:
            listener.begin()

    def save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves, unless this step is saved already.

        Returns:
          Whether a listener asks to stop training.
        """
        if step == self._last_step:
            return False
        for listener in self._listeners:
            listener.before_save(session, step)
        if self._position is not None:
            # First, so that a checkpoint never lacks the position that belongs to it.
            self._position.save(session, self._model_dir, step)
        self._saver.save(
            session,
            os.path.join(self._model_dir, PREFIX),
            global_step=step,
            write_meta_graph=self._save_graph_def,
        )
        self._last_step = step
        if self._position is not None:
            self._position.keep_only(self._model_dir, step)
        _log.info("Saved the checkpoint of step %d in %s", step, self._model_dir)
        # Every listener is told, also after one has asked to stop.
        return any([bool(listener.after_save(session, step)) for listener in self._listeners])

    def forget_position(self) -> None:
        """The input has ended: the next run starts it at its beginning."""
        self._position = None
        remove_positions(self._model_dir)

    def end(self, session: tf.compat.v1.Session, step: int) -> None:
        """Saves the last step and tells the listeners that it was the last."""
        self.save(session, step)
        for listener in self._listeners:
            listener.end(session, step)


def build_saver(
    *, keep_checkpoint_max: int | None = 5, keep_checkpoint_every_n_hours: float = 10000
) -> tf.compat.v1.train.Saver:
    """A saver of everything in the default graph that a checkpoint holds."""
    keys = tf.compat.v1.GraphKeys
    everything = tf.compat.v1.global_variables()
    everything += tf.compat.v1.get_collection(keys.SAVEABLE_OBJECTS)
    return tf.compat.v1.train.Saver(
        everything,
        max_to_keep=keep_checkpoint_max or 0,
        keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
        save_relative_paths=True,
        allow_empty=True,
    )
