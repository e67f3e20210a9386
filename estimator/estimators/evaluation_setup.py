"""Prepares `evaluate` and `predict`: reuses the session of an earlier call, or opens a new one."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence

from estimator import _tf
from estimator.checkpoint.old_model import find_old_model
from estimator.checkpoint.writer import build_saver
from estimator.config.tpu_config import InputPipelineConfig
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.console import log
from estimator.estimators import smoke
from estimator.estimators.arguments import is_hparams
from estimator.estimators.batches import Batches
from estimator.evaluation.host_input import HostInput
from estimator.evaluation.input_sessions import InputSessions
from estimator.evaluation.warm_session import WarmSession, Weights
from estimator.model.replicas import Model
from estimator.model.summable_metrics import NotSummableError
from estimator.program.fixed_shape import build_padded_eval_program, build_padded_predict_program
from estimator.program.programs import build_eval_program, build_predict_program
from estimator.runtime.local import Runtime, make_plain_runtime
from estimator.session.opening import build_setup, build_start
from estimator.session.warm_up import warmed_up
from estimator.spec import ModeKeys

# Every WarmSessions of the process.
_owners: weakref.WeakSet[WarmSessions] = weakref.WeakSet()
_owners_lock = threading.Lock()

# Per mode. A model may depend on static shapes, and inputs of a few kinds, such as two batch sizes,
# may alternate; each session has a copy of the weights.
_MAX_KEPT = 4
# For all sessions of the process. Those in use count but stay, and so does the one used last.
_MAX_BYTES_KEPT = 1 << 30


class WarmSessions:
    """The sessions that are kept open between calls: for each mode, for a few kinds of input.

    Threads may call at the same time, and a hook of a call may make another one. Predictions with
    the same weights share a session; an evaluation has its own. Of each kind, one that no call uses
    is kept.

    Attributes:
      inputs: the sessions of the inputs themselves.
      results_of_model_fn: what `model_fn` changes itself, as OutsideValues knows it.
    """

    def __init__(self) -> None:
        """Opens no session yet."""
        self._kept: dict[str, list[WarmSession]] = {ModeKeys.EVAL: [], ModeKeys.PREDICT: []}
        self._building: dict[tuple, int] = {}  # By kind of input: the thread, for predictions.
        self._changed = threading.Condition()
        self.inputs = InputSessions()
        self.results_of_model_fn: set[tuple] = set()
        self._has_sums = True  # False once a metric is found that several replicas cannot sum.
        with _owners_lock:
            _owners.add(self)

    @contextlib.contextmanager
    def taken(
        self, model: Model, runtime: Runtime, host_input: HostInput, weights: Weights
    ) -> Iterator[WarmSession]:
        """Gives the session for the mode and kind of input, free to restore `weights` in the block.

        Opens a new one if something that `model_fn` reads has changed since the old one was built,
        if a hook has extended its graph or is part of it, or if a call that has not ended needs the
        old weights or metrics. Evicts the least recently used session if there are too many.
        """
        kept, kind, me = self._kept[runtime.mode], host_input.key, threading.get_ident()
        warm: WarmSession | None = None
        try:
            with self._changed:
                if runtime.mode == ModeKeys.PREDICT:
                    # Another thread most likely restores the same weights: its session is shared.
                    self._changed.wait_for(lambda: self._is_ready(kept, kind, me))
                same = _of(kept, _key(model, host_input))
                usable = [one for one in same if one.is_usable(weights)]
                warm = next((one for one in usable if _is_free(one, weights)), None)
                if warm is not None:
                    warm.holder = me
                    kept.append(kept.pop(kept.index(warm)))  # Ordered by last use.
                elif runtime.mode == ModeKeys.PREDICT:
                    self._building[kind] = me
                # One for each kind of input: each has a copy of the weights.
                replaced = [one for one in kept if one.key[0] == kind and one.holder is None]
            if warm is None:
                if usable:
                    warm = usable[0].twin()
                else:
                    warm = self._opened(model, runtime, host_input, weights.warm_start)
                warm.holder, warm.key = me, _key(model, host_input)
                self._keep(kept, warm, replaced)
            yield warm
        finally:
            self._release(kept, kind, warm)

    def _is_ready(self, kept: Sequence[WarmSession], kind: tuple, me: int) -> bool:
        """Returns whether no other thread opens such a session, or restores weights to one."""
        holders = {one.holder for one in kept if one.key[0] == kind}
        return holders <= {None, me} and self._building.get(kind, me) == me

    def _keep(
        self, kept: list[WarmSession], warm: WarmSession, replaced: Sequence[WarmSession]
    ) -> None:
        """Keeps a new session, in place of others, or of one that was not used for long."""
        with self._changed:
            left = [one for one in replaced if one in kept]
            kept[:] = [*(one for one in kept if one not in left), warm]
            if len(kept) > _MAX_KEPT:
                unused = (one for one in kept if one.holder is None)
                left.append(next(unused, kept[0]))
                kept.remove(left[-1])
        for one in left:
            _let_go(one)

    def _release(self, kept: list[WarmSession], kind: tuple, warm: WarmSession | None) -> None:
        """Ends a call's use of a session; lets go of what is not to be kept."""
        with self._changed:
            if self._building.get(kind) == threading.get_ident():
                del self._building[kind]
            left = []
            if warm is not None:
                warm.holder = None
                warm.last_use = time.monotonic()
                left = [one for one in _of(kept, warm.key) if not one.is_in_use][:-1]
                kept[:] = [one for one in kept if one not in left]
                if warm not in kept and warm not in left:  # Evicted, or closed, while it was used.
                    left.append(warm)
            self._changed.notify_all()
        for one in left:
            _let_go(one)
        _limit_bytes()

    def _opened(
        self,
        model: Model,
        runtime: Runtime,
        host_input: HostInput,
        warm_start: WarmStartSettings | None,
    ) -> WarmSession:
        """Opens a session, on one replica if a metric would be wrong on several."""
        if runtime.mode != ModeKeys.EVAL or self._has_sums:
            try:
                return _open(model, runtime, host_input, warm_start)
            except NotSummableError as error:
                self._has_sums = False
                log.warning(
                    "Evaluating on 1 replica instead of %d: %s. Only metrics that add something "
                    "of each batch to variables, as those of tf.compat.v1.metrics and most of "
                    "Keras do, are exact on several.",
                    runtime.num_replicas,
                    error,
                )
        alone = make_plain_runtime(runtime.config, runtime.mode)
        return _open(model, alone, host_input, warm_start)

    def drop(self, warm: WarmSession) -> bool:
        """Closes a session; returns whether it could: it may be used, or closed already."""
        with self._changed:
            lists = [kept for kept in self._kept.values() if warm in kept]
            if not lists or warm.is_in_use:
                return False
            lists[0].remove(warm)
        warm.close()
        return True

    def close(self) -> None:
        """Closes all sessions; one that a call in another thread uses, when that ends."""
        with self._changed:
            left = self.all()
            for kept in self._kept.values():
                kept.clear()
        for warm in left:
            if warm.holder is None:
                warm.close()
        self.inputs.close()

    def all(self) -> list[WarmSession]:
        """Returns the open sessions."""
        return [warm for kept in self._kept.values() for warm in kept]


def _limit_bytes() -> None:
    """Closes idle sessions, least recently used first, until the rest is small enough.

    Those in use count, too: a prediction is read after its call has returned.
    """
    with _owners_lock:
        owners = list(_owners)
    kept = [(warm, owner) for owner in owners for warm in owner.all()]
    kept.sort(key=lambda pair: pair[0].last_use)
    num_bytes = sum(warm.num_bytes for warm, _ in kept)
    for warm, owner in kept[:-1]:
        if num_bytes <= _MAX_BYTES_KEPT:
            break
        if owner.drop(warm):
            num_bytes -= warm.num_bytes


def _key(model: Model, host_input: HostInput) -> tuple:
    """Returns a key that is equal for inputs and models that the same program serves."""
    outside_values = model.outside_values
    return host_input.key, None if outside_values is None else outside_values.find()


def _of(kept: Sequence[WarmSession], key: tuple) -> list[WarmSession]:
    """Returns the sessions for this kind of input and this state of the model."""
    return [warm for warm in kept if warm.key == key]


def _is_free(warm: WarmSession, weights: Weights) -> bool:
    """Returns whether `weights` may be restored: no other call needs other ones, or metrics."""
    is_fresh = warm.holder is None and not warm.is_used_up
    return is_fresh and (not warm.is_predicting or warm.has(weights))


def _let_go(warm: WarmSession) -> None:
    """Closes a session, unless calls that have not ended keep it until they do."""
    if not warm.is_in_use:
        warm.close()


def make_host_input(
    input_fn: Callable, runtime: Runtime, batches: Batches, sessions: InputSessions
) -> HostInput:
    """Makes the input of one call of `evaluate` or `predict`."""
    mode, num_replicas = runtime.mode, runtime.num_replicas
    with warmed_up("", runtime.session_config()):
        return HostInput(
            lambda: batches.get_input(input_fn, runtime),
            sessions,
            batches.config.tf_random_seed,
            has_labels=mode == ModeKeys.EVAL,
            batches_per_step=num_replicas,
            num_slices=num_replicas if batches.pipeline(mode) == InputPipelineConfig.SLICED else 1,
            batch_axis=batches.batch_axis,
            max_batches=smoke.STEPS * num_replicas if batches.config.smoke else None,
        )


def _open(
    model: Model, runtime: Runtime, host_input: HostInput, warm_start: WarmStartSettings | None
) -> WarmSession:
    # Fails before anything is built.
    old_model = None if warm_start is None else find_old_model(warm_start, is_for_part=True)
    connection = runtime.connect()
    is_eval = runtime.mode == ModeKeys.EVAL
    build: Callable = build_eval_program if is_eval else build_predict_program
    if runtime.is_compiled:
        # The params may be an object of any class.
        has_names = isinstance(model.params, Mapping) or is_hparams(model.params)
        batch_size = model.params.get("batch_size") if has_names else None
        padded = build_padded_eval_program if is_eval else build_padded_predict_program
        build = functools.partial(padded, batch_size=batch_size)
    program = build(model, host_input.element, runtime, host_input.names)
    flush = _tf.build_flush_of_writers(program.graph)
    # In the program's graph: the caller's may be in the scope of another strategy.
    with program.graph.as_default(), runtime.strategy.scope():
        setup = build_setup(
            build_start(program.graph, program.spec.scaffold, build_saver, old_model),
            connection.session_config,
            is_evaluation=is_eval,
        )
    timeout_secs = model.config.session_creation_timeout_secs
    return WarmSession(program, setup, connection, timeout_secs, flush)
