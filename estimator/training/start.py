"""Starts training: restores the input position, and saves the start if there is no checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf

from estimator.checkpoint import files, removal
from estimator.checkpoint.graph_text import writing_graph
from estimator.checkpoint.input_position import InputPosition, remove_positions
from estimator.checkpoint.writer import CheckpointWriter
from estimator.cluster.worker_group import WorkerGroup
from estimator.console import log
from estimator.session.hooked_session import overrides
from estimator.training.first_calls import FirstCalls
from estimator.training.open_training import OpenTraining
from estimator.training.request import TrainRequest
from estimator.training.saving import saves_on_the_way, saves_start


def start_or_resume(
    training: OpenTraining,
    session: tf.compat.v1.Session,
    first_calls: FirstCalls,
    checkpoints: CheckpointWriter | None,
    position: InputPosition | None,
    path: str | None,
    paths: Sequence[str],
    is_same_input: bool,
) -> tuple[bool, int | None]:
    """Continues from the checkpoint at `path`, or saves the start of training from scratch.

    Args:
      training: the training run that starts.
      session: the restored session.
      first_calls: starts the input.
      checkpoints: writes checkpoints; None if a hook does.
      position: saves the position of the input; None if it is not saved.
      path: the path of the restored checkpoint; None if nothing was restored.
      paths: the paths of all checkpoints, the newest first.
      is_same_input: whether a saved input position may be restored.

    Returns:
      Whether the input continues from its position at the checkpoint; and the global step, or None
      if it was not read, or if a hook or a listener may yet set it.
    """
    request, worker_group = training.request, training.worker_group
    model_dir = str(training.config.model_dir)
    # Not earlier: nothing is written until the checkpoint is known to fit this model.
    tf.io.gfile.makedirs(model_dir)
    if worker_group.is_chief:
        removal.remove_unfinished(model_dir)
    if worker_group.saves and (position is None or not is_same_input):
        remove_positions(model_dir, worker_group.workers)
    saved_step = _tell_saved_step(session, worker_group, path)
    if checkpoints is not None and saved_step is not None:
        checkpoints.resume_from(saved_step, path, paths)
    first_calls.start_input(session)
    is_resumed = saved_step is not None and _restore_input(training, session, position, saved_step)
    step = None
    # With checkpoints and none restored, the ps tasks still hold what an earlier session trained.
    is_new = saved_step is None and not paths
    if is_new and checkpoints is not None and saves_start(training):
        step = first_calls.save_start(session, checkpoints)
    return is_resumed, None if _may_set_step(request) else step


def _may_set_step(request: TrainRequest) -> bool:
    """Returns whether a hook's `after_create_session` or a listener may set the global step."""
    acts = any(overrides(hook, "after_create_session") for hook in request.own_hooks)
    return acts or bool(request.listeners)


def _tell_saved_step(
    session: tf.compat.v1.Session, worker_group: WorkerGroup, path: str | None
) -> int | None:
    """Returns the step of the checkpoint that the chief restored; None if it restored none."""
    step = -1 if path is None else files.checkpoint_step(path) or 0
    step = worker_group.broadcast_number(session, step)
    return None if step < 0 else step


def _restore_input(
    training: OpenTraining,
    session: tf.compat.v1.Session,
    position: InputPosition | None,
    saved_step: int,
) -> bool:
    """Restores the input's position at the checkpoint; returns whether it continues from there.

    It does so on all workers or on none: otherwise some would repeat examples, and others not.
    """
    worker_group = training.worker_group
    is_restored = position is not None and position.restore(session, saved_step)
    number = worker_group.first_without(session, is_restored)
    if number is None:
        _restore_copies(training, session, position, saved_step)
        return True
    if is_restored:
        session.run(training.program.input.initializer)
    if position is not None and not worker_group.decides_alone:
        log.warning(
            "The position in the input of %s at step %d is missing: the inputs of all workers "
            "start at their beginning.",
            worker_group.workers.names[number],
            saved_step,
        )
    return False


def _restore_copies(
    training: OpenTraining,
    session: tf.compat.v1.Session,
    position: InputPosition | None,
    saved_step: int,
) -> None:
    """Restores each replica's own copies of variables, on all workers or on none."""
    worker_group = training.worker_group
    # The workers may differ in what they have: `model_fn` may assign a variable on the chief alone.
    if position is None or (worker_group.decides_alone and not position.has_copies):
        return
    number = worker_group.first_without(session, position.finds_copies(saved_step))
    if number is None:
        position.restore_copies(session, saved_step)
        return
    whose = "" if worker_group.decides_alone else f" of {worker_group.workers.names[number]}"
    log.warning(
        "The values that each replica%s had of its own at step %d, such as moving statistics, are "
        "missing, or were saved by another number of replicas. All replicas begin with the value "
        "in the checkpoint, the mean or the first replica's, so the run may differ from an "
        "unbroken one.",
        whose,
        saved_step,
    )


def graph_written(
    training: OpenTraining, checkpoints: CheckpointWriter | None
) -> contextlib.AbstractContextManager[None]:
    """Inside, the chief writes `graph.pbtxt` if the config asks for it and no hook saves."""
    config = training.config
    is_wanted = config.checkpoint_save_graph_def and saves_on_the_way(config)
    if checkpoints is None or not is_wanted or not training.worker_group.is_chief:
        return contextlib.nullcontext()
    return writing_graph(training.program.graph, str(config.model_dir))
