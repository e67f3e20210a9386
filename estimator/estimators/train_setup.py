"""Prepares `train`: its strategy, its initial values, and the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from estimator.checkpoint.old_model import OldModel, find_old_model
from estimator.cluster.server import Connection
from estimator.config.loop_length import loop_steps
from estimator.config.run_config import RunConfig
from estimator.config.warm_start_settings import WarmStartSettings
from estimator.console import log, say
from estimator.estimators.batches import Batches
from estimator.model.failure_hints import ImportedInLoopError
from estimator.model.replicas import Model
from estimator.program.train_program import TrainProgram, build_train_program
from estimator.runtime.local import Runtime
from estimator.session.hook_errors import HookInLoopError, may_leave_loop
from estimator.session.warm_up import warmed_up


def find_start(
    warm_start: WarmStartSettings | None, found: Sequence[str], config: RunConfig
) -> OldModel | None:
    """Returns the old model to warm-start from; None if there is none, or if checkpoints exist.

    In a cluster, the chief provides the initial values, so only its files count.
    """
    if warm_start is None or not (config.is_chief or config.cluster.is_alone):
        return None
    if found:
        say("`warm_start_from` is not used: training resumes from %s.", found[0])
        return None
    return find_old_model(warm_start)


def build_program(
    model: Model,
    input_fn: Callable,
    runtime: Runtime,
    batches: Batches,
    config: RunConfig,
    connection: Connection,
) -> TrainProgram:
    """Builds the input and the model; the session comes later."""
    with warmed_up(connection.target, connection.session_config):
        program = build_train_program(
            model,
            lambda: batches.build_input(input_fn, runtime),
            runtime,
            iterations_per_loop=loop_steps(config.iterations_per_loop),
            nan_policy=config.nan_policy,
            host_call_steps=batches.host_call_steps,
        )
    if program.accumulation is not None:
        runtime.check_accumulation(program.accumulation.size)
    return program


def run_with_loops(
    run: Callable[[RunConfig, Connection], None], config: RunConfig, runtime: Runtime
) -> None:
    """Runs a training with the config, or one step a session call if it cannot be in a loop.

    That is so if `model_fn` imports a meta graph, or if a hook uses what is inside the loop, which
    is an error unless it `may_leave_loop`.
    """

    def attempt(config: RunConfig) -> None:
        connection = runtime.begin_training()
        with connection.telling_failures():
            run(config, connection)

    try:
        attempt(config)
        return
    except ImportedInLoopError as error:
        if runtime.is_compiled:
            raise
        reason = str(error)
    except HookInLoopError as error:
        if error.has_trained or not may_leave_loop(config, is_compiled=runtime.is_compiled):
            raise
        reason = error.reason
    log.warning("%s So each session call runs one step.", reason)
    attempt(config.replace(iterations_per_loop=1))
