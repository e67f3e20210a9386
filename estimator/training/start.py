"""Starts training: restores the input position, and saves the start if there is no checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.graph_text import writing_graph
from estimator.checkpoint.input_position import InputPosition, remove_positions
from estimator.checkpoint.writer import CheckpointWriter
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.run_config import RunConfig
from estimator.console import log
from estimator.program.train_program import TrainProgram
from estimator.session.hooked_session import Hook
from estimator.training.first_calls import FirstCalls
from estimator.training.nan_guard import BadWeightsError, WeightsCheck
from estimator.training.request import TrainRequest
from estimator.training.saving import Savers
from estimator.training.start_save import OtherStepError, saves_on_the_way, saves_start


@dataclasses.dataclass(frozen=True)
class Started:
    """How training started.

    Attributes:
      is_input_resumed: whether the input continues from its position at the checkpoint.
      step: the global step; None if it was not read, or if a hook or a listener may yet set it.
    """

    is_input_resumed: bool
    step: int | None


def start_or_resume(
    session: tf.compat.v1.Session,
    first_calls: FirstCalls,
    program: TrainProgram,
    request: TrainRequest,
    worker_group: WorkerGroup,
    savers: Savers,
    path: str | None,
    paths: Sequence[str],
) -> Started:
    """Continues from the checkpoint at `path`, or saves the start of training from scratch.

    Args:
      session: the restored session.
      first_calls: starts the input.
      program: the program to train.
      request: what `train` was asked to do.
      worker_group: the workers that train together.
      savers: save checkpoints and input positions.
      path: the path of the restored checkpoint; None if nothing was restored.
      paths: the paths of all checkpoints, the newest first.
    """
    model_dir = str(request.config.model_dir)
    checkpoints, position = savers.checkpoints, savers.position
    # Not earlier: nothing is written until the checkpoint is known to fit this model.
    tf.io.gfile.makedirs(model_dir)
    if worker_group.is_chief:
        files.remove_unfinished(model_dir)
    if worker_group.saves and (position is None or not request.is_same_input):
        remove_positions(model_dir, worker_group.workers)
    saved_step = _tell_saved_step(session, worker_group, path)
    if checkpoints is not None and saved_step is not None:
        checkpoints.resume_from(saved_step, path, paths)
    first_calls.start_input(session)
    is_resumed = saved_step is not None and _restore_input(
        session, program, position, model_dir, saved_step, worker_group
    )
    fresh = checkpoints if saved_step is None else None
    step = _save_start(session, first_calls, request, fresh, savers.weights, worker_group)
    worker_group.announce(session)
    return Started(is_resumed, None if _may_set_step(request) else step)


def _may_set_step(request: TrainRequest) -> bool:
    """Returns whether a hook's `after_create_session` or a listener may set the global step."""
    own = Hook.after_create_session
    acts = any(type(hook).after_create_session is not own for hook in request.own_hooks)
    return acts or bool(request.listeners)


def _tell_saved_step(
    session: tf.compat.v1.Session, worker_group: WorkerGroup, path: str | None
) -> int | None:
    """Returns the step of the checkpoint that the chief restored; None if it restored none."""
    step = -1 if path is None else files.checkpoint_step(path) or 0
    step = worker_group.broadcast_number(session, step)
    return None if step < 0 else step


def _restore_input(
    session: tf.compat.v1.Session,
    program: TrainProgram,
    position: InputPosition | None,
    model_dir: str,
    saved_step: int,
    worker_group: WorkerGroup,
) -> bool:
    """Restores the input's position at the checkpoint; returns whether it continues from there.

    It does so on all workers or on none: otherwise some would repeat examples, and others not.
    """
    is_restored = position is not None and position.restore(session, model_dir, saved_step)
    number = worker_group.first_without(session, is_restored)
    if number is None:
        _restore_copies(session, position, model_dir, saved_step, worker_group)
        return True
    if is_restored:
        session.run(program.input.initializer)
    if position is not None and not worker_group.decides_alone:
        log.warning(
            "The position in the input of %s at step %d is missing: the inputs of all workers "
            "start at their beginning.",
            worker_group.workers.names[number],
            saved_step,
        )
    return False


def _restore_copies(
    session: tf.compat.v1.Session,
    position: InputPosition | None,
    model_dir: str,
    saved_step: int,
    worker_group: WorkerGroup,
) -> None:
    """Restores each replica's own copies of variables, on all workers or on none."""
    if position is None or not position.has_copies:
        return
    number = worker_group.first_without(session, position.finds_copies(model_dir, saved_step))
    if number is None:
        position.restore_copies(session, model_dir, saved_step)
        return
    whose = "" if worker_group.decides_alone else f" of {worker_group.workers.names[number]}"
    log.warning(
        "The values that each replica%s had of its own at step %d, such as moving statistics, are "
        "missing, or were saved by another number of replicas. All replicas begin with the mean, "
        "which the checkpoint has, so the run may differ from an unbroken one in the last digits.",
        whose,
        saved_step,
    )


def _save_start(
    session: tf.compat.v1.Session,
    first_calls: FirstCalls,
    request: TrainRequest,
    checkpoints: CheckpointWriter | None,
    weights: WeightsCheck,
    worker_group: WorkerGroup,
) -> int | None:
    """Saves the initial state, if checkpoints are also saved before the end of training.

    Weights that are not finite are not saved. Returns the global step, unless nothing is saved.

    Args:
      session: the open session.
      first_calls: may have prepared the call that saves.
      request: its config says whether checkpoints are saved.
      checkpoints: saves; None if training continues from a checkpoint, or if a hook saves.
      weights: checks that the weights are finite.
      worker_group: the workers that train together.
    """
    config = request.config
    if checkpoints is None or not saves_start(config, worker_group):
        return None
    try:
        with contextlib.suppress(OtherStepError):
            if (step := first_calls.save_start(session, checkpoints)) is not None:
                return step
        step = weights.read(session.run(weights.fetches_for(config.nan_policy)))
    except BadWeightsError:
        return None
    checkpoints.save_start(session, step)
    return step


def graph_written(
    program: TrainProgram,
    config: RunConfig,
    checkpoints: CheckpointWriter | None,
    worker_group: WorkerGroup,
) -> contextlib.AbstractContextManager[None]:
    """Inside, the chief writes `graph.pbtxt` if the config asks for it and no hook saves."""
    is_wanted = config.checkpoint_save_graph_def and saves_on_the_way(config)
    if checkpoints is None or not is_wanted or not worker_group.is_chief:
        return contextlib.nullcontext()
    return writing_graph(program.graph, str(config.model_dir))
