"""Evaluates and predicts with a program, a session and weights that are kept between calls."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.memory_checkpoint import State, load_state
from estimator.cluster.server import Connection, check_runs_there
from estimator.cluster.task_health import TaskHealth
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.evaluation.host_input import SessionOfBoth
from estimator.program.graph_scope import extending
from estimator.program.programs import EvalProgram, FedProgram
from estimator.session.hooked_session import Hook, HookedSession
from estimator.session.opening import Setup, needs_values, start_new
from estimator.session.restoring import restore_first

_WITHOUT_SERVER = (
    "the call cannot continue. Its own log says why. Start it again, and make the call again."
)

# They keep nothing of a call that another one could notice.
_HOOKS_THAT_BEGIN_ANEW = frozenset(
    {
        tf.compat.v1.train.FinalOpsHook,
        tf.compat.v1.train.LoggingTensorHook,
        tf.compat.v1.train.NanTensorHook,
    }
)

# Stands for what a session has besides its variables: graphs, kernels and about five threads.
_OVERHEAD_BYTES = 8 << 20

# Stands for the identity of a checkpoint.
_NO_CHECKPOINT = ("", b"")


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights to evaluate or predict with; the initial values if all are empty.

    Attributes:
      paths: paths of checkpoints, newest first.
      state: the contents of a checkpoint in memory.
      warm_start: the source of initial values, besides the initializers.
      find_paths: see `restore_first`.
    """

    paths: Sequence[str] = ()
    state: State | None = None
    warm_start: WarmStartSettings | None = None
    find_paths: Callable[[], Sequence[str]] | None = None


class WarmSession:
    """A session on a program, kept open between calls.

    Weights are restored only when a different checkpoint is requested.

    Attributes:
      program: the program to run.
      session: a session on the program's graph.
      is_used_up: whether a call has left state that cannot be reset, such as rows of a table.
      holder: the thread that evaluates, or that restores weights to predict; None if none does.
      key: the kind of input, by `HostInput.key`, and the values that the `model_fn` has read.
      num_bytes: about the memory that it holds while no call uses it.
      last_use: the time on the monotonic clock when a call of it ended, in seconds.
    """

    def __init__(
        self,
        program: FedProgram,
        setup: Setup,
        connection: Connection,
        timeout_secs: float,
        flush: tf.Operation | None = None,
    ) -> None:
        """Opens the session; its variables have no values until `restore`.

        Args:
          program: the program to run.
          setup: the program's setup.
          connection: the connection to the server that it runs on.
          timeout_secs: how long to wait for that server.
          flush: flushes the file writers of the model's `tf.summary` ops; None if there are none.

        Raises:
          TimeoutError: the server does not answer.
          ValueError: the server cannot run the program.
        """
        check_runs_there(program.graph, connection)
        self.program = program
        self._connection, self._timeout_secs = connection, timeout_secs
        self._flush = flush
        program.runtime.start()
        self._num_failures = program.runtime.num_failures()
        peer_secs = program.runtime.config.peer_timeout_secs
        self._health = TaskHealth(connection.needed, peer_secs, _WITHOUT_SERVER)
        try:
            self._health.wait(timeout_secs)
            wait = self._health.wait_for if self._health else None
            self.session = _tf.open_session(connection.target, setup.graph, setup.config, wait)
        except BaseException:
            self._health.close()
            raise
        self._end = weakref.finalize(self, _end_session, self.session, self._health)
        self._setup = setup
        self._version_as_built = setup.graph.version
        self._restored: tuple | None = None
        self._had_hooks = False
        own_hooks = (*(program.spec.evaluation_hooks or ()), *(program.spec.prediction_hooks or ()))
        self._hooks_have_state = not _HOOKS_THAT_BEGIN_ANEW.issuperset(map(type, own_hooks))
        self.is_used_up = False
        self.holder: int | None = None
        self.key: tuple = ()
        self.num_bytes = _OVERHEAD_BYTES + _bytes_of_variables(setup.graph)
        self.last_use = 0.0
        self._predictions: weakref.WeakSet[Generator] = weakref.WeakSet()
        self._run = HookedSession(setup.graph, [])
        self._run.start(self.session, tf.train.Coordinator())

    def restore(self, weights: Weights) -> str:
        """Sets the variables to `weights` unless they have them already; describes the weights.

        Restores the first checkpoint that is readable.
        """
        if not self.has(weights):
            self._restored = None
            restored = self._start(weights)
            self._setup.run_local_init(self.session)
            self._restored = restored
            self._had_hooks = False
        if weights.state is not None:
            return "the weights in memory"
        return self.checkpoint_path or "the initial values (there is no checkpoint yet)"

    def _start(self, weights: Weights) -> tuple[str, bytes] | None:
        """Sets the variables; returns the identity of their checkpoint."""
        if weights.state is not None:
            self._check_no_init_fn()
            load_state(self._setup.saver, self.session, weights.state)
            return None  # Weights in memory cannot be recognized later.
        if weights.paths:
            path = restore_first(self._setup, self.session, weights.paths, weights.find_paths)
            return files.checkpoint_identity(str(path))
        for initialize in self._setup.initializers:
            initialize(self.session)
        return _NO_CHECKPOINT

    def _check_no_init_fn(self) -> None:
        """Raises an error if the model's Scaffold would have to initialize the variables."""
        scaffold = self.program.spec.scaffold
        if scaffold is not None and scaffold.init_fn is not None:
            raise ValueError(
                f"The Scaffold of the model in mode EVAL has an `init_fn` ({scaffold.init_fn!r}), "
                "which an InMemoryEvaluatorHook does not run: the values are those of training. "
                "Return it in mode TRAIN only, or evaluate checkpoints."
            )

    def is_usable(self, weights: Weights) -> bool:
        """Returns whether the next call with `weights` can use its program.

        It cannot if the graph lacks a warm-start op that the weights need; if a hook has extended
        the graph, which would use memory and names permanently; if the model has hooks, which may
        keep something of a call; or if its server or TPU has failed or was restarted, with
        all its state.
        """
        can_start = weights.warm_start is None or self._setup.warm_start is not None
        is_as_built = self._setup.graph.version == self._version_as_built
        has_failed = self.program.runtime.num_failures() != self._num_failures
        return (
            can_start
            and is_as_built
            and not self._hooks_have_state
            and not has_failed
            and not self._health.is_any_away()
        )

    @property
    def checkpoint_path(self) -> str | None:
        """The checkpoint whose weights are loaded; None if they are not from a checkpoint."""
        return (self._restored[0] or None) if self._restored is not None else None

    def has(self, weights: Weights) -> bool:
        """Returns whether these weights are loaded, from the same checkpoint files.

        If the last call had hooks, it is not known: they can assign to variables.
        """
        if weights.state is not None or self._restored is None or self._had_hooks:
            return False
        paths = weights.paths
        return self._restored == (files.checkpoint_identity(paths[0]) if paths else _NO_CHECKPOINT)

    @property
    def is_predicting(self) -> bool:
        """Whether an unfinished prediction still needs the weights."""
        states = map(inspect.getgeneratorstate, self._predictions)
        return any(state != inspect.GEN_CLOSED for state in states)

    @property
    def is_in_use(self) -> bool:
        """Whether a call that has not ended needs the session."""
        return self.holder is not None or self.is_predicting

    def track(self, prediction: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Returns a prediction that uses the session, and counts as unfinished until it ends."""
        self._predictions.add(prediction)
        self.is_used_up = self.program.leaves_state
        return prediction

    def twin(self) -> WarmSession:
        """Opens another session on the same program, without weights yet."""
        return WarmSession(
            self.program, self._setup, self._connection, self._timeout_secs, self._flush
        )

    def hooked(self, hooks: Sequence[Hook], source: tf.compat.v1.Session) -> HookedSession:
        """Returns a session that calls hooks; without hooks, always the same one.

        Args:
          hooks: the hooks.
          source: the session of the input, for ops of its graph that hooks run.
        """
        if not hooks:
            return self._run
        self._had_hooks = True
        graph = self._setup.graph
        with extending(graph, None):
            made_before = needs_values()
            hooked = HookedSession(graph, hooks)
            start_new(self.session, made_before, self.checkpoint_path)
        both = SessionOfBoth(self.session, source)
        hooked.start(self.session, tf.train.Coordinator(), both, both.note_feeds)
        return hooked

    def reset_metrics(self) -> None:
        """Resets local variables, including those of metrics."""
        assert isinstance(self.program, EvalProgram)
        self.is_used_up = self.program.leaves_state
        self.session.run(self.program.reset, self._setup.local_init_feeds)
        if self._setup.scaffold.local_init_op is not None:
            self._setup.run_local_init(self.session)

    def flush_writers(self) -> None:
        """Writes to files what `tf.summary` ops of the model have recorded."""
        if self._flush is not None:
            with contextlib.suppress(tf.errors.NotFoundError):  # The program may have closed one.
                self.session.run(self._flush)

    def global_step(self) -> int:
        """Returns the global step of the weights."""
        return int(self.session.run(self.program.current_step))

    def close(self) -> None:
        """Closes the session."""
        self._end()


def _bytes_of_variables(graph: tf.Graph) -> int:
    """Returns the size of a graph's variables, except those whose shape is not known."""
    with graph.as_default():
        variables = [*tf.compat.v1.global_variables(), *tf.compat.v1.local_variables()]
    copies = (copy for variable in variables for copy in _tf.copies(variable))
    return sum(copy.dtype.size * (copy.shape.num_elements() or 0) for copy in copies)


def _end_session(session: tf.compat.v1.Session, health: TaskHealth) -> None:
    """Closes a session; abandons it if its server is gone and would not answer."""
    if isinstance(session, _tf.InterruptibleSession):
        if health.is_any_away():
            session.give_up()
        session.wait = None  # No new thread can be started at process exit.
    session.close()
    health.close()
