"""Prepares `evaluate` and `predict`: reuses the session of an earlier call, or opens a new one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

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

    Attributes:
      inputs: the sessions of the inputs themselves.
    """

    def __init__(self) -> None:
        """Opens no session yet."""
        self._kept: dict[str, dict[tuple, WarmSession]] = {}
        self.inputs = InputSessions()
        self._has_sums = True  # False once a metric is found that several replicas cannot sum.

    def take(
        self, model: Model, runtime: Runtime, host_input: HostInput, weights: Weights
    ) -> WarmSession:
        """Returns the session for the mode and kind of input, free to restore `weights`.

        Opens a new one if a hook has extended the graph, or if an unfinished prediction needs the
        old weights. Evicts the least recently used session if there are too many.
        """
        kept = self._kept.setdefault(runtime.mode, {})
        old = warm = kept.get(host_input.key)
        if warm is None or not warm.is_usable(weights):
            warm = self._opened(model, runtime, host_input, weights.warm_start)
        elif warm.is_used_up or (warm.is_predicting and not warm.has(weights)):
            warm = warm.twin()
        if old is not None and warm is not old:
            _let_go(old)
        kept.pop(host_input.key, None)
        kept[host_input.key] = warm  # Ordered by last use.
        if len(kept) > _MAX_KEPT:
            _let_go(kept.pop(next(iter(kept))))
        return warm

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
        return [warm for kept in self._kept.values() for warm in kept.values()]


def _let_go(warm: WarmSession) -> None:
    """Closes a session, unless unfinished predictions keep it until they end."""
    if not warm.is_predicting:
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
