"""Prepares `evaluate` and `predict`: reuses the session of an earlier call, or opens a new one."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from estimator import _tf
from estimator.checkpoint.old_model import find_old_model
from estimator.checkpoint.writer import build_saver
from estimator.config.tpu_config import InputPipelineConfig
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.console import log
from estimator.estimators import smoke
from estimator.estimators.arguments import is_hparams
from estimator.estimators.model_inputs import Batches
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

# Per mode. A model may depend on static shapes, and inputs of a few kinds, such as two batch sizes,
# may alternate; each session has a copy of the weights.
_MAX_KEPT = 4


class WarmSessions:
    """The sessions that are kept open between calls: for each mode, for a few kinds of input.

    Threads may call at the same time, and a hook of a call may make another one. Predictions with
    the same weights share a session; an evaluation has its own.

    Attributes:
      inputs: the sessions of the inputs themselves.
    """

    def __init__(self) -> None:
        """Opens no session yet."""
        self._kept: dict[str, list[WarmSession]] = {}
        self._released = threading.Condition()
        self.inputs = InputSessions()
        self._has_sums = True  # False once a metric is found that several replicas cannot sum.

    @contextlib.contextmanager
    def taken(
        self, model: Model, runtime: Runtime, host_input: HostInput, weights: Weights
    ) -> Iterator[WarmSession]:
        """Gives the session for the mode and kind of input, free to restore `weights` in the block.

        Opens a new one if a hook has extended the graph, or if a call that has not ended needs the
        old weights or metrics. Evicts the least recently used session if there are too many.
        """
        kept, me = self._kept.setdefault(runtime.mode, []), threading.get_ident()
        with self._released:
            if runtime.mode == ModeKeys.PREDICT:  # The weights that others restore are mostly ours.
                self._released.wait_for(
                    lambda: all(one.holder in (None, me) for one in _of(kept, host_input))
                )
            same = _of(kept, host_input)
            usable = [one for one in same if one.is_usable(weights)]
            warm = next((one for one in usable if _is_free(one, weights)), None)
            if warm is not None:
                warm.holder = me
                kept.append(kept.pop(kept.index(warm)))  # Ordered by last use.
            replaced = [one for one in same if one.holder is None]
        if warm is None:
            if usable:
                warm = usable[0].twin()
            else:
                warm = self._opened(model, runtime, host_input, weights.warm_start)
            warm.holder, warm.key = me, host_input.key
            with self._released:
                for one in replaced:
                    if one in kept:
                        _let_go(kept.pop(kept.index(one)))
                kept.append(warm)
                if len(kept) > _MAX_KEPT:
                    _let_go(kept.pop(0))
        try:
            yield warm
        finally:
            with self._released:
                warm.holder = None
                self._released.notify_all()

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

    def close(self) -> None:
        """Closes all sessions."""
        for warm in self.all():
            warm.close()
        self._kept.clear()
        self.inputs.close()

    def all(self) -> list[WarmSession]:
        """Returns the open sessions."""
        return [warm for kept in self._kept.values() for warm in kept]


def _of(kept: Sequence[WarmSession], host_input: HostInput) -> list[WarmSession]:
    """Returns the sessions for this kind of input."""
    return [warm for warm in kept if warm.key == host_input.key]


def _is_free(warm: WarmSession, weights: Weights) -> bool:
    """Returns whether `weights` may be restored: no other call needs other ones, or metrics."""
    is_fresh = warm.holder is None and not warm.is_used_up
    return is_fresh and (not warm.is_predicting or warm.has(weights))


def _let_go(warm: WarmSession) -> None:
    """Closes a session, unless calls that have not ended keep it until they do."""
    if warm.holder is None and not warm.is_predicting:
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
    with runtime.strategy.scope():
        setup = build_setup(
            build_start(program.graph, program.spec.scaffold, build_saver, old_model),
            connection.session_config,
            is_evaluation=is_eval,
        )
    timeout_secs = model.config.session_creation_timeout_secs
    return WarmSession(program, setup, connection, timeout_secs, flush)
