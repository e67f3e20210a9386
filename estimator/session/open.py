"""Opens a session on a program's graph: variables initialized or restored, tables filled."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.old_model import OldModel
from estimator.checkpoint.warm_start import build_warm_start
from estimator.graph.workers import ONE_WORKER, Workers, build_broadcast
from estimator.session.team import Team

_log = logging.getLogger("estimator")


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a new session runs on one graph.

    Attributes:
      graph: of the program.
      saver: restores the variables.
      is_saver_ours: not the scaffold's, which may name and choose the variables as it likes.
      initializers: called with the session, in order, if there is no checkpoint.
      local_init_ops: run in any case: local variables, tables, iterators.
      config: of the session.
      broadcast: gives all workers the chief's variables; does nothing for one worker.
      may_lack: what is initialized if a checkpoint does not have it.
    """

    graph: tf.Graph
    saver: tf.compat.v1.train.Saver
    is_saver_ours: bool
    initializers: list[Callable[[tf.compat.v1.Session], Any]]
    local_init_ops: list[tf.Operation]
    config: tf.compat.v1.ConfigProto
    broadcast: tf.Operation
    may_lack: Sequence[tf.Variable] = ()


def build_setup(
    graph: tf.Graph,
    scaffold: tf.compat.v1.train.Scaffold | None,
    saver: Callable[[], tf.compat.v1.train.Saver],
    config: tf.compat.v1.ConfigProto,
    more_local_init: Sequence[tf.Operation] = (),
    old_model: OldModel | None = None,
    workers: Workers = ONE_WORKER,
    may_lack: Sequence[tf.Variable] = (),
) -> Setup:
    """Adds the initializers to a graph; what the model's scaffold names goes first.

    Args:
      graph: of the program.
      scaffold: the model's, or None.
      saver: makes the saver if the scaffold has none.
      config: of the session.
      more_local_init: run with the local initializers.
      old_model: what to start from if there is no checkpoint, or None.
      workers: those that train together.
      may_lack: what is initialized if a checkpoint does not have it.

    Raises:
      ValueError: `old_model` does not fit the model.
    """
    v1 = tf.compat.v1
    scaffold = scaffold or v1.train.Scaffold()
    with graph.as_default():
        initializers = _build_initializers(scaffold, old_model)
        local = scaffold.local_init_op
        if local is None:
            local = tf.group(v1.local_variables_initializer(), v1.tables_initializer())
        own_saver = scaffold.saver
        if isinstance(own_saver, tf.train.Checkpoint):
            own_saver = _tf.v1_saver(own_saver)
        chosen_saver = own_saver or saver()
        if not v1.get_collection(v1.GraphKeys.SAVERS):
            # Where a CheckpointSaverHook of the user looks for one.
            v1.add_to_collection(v1.GraphKeys.SAVERS, chosen_saver)
        return Setup(
            graph=graph,
            saver=chosen_saver,
            is_saver_ours=own_saver is None,
            initializers=initializers,
            # The collection is where tf.summary keeps the initializers of file writers.
            local_init_ops=[local, *v1.get_collection("_SUMMARY_WRITER_V2"), *more_local_init],
            config=config,
            broadcast=build_broadcast(workers, v1.global_variables()),
            may_lack=may_lack,
        )


def _build_initializers(
    scaffold: tf.compat.v1.train.Scaffold, old_model: OldModel | None
) -> list[Callable[[tf.compat.v1.Session], Any]]:
    """What gives the variables of the default graph their first values, in order."""
    v1 = tf.compat.v1
    variables = v1.global_variables()
    warm_starts: list[Callable[[tf.compat.v1.Session], Any]] = []
    if old_model is not None:
        warm_start = build_warm_start(old_model)
        warm_starts = [warm_start.run]
        variables = warm_start.without_loaded(variables)
    is_ours = scaffold.init_op is None
    init_op = scaffold.init_op
    if is_ours:
        init_op = tf.group(
            v1.variables_initializer(variables), *v1.get_collection("resources_init")
        )

    def initialize(session: tf.compat.v1.Session) -> None:
        session.run(init_op, feed_dict=scaffold.init_feed_dict)

    # An op of the scaffold's own initializes all variables, also those that are loaded.
    in_order = [*warm_starts, initialize] if is_ours else [initialize, *warm_starts]
    return in_order if scaffold.init_fn is None else [*in_order, scaffold.init_fn]


@contextlib.contextmanager
def opened(
    setup: Setup,
    checkpoint_paths: Sequence[str],
    master: str = "",
    team: Team | None = None,
    timeout_secs: float = 0,
) -> Iterator[tuple[tf.compat.v1.Session, str | None]]:
    """Opens a session, restored from the first of the checkpoints that can be read.

    Of several workers the chief alone looks at checkpoints; all get what it has.

    Args:
      setup: of the program.
      checkpoint_paths: newest first; with none, the variables are initialized.
      master: the session's target.
      team: the workers that open theirs together; None for one.
      timeout_secs: how long to wait for a chief that gives the variables their values.

    Yields:
      The session and the checkpoint's path, None if there is none.
    """
    with (
        setup.graph.as_default(),
        tf.compat.v1.Session(master, graph=setup.graph, config=setup.config) as session,
    ):
        path = None
        board = None if team is None else team.board
        if board is None or board.is_chief:
            path = _start_variables(setup, session, checkpoint_paths, team)
        else:
            board.wait_for_chief(session, timeout_secs)
        session.run([setup.local_init_ops, setup.broadcast])
        if board is not None and board.is_chief:
            board.announce(session)
        yield session, path


def _start_variables(
    setup: Setup,
    session: tf.compat.v1.Session,
    checkpoint_paths: Sequence[str],
    team: Team | None,
) -> str | None:
    """Restores or initializes the variables; returns the checkpoint's path, None if without."""
    is_chief = team is None or team.is_chief
    path = restore_first(setup, session, checkpoint_paths) if is_chief else None
    is_restored = path is not None
    if team is not None:
        is_restored = bool(team.tell(session, int(is_restored)))
    if not is_restored:
        for initialize in setup.initializers:
            initialize(session)
    return path


def restore_first(
    setup: Setup, session: tf.compat.v1.Session, checkpoint_paths: Sequence[str]
) -> str | None:
    """Restores the first checkpoint that is whole; returns its path, None if none was given.

    Raises:
      ValueError: a checkpoint is another model's, or none of those given is whole.
    """
    for path in checkpoint_paths:
        try:
            _restore(setup, session, path)
        except (tf.errors.DataLossError, tf.errors.OutOfRangeError, tf.errors.NotFoundError) as e:
            _log.warning(
                "The checkpoint %s is damaged (%s); trying the one before.",
                path,
                files.restore_error(e),
            )
            continue
        return path
    if checkpoint_paths:
        raise ValueError(
            f"None of the checkpoints can be restored: {', '.join(checkpoint_paths)}. Remove them "
            "to start anew."
        )
    return None


def _restore(setup: Setup, session: tf.compat.v1.Session, path: str) -> None:
    """Restores a whole checkpoint, and initializes what it may lack and does."""
    with setup.graph.as_default():
        saver, lacking = setup.saver, []
        if setup.is_saver_ours:
            lacking = files.missing_variables(path, setup.may_lack)
            names = {variable.name for variable in lacking}
            variables = [v for v in tf.compat.v1.global_variables() if v.name not in names]
            files.check_matches(path, variables)
            saver = tf.compat.v1.train.Saver(variables) if lacking else saver
        saver.restore(session, path)
        session.run([variable.initializer for variable in lacking])
