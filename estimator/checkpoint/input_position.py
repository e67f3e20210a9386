"""The position in the input, saved for the newest checkpoint.

It has a folder of its own, so that programs which look for `*.index` files in the model's directory
find checkpoints only. It is as large as the input's shuffle buffer, and only the newest is of use.
A resumed run goes on with the element after the last one that the saved step had seen.

Beside it are the replicas' own copies of what each updates by itself, such as moving statistics: a
checkpoint has their mean, from which a resumed run would differ in the last bits.

Of several workers each has its own file, and keeps that of the checkpoint before the newest too:
the chief may not have completed the newest one.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.files import restore_error
from estimator.cluster.collectives import ONE_WORKER, Workers
from estimator.console import no_internal_deprecations

_FOLDER = "input-position"
_NAME = "input-position"
# Of the savers' ops, because programs expect those of the saver of the model under "save/".
_GRAPH_NAME = "save_input_position"
_FILE = re.compile(re.escape(_NAME) + r"(-of-worker-\d+-of-\d+)?-(\d+)\.")
_log = logging.getLogger("estimator")


class ReplicaCopies:
    """Saves with the iterators, and restores alone, what each replica updates by itself."""

    def __init__(self, copies: Mapping[str, tf.Variable], saveables: Sequence[Any]) -> None:
        """Adds the ops for it to the default graph.

        Args:
          copies: by the names that they are saved under.
          saveables: of the iterators, in the same file.
        """
        everything = {**copies, **{saveable.name: saveable for saveable in saveables}}
        name = f"{_GRAPH_NAME}_and_copies"
        self.with_input = tf.compat.v1.train.Saver(everything, max_to_keep=1, name=name)
        self.alone = tf.compat.v1.train.Saver(dict(copies), name=f"{_GRAPH_NAME}_copies")
        self._names = list(copies)

    def are_in(self, path: str) -> bool:
        """Whether all of them are in this file: versions before did not save them."""
        reader = tf.train.load_checkpoint(path)
        return all(reader.has_tensor(name) for name in self._names)


class InputPosition:
    """Saves and restores where an iterator stands, and the replicas' own copies."""

    def __init__(
        self,
        saver: tf.compat.v1.train.Saver,
        initializer: tf.Operation,
        workers: Workers,
        copies: ReplicaCopies | None = None,
    ) -> None:
        """Wraps the savers that `build_input_position` made, and the iterator's initializer.

        Args:
          saver: of the iterators.
          initializer: starts them at their beginning.
          workers: those that train together.
          copies: of what each replica updates by itself; None if there is nothing of the kind.
        """
        self._copies = copies
        self._workers = workers
        self._num_kept = 1 if workers.count == 1 else 2
        self._saver: tf.compat.v1.train.Saver | None = saver
        self._initializer = initializer

    @property
    def has_copies(self) -> bool:
        """Whether replicas update something by themselves; it is the same on all workers."""
        return self._copies is not None

    def save(self, session: tf.compat.v1.Session, model_dir: str, step: int) -> None:
        """Writes the position at `step`; after a pipeline that cannot, warns and stops trying."""
        if self._saver is None:
            return
        folder = os.path.join(model_dir, _FOLDER)
        tf.io.gfile.makedirs(folder)
        try:
            (self._saver if self._copies is None else self._copies.with_input).save(
                session,
                os.path.join(folder, _NAME + _whose(self._workers)),
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
        """Goes to where the input stood at `step`; returns whether that was possible.

        The replicas' copies are as the checkpoint has them until `restore_copies`.
        """
        path = self._path_of(model_dir, step)
        if self._saver is None or path is None:
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

    def finds_copies(self, model_dir: str, step: int) -> bool:
        """Whether this worker's copies of `step` are saved, of as many replicas as there are."""
        path = self._path_of(model_dir, step)
        return path is not None and self._copies is not None and self._copies.are_in(path)

    def restore_copies(self, session: tf.compat.v1.Session, model_dir: str, step: int) -> None:
        """Gives each replica of this worker its own copies, which are there.

        It is for all workers or for none: what the checkpoint has is made of the copies of all, and
        a mean or a sum of some with what others were given from it is not what they had.
        """
        path = self._path_of(model_dir, step)
        if self._copies is not None and path is not None:
            self._copies.alone.restore(session, path)

    def _path_of(self, model_dir: str, step: int) -> str | None:
        """Where the position at `step` is; None if there is none."""
        name = f"{_NAME}{_whose(self._workers)}-{step}"
        paths = [os.path.join(folder, name) for folder in _folders(model_dir)]
        return next((path for path in paths if tf.io.gfile.exists(path + ".index")), None)

    def keep_only(self, model_dir: str, *steps: int | None) -> None:
        """Removes this worker's positions of other steps than the last of these."""
        _remove(model_dir, self._workers, steps[-self._num_kept :])

    def remove(self, model_dir: str) -> None:
        """Removes this worker's positions: the next run starts its input at the beginning."""
        _remove(model_dir, self._workers)


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


def remove_positions(model_dir: str, workers: Workers = ONE_WORKER) -> None:
    """Removes what this worker has saved: the next run starts its input at the beginning."""
    _remove(model_dir, workers)


def _folders(model_dir: str) -> list[str]:
    """Where positions are, and `model_dir` itself, where earlier versions saved them."""
    return [os.path.join(model_dir, _FOLDER), model_dir]


def _remove(model_dir: str, workers: Workers, steps_to_keep: Sequence[int | None] = ()) -> None:
    """The chief removes those of another number of workers too: they dealt out other shards."""
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


def build_input_position(
    iterators: Sequence[tf.compat.v1.data.Iterator],
    initializer: tf.Operation,
    workers: Workers = ONE_WORKER,
    variables: Iterable[tf.Variable] = (),
) -> InputPosition:
    """Adds the ops that save and restore the iterators' positions to the default graph.

    Args:
      iterators: of the input.
      initializer: starts all of them at their beginning.
      workers: those that train together, each with an input of its own.
      variables: of the model; of those that each replica updates by itself its copies are saved.
    """
    with no_internal_deprecations():
        saveables = [
            tf.data.experimental.make_saveable_from_iterator(i, external_state_policy="ignore")
            for i in iterators
        ]
    saver = tf.compat.v1.train.Saver(saveables, max_to_keep=1, name=_GRAPH_NAME)
    copies = _copies(variables, workers)
    own = ReplicaCopies(copies, saveables) if copies else None
    return InputPosition(saver, initializer, workers, own)


def _copies(variables: Iterable[tf.Variable], workers: Workers) -> dict[str, tf.Variable]:
    """The copies in this process of what a checkpoint has the mean of, by name and their number."""
    found = {}
    for variable in variables:
        if variable.synchronization != tf.VariableSynchronization.ON_READ:
            continue
        copies = _tf.copies(variable)
        if len(copies) * workers.count > 1:
            name = variable.name.partition(":")[0]
            for i, copy in enumerate(copies):
                found[f"{name}/copy_{i}_of_{len(copies)}"] = copy
    return found
