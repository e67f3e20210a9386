"""Opens a session on a program's graph: variables initialized or restored, tables filled."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import same_model
from estimator.checkpoint.old_model import OldModel
from estimator.checkpoint.warm_start import WarmStart, build_warm_start
from estimator.cluster.worker_group import WorkerGroup
from estimator.model.replicas import BUILD_LOCK
from estimator.rewrite.graph_walk import ops_behind
from estimator.rewrite.step_waits import CopiesFor
from estimator.session.restoring import preparing, restore_first


class StartCallbacks(Protocol):
    """What is done beside the call that gives the variables of a new session values."""

    def begin(self, session: tf.compat.v1.Session) -> None:
        """Called when the session is open."""

    def prepare(
        self,
        session: tf.compat.v1.Session,
        is_restoring: bool,
        fetches: list[Any],
        feeds: list[tf.Tensor],
    ) -> Callable[..., list]:
        """Prepares the call that initializes or restores the variables."""


@dataclasses.dataclass(frozen=True)
class Start:
    """The source of a model's initial values, chosen before hooks extend the graph in `begin`.

    Attributes:
      graph: the graph of the program.
      scaffold: the model's scaffold.
      saver: the scaffold's saver, or ours, which is built later so that it covers hooks' variables.
      is_saver_ours: whether the saver is ours; a scaffold's own may name and choose the variables
        as it likes.
      warm_start: loads an old model; None without one.
      group: the workers that train together.
    """

    graph: tf.Graph
    scaffold: tf.compat.v1.train.Scaffold
    saver: tf.compat.v1.train.Saver
    is_saver_ours: bool
    warm_start: WarmStart | None
    group: WorkerGroup


@dataclasses.dataclass(frozen=True)
class Setup(Start):
    """Initializes or restores new sessions; the scaffold has `saver` and, if needed, `ready_op`.

    Attributes:
      initializers: functions called with the session, in order, if there is no checkpoint.
      local_init_ops: the ops that every session runs, for local variables, tables and iterators.
      config: the session's config.
      broadcast: the op that gives all workers the chief's variables; None for one worker.
      may_lack: variables that are initialized if a checkpoint does not hold them.
      callbacks: what runs beside the initialization of the variables; None for nothing.
      must_be_ready: whether all variables must have values; an export omits variables without
        values.
    """

    initializers: list[Callable[[tf.compat.v1.Session], Any]]
    local_init_ops: list[list[tf.Operation]]
    config: tf.compat.v1.ConfigProto
    broadcast: tf.Operation | None
    may_lack: Sequence[tf.Variable]
    callbacks: StartCallbacks | None
    must_be_ready: bool = True

    @property
    def local_init_feeds(self) -> dict[Any, Any]:
        """What local initialization feeds.

        A local variable may start from a global one, whose initial value may be a placeholder.
        """
        scaffold = self.scaffold
        return {**(scaffold.init_feed_dict or {}), **(scaffold.local_init_feed_dict or {})}

    def run_local_init(self, session: tf.compat.v1.Session) -> None:
        """Runs the local initialization that every session needs once its variables have values.

        Raises:
          RuntimeError: `ready_for_local_init_op` or `ready_op` names variables without values.
        """
        scaffold = self.scaffold
        if self.must_be_ready:
            _check_ready(session, "ready_for_local_init_op", scaffold.ready_for_local_init_op)
        for ops in self.local_init_ops:
            session.run(ops, self.local_init_feeds)
        if self.must_be_ready:
            _check_ready(session, "ready_op", scaffold.ready_op)


def _check_ready(session: tf.compat.v1.Session, name: str, op: tf.Tensor | None) -> None:
    names = [] if op is None else np.ravel(session.run(op))
    if len(names):
        listed = ", ".join(tf.compat.as_str_any(name) for name in names)
        raise RuntimeError(
            f"The model is not ready: `{name}` of its Scaffold names {listed}. Initialize them in "
            "its `init_op`, `init_fn` or `local_init_op`; a `saver` that restores must hold them."
        )


def build_start(
    graph: tf.Graph,
    scaffold: tf.compat.v1.train.Scaffold,
    make_saver: Callable[..., tf.compat.v1.train.Saver],
    old_model: OldModel | None = None,
    group: WorkerGroup | None = None,
) -> Start:
    """Chooses the saver, and adds the op that loads an old model to the graph.

    Args:
      graph: the graph of the program; a user's hooks find the saver in its SAVERS collection.
      scaffold: the model's scaffold.
      make_saver: makes the saver if the scaffold has none or has a tf.train.Checkpoint.
      old_model: the model to warm-start from if there is no checkpoint, or None.
      group: the workers that train together, of which only the chief has the `old_model`; None
        for one worker.

    Raises:
      ValueError: the old model does not fit the model.
    """
    v1 = tf.compat.v1
    with graph.as_default():
        saver = scaffold.saver
        if saver is None:
            saver = make_saver(defer_build=True)
        elif isinstance(saver, tf.train.Checkpoint):
            saver = make_saver(saver)
        if not v1.get_collection(v1.GraphKeys.SAVERS):
            # A user's CheckpointSaverHook looks for its saver here.
            v1.add_to_collection(v1.GraphKeys.SAVERS, saver)
        warm_start = None if old_model is None else build_warm_start(old_model)
        is_ours = scaffold.saver is None
        return Start(graph, scaffold, saver, is_ours, warm_start, group or WorkerGroup())


def build_setup(
    start: Start,
    config: tf.compat.v1.ConfigProto,
    is_evaluation: bool = False,
    may_lack: Sequence[tf.Variable] = (),
    callbacks: StartCallbacks | None = None,
) -> Setup:
    """Adds the initializers to a graph; those that the model's scaffold names take precedence.

    Args:
      start: the result of `build_start`; its scaffold is given the saver.
      config: the session's config.
      is_evaluation: whether metrics are reset to zero too, whatever the scaffold says.
      may_lack: variables that are initialized if a checkpoint does not hold them.
      callbacks: what runs beside the initialization of the variables.
    """
    v1 = tf.compat.v1
    graph, scaffold, saver = start.graph, start.scaffold, start.saver
    with graph.as_default():
        initializers = _build_initializers(start, callbacks)
        local_init_ops = _build_local_init_ops(scaffold, is_evaluation)
        if isinstance(saver, v1.train.Saver):
            with BUILD_LOCK, _tf.savers_apart():
                saver.build()  # Does nothing if the saver is already built.
        is_own = scaffold.init_op is not None or scaffold.local_init_op is not None
        is_ours = start.is_saver_ours and not is_own
        if scaffold.ready_op is None and not is_ours:
            # Without a use of the tensor, such as this identity, TensorFlow logs an error.
            ready_op = tf.identity(v1.report_uninitialized_variables())
            _tf.set_scaffold_parts(scaffold, {"ready_op": ready_op})
        # The scaffold's `init_fn` and hooks that were made with the scaffold use the saver.
        _tf.set_scaffold_parts(scaffold, {"saver": saver})
        return Setup(
            **vars(start),
            initializers=initializers,
            local_init_ops=local_init_ops,
            config=config,
            broadcast=start.group.build_broadcast(),
            may_lack=[*may_lack, *_keras_seeds(graph)],
            callbacks=callbacks,
        )


def _keras_seeds(graph: tf.Graph) -> list[tf.Variable]:
    """Returns the seeds' states that layers of Keras 3 keep; checkpoints of older Keras have none.

    Dropout and recurrent cells have one, whether or not they use it.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    return [v for v in variables if v.name.endswith("/seed_generator_state:0")]


def _build_local_init_ops(
    scaffold: tf.compat.v1.train.Scaffold, is_evaluation: bool
) -> list[list[tf.Operation]]:
    """Returns the lists of ops that every session runs in turn; empty ones are left out."""
    v1 = tf.compat.v1
    usual = _tf.writer_initializers(v1.get_default_graph())
    own = scaffold.local_init_op
    if own is None or is_evaluation:  # Metrics need these, whatever the scaffold has.
        usual += [variable.initializer for variable in v1.local_variables()]
        usual += v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)
    return [ops for ops in (usual, [] if own is None else [own]) if ops]


def _build_initializers(
    start: Start, callbacks: StartCallbacks | None
) -> list[Callable[[tf.compat.v1.Session], Any]]:
    """Returns the functions that initialize the variables of the default graph, in order."""
    v1 = tf.compat.v1
    scaffold, warm_start = start.scaffold, start.warm_start
    variables = v1.global_variables()
    warm_starts: list[Callable[[tf.compat.v1.Session], Any]] = []
    if warm_start is not None:
        warm_starts = [warm_start.run]
        variables = warm_start.without_loaded(variables)
    init_op, is_ours = scaffold.init_op, scaffold.init_op is None
    first: list[tf.Operation] = []
    if is_ours:
        first, rest = _initializers(variables, start.group.workers.is_chief)
        init_op = tf.group(*rest, *v1.get_collection("resources_init"))

    def initialize(session: tf.compat.v1.Session) -> None:
        feeds = scaffold.init_feed_dict
        if first:
            session.run(first, feeds)
        if is_ours and not feeds:
            session = preparing(session, callbacks, is_restoring=False)
        session.run(init_op, feeds)

    # A scaffold's own `init_op` also initializes the variables that are then loaded.
    in_order = [*warm_starts, initialize] if is_ours else [initialize, *warm_starts]
    return in_order if scaffold.init_fn is None else [*in_order, scaffold.init_fn]


def _initializers(
    variables: Sequence[tf.Variable], is_chief: bool
) -> tuple[list[tf.Operation], list[tf.Operation]]:
    """Returns the initializers to run first, and the others.

    What `init_from_checkpoint` loads comes first if other initial values depend on it: if a weight
    had no value yet, its moving average would take what the initializer of the weight was when the
    average was made. Workers get the chief's values afterwards, so only the chief loads anything.
    """
    before = _tf.initializer_before_checkpoint
    if not is_chief:
        return [], [before(variable) or variable.initializer for variable in variables]
    loaded = [variable for variable in variables if before(variable) is not None]
    rest = [variable.initializer for variable in variables if before(variable) is None]
    behind = ops_behind(rest) if loaded else {}
    first: list[tf.Operation] = []
    for variable in loaded:
        is_first = any(copy.op in behind for copy in _tf.copies(variable))
        (first if is_first else rest).append(variable.initializer)
    return first, rest


@contextlib.contextmanager
def opened(
    setup: Setup,
    checkpoint_paths: Sequence[str],
    master: str = "",
    timeout_secs: float = 0,
    wait: Callable[[threading.Event], None] | None = None,
    copies_for: CopiesFor | None = None,
    find_paths: Callable[[], Sequence[str]] | None = None,
) -> Iterator[tuple[tf.compat.v1.Session, str | None]]:
    """Opens a session and restores it from the first readable checkpoint.

    Of several workers, only the chief reads checkpoints, and all get its values. Asynchronous
    workers wait until the chief calls `WorkerGroup.start_steps`.

    Args:
      setup: the program's setup.
      checkpoint_paths: newest first; if empty, the variables are initialized.
      master: the session's target.
      timeout_secs: how long to wait for the chief to initialize the variables.
      wait: waits for the session's calls to return; None if they always return.
      copies_for: see `_tf.MappedSession`.
      find_paths: see `restore_first`.

    Yields:
      The session, and the checkpoint's path or None.
    """
    with (
        setup.graph.as_default(),
        _tf.open_session(master, setup.graph, setup.config, wait, copies_for) as session,
    ):
        if setup.callbacks is not None:
            setup.callbacks.begin(session)

        def start_variables() -> str | None:
            is_first = setup.group.workers.is_chief
            path = None
            if is_first:
                path = restore_first(setup, session, checkpoint_paths, find_paths)
            if not setup.group.broadcast_number(session, int(path is not None)):
                for initialize in setup.initializers:
                    initialize(session)
            return path

        path = setup.group.begin(session, start_variables, timeout_secs)
        if setup.broadcast is not None:
            session.run(setup.broadcast)
        setup.run_local_init(session)
        yield session, path


def needs_values() -> list[tf.Variable | tf.Operation]:
    """Returns the variables and the table initializers of the default graph so far."""
    v1 = tf.compat.v1
    return [
        *v1.global_variables(),
        *v1.local_variables(),
        *v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS),
    ]


def start_new(
    session: tf.compat.v1.Session, before: Sequence[tf.Variable | tf.Operation], path: str | None
) -> None:
    """Initializes, in an open session, what was added to the default graph since `before`.

    Args:
      session: an open session, whether or not it was restored.
      before: the earlier result of `needs_values`.
      path: the checkpoint's path or None; variables that it does not hold are initialized.

    Raises:
      ValueError: the checkpoint holds one of the variables with another shape.
    """
    known = {id(thing) for thing in before}
    if path is not None:
        new = [v for v in tf.compat.v1.global_variables() if id(v) not in known]
        lacking = {id(v) for v in same_model.missing_variables(path, new)}
        if held := [v for v in new if id(v) not in lacking]:
            same_model.check_matches(path, held)
            tf.compat.v1.train.Saver(held).restore(session, path)
            known.update(id(v) for v in held)
    fresh = [thing for thing in needs_values() if id(thing) not in known]
    session.run([thing.initializer for thing in fresh if isinstance(thing, tf.Variable)])
    session.run([thing for thing in fresh if not isinstance(thing, tf.Variable)])
