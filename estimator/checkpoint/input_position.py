"""Saves the position in the input with the newest checkpoint.

It has a separate folder, so that programs which look for `*.index` files in the model's directory
find only checkpoints. It is as large as the input's shuffle buffer, and only the newest one is
useful. A resumed run continues with the element after the last one that the saved step used.

The same file holds each replica's own copies of variables that it updates alone, such as moving
statistics: a checkpoint holds their mean or the first replica's, from which a resumed run differs.

With several workers, each has its own file, and also keeps the one of the previous checkpoint: the
chief may not have completed the newest checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.background import IN_THIS_THREAD
from estimator.checkpoint.errors import may_pass, restore_error
from estimator.checkpoint.files import open_checkpoint, read_tensor
from estimator.checkpoint.saver_ops import save_ops
from estimator.checkpoint.trainer_lock import check_not_replaced
from estimator.cluster.collectives import ONE_WORKER, Workers
from estimator.console import log, no_internal_messages

_FOLDER = "input-position"
_NAME = "input-position"
# The name of these savers' ops; programs expect those of the model's saver under "save/".
_GRAPH_NAME = "save_input_position"
# The name of the tensor that tells inputs apart; other names were other ways to do it.
_IDENTITY = "input_structure"
# Errors of a full, read-only or broken file system; others are the pipeline's.
_DISK_ERRORS = (
    tf.errors.ResourceExhaustedError,
    tf.errors.PermissionDeniedError,
    tf.errors.OutOfRangeError,
    tf.errors.UnknownError,
)
# The directories of models of which this process has saved positions.
_saved_by_this_process: set[str] = set()
_FILE = re.compile(re.escape(_NAME) + r"(-of-worker-\d+-of-\d+)?-(\d+)\.")


class PositionCopy:
    """Copies what a saver of iterators saves inside the session, to be written later.

    The state of an iterator is a variant, which a session call cannot return. What it holds is not
    copied: the iterator replaces its elements, and does not change them.
    """

    def __init__(self, saver: tf.compat.v1.train.Saver) -> None:
        """Adds the ops to the default graph."""
        (save,) = save_ops(tf.compat.v1.get_default_graph(), saver)
        tensors = list(save.inputs[3:])
        device = tf.DeviceSpec.from_string(tensors[0].device)
        place = {
            "dtypes": [tensor.dtype for tensor in tensors],
            "shared_name": f"{_GRAPH_NAME}_copy",
        }
        with (
            tf.name_scope(f"{_GRAPH_NAME}_copy"),
            tf.device(device.replace(device_type="CPU", device_index=0).to_string()),
        ):
            with tf.control_dependencies([tf.raw_ops.StageClear(**place)]):
                self._copy = tf.raw_ops.Stage(values=tensors, shared_name=place["shared_name"])
            self._write = tf.raw_ops.SaveV2(
                prefix=save.inputs[0],
                tensor_names=save.inputs[1],
                shape_and_slices=save.inputs[2],
                tensors=tf.raw_ops.Unstage(**place),
            )
        self._path = saver.saver_def.filename_tensor_name

    def copy(self, session: tf.compat.v1.Session) -> None:
        """Copies the present values, in place of earlier ones."""
        session.run(self._copy)

    def write(self, session: tf.compat.v1.Session, path: str) -> None:
        """Writes the last copy, in any thread; each copy can be written once."""
        session.run(self._write, {self._path: path}, IN_THIS_THREAD)


class InputPosition(tf.compat.v1.train.CheckpointSaverListener):
    """Saves and restores the iterators' positions and the replicas' own copies.

    As a listener of a user's CheckpointSaverHook, it saves the position whenever the hook saves.
    """

    def __init__(
        self,
        model_dir: str,
        iterators: Sequence[tf.compat.v1.data.Iterator],
        initializer: tf.Operation,
        workers: Workers = ONE_WORKER,
        variables: Iterable[tf.Variable] = (),
        *,
        identity: bytes | None = None,
        is_copied: bool = False,
    ) -> None:
        """Adds the ops that save and restore to the default graph.

        Args:
          model_dir: the directory of the checkpoints.
          iterators: the iterators of the input.
          initializer: starts all iterators at their beginning.
          workers: the workers that train together, each with its own input.
          variables: the model's variables; the copies of those that each replica updates alone are
            saved.
          identity: what an equal input has, too; a position with another one is not restored. None
            if that is not known.
          is_copied: whether `copy` and `write_copy` are used in place of `save`.
        """
        with no_internal_messages():
            self._saveables = [
                tf.data.experimental.make_saveable_from_iterator(i, external_state_policy="ignore")
                for i in iterators
            ]
        self._model_dir = model_dir
        self._initializer = initializer
        self._workers = workers
        self._copies = _copies(variables, workers)
        self._identity = identity
        saved = list(self._saveables)
        if identity is not None:
            saved.append(_tf.ConstantSaveable(_IDENTITY, identity))
        saver = _make_saver(saved)
        self._saver: tf.compat.v1.train.Saver | None = saver
        self._whole_saver = saver
        if self._copies:
            everything = {**self._copies, **{saveable.name: saveable for saveable in saved}}
            self._whole_saver = _make_saver(everything, "_and_copies")
        self._copies_saver = tf.compat.v1.train.Saver(
            dict(self._copies), name=f"{_GRAPH_NAME}_copies", allow_empty=True
        )
        self._copy = PositionCopy(self._whole_saver) if is_copied else None

    @property
    def has_copies(self) -> bool:
        """Whether replicas of this worker update any variable alone."""
        return bool(self._copies)

    def save(self, session: tf.compat.v1.Session, step: int) -> None:
        """Saves the position at `step`; warns if it fails.

        After an error of the file system, the next checkpoint tries again. A pipeline that cannot
        be saved is not tried again.
        """
        if self._saver is None:
            return
        with self._warning_of_failure():
            path = self._make_path()
            self._whole_saver.save(
                session, path, global_step=step, write_meta_graph=False, write_state=False
            )

    def copy(self, session: tf.compat.v1.Session) -> bool:
        """Copies the position, for `write_copy`; returns False if it must be saved at once."""
        if self._copy is None:
            return False
        if self._saver is not None:
            with self._warning_of_failure():
                self._copy.copy(session)
        return True

    def write_copy(self, session: tf.compat.v1.Session, step: int) -> None:
        """Does what `save` would have done when `copy` was called; another thread may call it."""
        if self._saver is None or self._copy is None:
            return
        with self._warning_of_failure():
            self._copy.write(session, f"{self._make_path()}-{step}")

    def _make_path(self) -> str:
        """Returns the path of a position, without its step; makes the folder."""
        check_not_replaced(self._model_dir)  # Else a folder would bring the directory back.
        folder = os.path.join(self._model_dir, _FOLDER)
        tf.io.gfile.makedirs(folder)
        _saved_by_this_process.add(self._model_dir)
        return os.path.join(folder, _NAME + _whose(self._workers))

    @contextlib.contextmanager
    def _warning_of_failure(self) -> Iterator[None]:
        """Warns if a position cannot be saved inside the block; stops trying if it never can."""
        try:
            yield
        except _DISK_ERRORS as error:
            log.warning(
                "The position in the input is not saved with this checkpoint, so a run that is "
                "resumed from it restarts its input from the beginning: %s",
                restore_error(error),
            )
        except tf.errors.OpError as error:
            if may_pass(error):
                raise
            self._saver = None
            log.warning(
                "The position in the input cannot be saved, so a resumed run restarts its input "
                "from the beginning: %s",
                restore_error(error),
            )

    def restore(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Restores the input's position at `step`; returns whether that was possible.

        The replicas' copies keep the checkpoint's values until `restore_copies`.
        """
        path = self._path_of(step)
        if self._saver is None or path is None:
            return False
        try:
            identity = _identity_of(path)
            if None not in (identity, self._identity) and identity != self._identity:
                # Within a process, rounds that train on other data each are what a program does.
                tell = log.info if self._model_dir in _saved_by_this_process else log.warning
                tell("The input has changed since step %d: it starts at its beginning.", step)
                return False
            saver = self._saver
            if identity is None and self._identity is not None:  # A file of an earlier version.
                with session.graph.as_default():
                    saver = _make_saver(self._saveables, "_of_earlier_version")
            saver.restore(session, path)
        except (tf.errors.OpError, ValueError) as error:
            if may_pass(error):
                raise
            log.warning(
                "The saved position %s does not fit this input, which starts at its beginning: %s",
                path,
                restore_error(error),
            )
            session.run(self._initializer)  # A partly restored iterator would be at its end.
            return False
        return True

    def finds_copies(self, step: int) -> bool:
        """Returns whether this worker's copies at `step` are saved for as many replicas."""
        if not self._copies:
            return True
        path = self._path_of(step)
        if path is None:
            return False
        try:
            reader = open_checkpoint(path)
            for name in self._copies:
                read_tensor(reader, name)
        except (tf.errors.OpError, ValueError) as error:
            if may_pass(error):
                raise
            return False  # Files of earlier versions have no copies.
        return True

    def restore_copies(self, session: tf.compat.v1.Session, step: int) -> None:
        """Restores the existing copies of each replica of this worker.

        All workers must do this, or none: the checkpoint's value combines the copies of all, and
        mixing some restored copies with values from it would give a different mean or sum.
        """
        if self._copies:
            self._copies_saver.restore(session, self._path_of(step))

    def _path_of(self, step: int) -> str | None:
        """Returns the path of the position at `step`; None if there is none."""
        name = f"{_NAME}{_whose(self._workers)}-{step}"
        paths = [os.path.join(folder, name) for folder in _folders(self._model_dir)]
        return next((path for path in paths if tf.io.gfile.exists(path + ".index")), None)

    def keep_only(self, *steps: int | None) -> None:
        """Removes this worker's positions of all but the last of these steps; warns if it fails."""
        num_kept = min(self._workers.count, 2)
        try:
            remove_positions(self._model_dir, self._workers, steps[-num_kept:])
        except tf.errors.OpError as error:  # The next checkpoint tries again.
            log.warning("An old position in the input cannot be removed: %s", error.message)

    def remove(self) -> None:
        """Removes this worker's positions: the next run starts its input at the beginning."""
        remove_positions(self._model_dir, self._workers)

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Saves the position first, so that no checkpoint lacks its position."""
        self.save(session, global_step_value)

    def after_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Removes the positions of older checkpoints."""
        self.keep_only(global_step_value)


def _make_saver(saved: Any, suffix: str = "") -> tf.compat.v1.train.Saver:
    return tf.compat.v1.train.Saver(saved, max_to_keep=1, name=f"{_GRAPH_NAME}{suffix}")


def _identity_of(path: str) -> bytes | None:
    """Returns the identity of the input whose position is saved; None if the file has none."""
    reader = open_checkpoint(path)
    return read_tensor(reader, _IDENTITY) if reader.has_tensor(_IDENTITY) else None


def _folders(model_dir: str) -> list[str]:
    """Returns the folder of positions, and `model_dir`, where earlier versions saved them."""
    return [os.path.join(model_dir, _FOLDER), model_dir]


def remove_positions(
    model_dir: str, workers: Workers, steps_to_keep: Sequence[int | None] = ()
) -> None:
    """Removes this worker's positions, but for those of `steps_to_keep`.

    Without any, the next run starts its input at the beginning. The chief also removes the
    positions of jobs with another number of workers, which read other shards.
    """
    own = _whose(workers)
    for folder in _folders(model_dir):
        for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
            match = _FILE.match(name)
            if match is None:
                continue
            whose, step = match.group(1) or "", int(match.group(2))
            is_of_other_number = whose.rpartition("-")[2] != own.rpartition("-")[2]
            is_own = whose == own and step not in steps_to_keep
            if is_own or (workers.is_chief and is_of_other_number):
                tf.io.gfile.remove(os.path.join(folder, name))


def _whose(workers: Workers) -> str:
    return "" if workers.count == 1 else f"-of-worker-{workers.index}-of-{workers.count}"


def _copies(variables: Iterable[tf.Variable], workers: Workers) -> dict[str, tf.Variable]:
    """Returns this process's copies of variables that may differ on replicas, by name."""
    found = {}
    for variable in filter(_tf.keeps_own_copies, variables):
        copies = _tf.copies(variable)
        if len(copies) * workers.count > 1:
            name = variable.name.partition(":")[0]
            for i, copy in enumerate(copies):
                found[f"{name}/copy_{i}_of_{len(copies)}"] = copy
    return found
