"""Writes checkpoints and the input's position, and removes old ones."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files, removal
from estimator.checkpoint.background import CheckpointCopy, PendingSave, call_in_thread
from estimator.checkpoint.input_position import InputPosition
from estimator.checkpoint.meta_graph import MetaGraph
from estimator.checkpoint.saver_ops import has_stock_methods
from estimator.checkpoint.trainer_lock import check_not_replaced
from estimator.console import log, no_internal_messages, note
from estimator.rewrite.collections import only_top_of_graph
from estimator.summary.whole_file import write_file


class LastSaveListener(tf.compat.v1.train.CheckpointSaverListener):
    """A listener of this library, which is notified of the end of training before the last save.

    A listener's `end` is called only after the last `after_save`.
    """

    def before_last_save(self) -> None:
        """Called once when no step will follow; the last step may have been saved already."""


class CheckpointWriter:
    """Saves a session's variables as `model.ckpt-N`, each step at most once.

    With a `copy`, `save` copies the values to memory, and a thread writes them. At most one
    checkpoint is being written. It is complete, and the listeners' `after_save` is called in the
    thread of training, when `finish` is: by the next `save`, by `end`, or before.
    """

    def __init__(
        self,
        model_dir: str,
        saver: tf.compat.v1.train.Saver,
        *,
        position: InputPosition | None = None,
        listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] = (),
        save_graph_def: bool = True,
        save_on: Callable[[tf.compat.v1.Session], bool] = lambda session: True,
        copy: CheckpointCopy | None = None,
    ) -> None:
        """Makes the writer; writes nothing.

        Args:
          model_dir: the directory to write to.
          saver: determines the variables and the number of checkpoints to keep.
          position: the input's position; None if it is not saved.
          listeners: called before and after each save; their `begin` has been called elsewhere.
          save_graph_def: whether to write a `.meta` file too.
          save_on: called after the position is saved or copied; returns whether this worker saves
            the rest.
          copy: copies what is saved during training, to be written in a thread, except for the
            last step; None writes at once.
        """
        self._model_dir = model_dir
        self._saver = saver
        self._position = position
        self._listeners = listeners
        self._save_graph_def = save_graph_def
        self._save_on = save_on
        self._copy = copy
        self._meta_graph = MetaGraph(saver) if save_graph_def and has_stock_methods(saver) else None
        self._pending: PendingSave | None = None
        self._last_step: int | None = None

    def resume_from(self, step: int, restored: str | None, paths: Sequence[str]) -> None:
        """Takes over the checkpoints of earlier runs, and removes those beyond the number to keep.

        Args:
          step: the step of the checkpoint that training resumes from.
          restored: its path; None for a worker that got its values from the chief.
          paths: all checkpoints, newest first; those before `restored` are damaged. Checkpoints
            outside the directory are left alone.
        """
        self._last_step = step
        if restored is None or not isinstance(self._saver, tf.compat.v1.train.Saver):
            return
        prunable = files.prunable_checkpoints(self._model_dir)
        index = paths.index(restored) if restored in paths else len(paths)
        damaged, whole = self._own(paths[:index]), self._own(paths[index:])
        whole = [path for path in whole if files.is_readable(path)]
        if prunable is not None:
            whole = [path for path in whole if path == restored or path in prunable]
        keep = self._saver.saver_def.max_to_keep or len(whole)
        for path in whole[keep:]:
            try:
                removal.remove_checkpoint(path)
            except tf.errors.OpError as error:
                log.warning("The old checkpoint %s cannot be removed: %s", path, error)
        oldest_first = [*damaged, *whole[:keep][::-1]]
        self._saver.set_last_checkpoints_with_time(
            [(path, _saved_at(path)) for path in oldest_first]
        )

    def _own(self, paths: Sequence[str]) -> list[str]:
        return [path for path in paths if files.is_inside(self._model_dir, path)]

    def save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves, unless this step has been saved already; first waits for the save before it.

        Returns:
          Whether a listener asks to stop training.

        Raises:
          Exception: this save failed, or the save before it, which was written in a thread.
        """
        if step == self._last_step:
            return False
        is_asked_to_stop = self.finish(session)
        return self._save(session, step, self._position, self._copy) or is_asked_to_stop

    def save_start(self, session: tf.compat.v1.Session, step: int) -> None:
        """Saves the initial state before the first step, when nobody can ask to stop yet.

        It has no input position, because the input starts at its beginning anyway.
        """
        self._save(session, step, None, self._copy)
        # Batches of an incomplete step change what must be saved at the end.
        self._last_step = None

    def remove(self, step: int) -> None:
        """Removes the files of a save that an error ended."""
        removal.remove_checkpoint(os.path.join(self._model_dir, f"{files.PREFIX}-{step}"))

    def _save(
        self,
        session: tf.compat.v1.Session,
        step: int,
        position: InputPosition | None,
        copy: CheckpointCopy | None = None,
    ) -> bool:
        check_not_replaced(self._model_dir)
        for listener in self._listeners:
            listener.before_save(session, step)
        is_copied = copy is not None and position is not None and position.copy(session)
        if position is not None and not is_copied:
            # Saves the position first, so that no checkpoint lacks its position.
            position.save(session, step)
        before = self._last_step
        if not self._save_on(session):
            self._remove_old_positions(before, step)
            self._last_step = step
            return False
        meta = None if self._meta_graph is None else self._meta_graph.content(session.graph)
        source = session if copy is None else copy.take(session)

        def write() -> None:
            if position is not None and is_copied:
                position.write_copy(session, step)
            self._write(source, step, meta)
            self._remove_old_positions(before, step)

        if copy is None:
            write()
        else:
            self._pending = PendingSave(step, call_in_thread(write))
        self._last_step = step
        return copy is None and self._tell_saved(session, step)

    def _write(self, source: Any, step: int, meta: bytes | None) -> None:
        """Writes a checkpoint from a session; may be called in any thread if values are fed."""
        path = os.path.join(self._model_dir, files.PREFIX)
        is_meta_left = self._save_graph_def and meta is None
        whole_graph = only_top_of_graph if is_meta_left else contextlib.nullcontext
        with no_internal_messages(), source.graph.as_default(), whole_graph(source.graph):
            saved = self._saver.save(source, path, global_step=step, write_meta_graph=is_meta_left)
        if meta is not None:
            write_file(f"{saved or f'{path}-{step}'}.meta", meta)

    def _tell_saved(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Calls the listeners' `after_save`; returns whether any asks to stop training.

        If one of them raises an error after which training goes on, the next `finish` calls them.
        """
        note("Saved the checkpoint of step %d in %s", step, self._model_dir)
        self._pending = PendingSave(step, concurrent.futures.Future())
        self._pending.call.set_result(None)
        # Every listener is called, even after one has asked to stop.
        requests = [listener.after_save(session, step) for listener in self._listeners]
        self._pending = None
        return any(requests)

    @property
    def is_finished(self) -> bool:
        """Whether a checkpoint that a thread has written waits for `finish`."""
        return self._pending is not None and self._pending.call.done()

    def finish(self, session: tf.compat.v1.Session) -> bool:
        """Waits for the checkpoint that is being written, if any, and tells the listeners.

        Returns:
          Whether a listener asks to stop training.

        Raises:
          Exception: the checkpoint could not be written.
        """
        if self._pending is None:
            return False
        step, error = self._pending.step, self.wait()
        self._pending = None
        if error is not None:
            self._last_step = None
            raise error
        return self._tell_saved(session, step)

    def wait(self) -> BaseException | None:
        """Waits for the checkpoint that is being written, if any; logs and returns its error."""
        if self._pending is None:
            return None
        error = self._pending.call.exception()
        if error is not None:
            log.error(
                "The checkpoint of step %d could not be written: %s", self._pending.step, error
            )
        return error

    def _remove_old_positions(self, before: int | None, step: int) -> None:
        if self._position is not None:
            self._position.keep_only(before, step)

    def note_change(self) -> None:
        """Records that the state has changed since the last save, although the step has not."""
        self._last_step = None

    def forget_position(self) -> None:
        """Removes the position of an input that has ended: the next run starts at the beginning."""
        if self._pending is not None:
            # Waits, because it writes a position; `finish` raises the error.
            self._pending.call.exception()
        if self._position is not None:
            self._position.remove()
        self._position = None

    def end(self, session: tf.compat.v1.Session, step: int, is_saved: bool = True) -> None:
        """Saves the last step, if it `is_saved`, and calls the listeners' `end`.

        Raises:
          Exception: a checkpoint could not be written. Even if that is the one before, the last
            step is saved.
        """
        try:
            self.finish(session)
        finally:
            for listener in self._listeners:
                if isinstance(listener, LastSaveListener):
                    listener.before_last_save()
            if is_saved and step != self._last_step:
                self._save(session, step, self._position)
            for listener in self._listeners:
                listener.end(session, step)


class _PortableSaver(tf.compat.v1.train.Saver):
    """A Saver whose `.meta` files can be imported, even when a user's hook saves."""

    def export_meta_graph(self, *args: Any, **kwargs: Any) -> Any:
        """Exports the graph without collections' entries in loops and branches."""
        with only_top_of_graph(tf.compat.v1.get_default_graph()):
            return super().export_meta_graph(*args, **kwargs)


def tell_of_earlier_runs(saver: tf.compat.v1.train.Saver, model_dir: str) -> None:
    """Tells the saver of a hook which checkpoints it may remove for newer ones; removes none."""
    if not isinstance(saver, tf.compat.v1.train.Saver):
        return
    paths = files.prunable_checkpoints(model_dir) or []
    there = [p for p in paths if files.is_inside(model_dir, p) and files.is_readable(p)]
    saver.set_last_checkpoints_with_time([(path, _saved_at(path)) for path in there])


def _saved_at(path: str) -> float:
    """Returns when a checkpoint was written, in seconds since the epoch."""
    return tf.io.gfile.stat(files.main_file(path)).mtime_nsec / 1e9


def build_saver(
    checkpoint: tf.train.Checkpoint | None = None,
    *,
    keep_checkpoint_max: int | None = 5,
    keep_checkpoint_every_n_hours: float | None = 10000,
    defer_build: bool = False,
) -> tf.compat.v1.train.Saver:
    """Returns a saver of everything that a checkpoint of the default graph holds, or of an object.

    With `defer_build`, it covers everything that exists when its `build` is called.
    """
    return _PortableSaver(
        None if checkpoint is None else _tf.object_saveables(checkpoint),
        defer_build=defer_build,
        sharded=checkpoint is not None,
        max_to_keep=keep_checkpoint_max or 0,
        keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours or math.inf,
        save_relative_paths=True,
        allow_empty=True,
    )
