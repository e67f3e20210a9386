"""Runs a train program: builds what its sessions need, and joins the cluster's tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.background import CheckpointCopy, check_can_copy
from estimator.checkpoint.input_position import InputPosition
from estimator.checkpoint.trainer_lock import trainer_lock
from estimator.checkpoint.writer import CheckpointWriter, build_saver
from estimator.cluster.server import check_runs_there
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.loop_length import loop_steps
from estimator.console import log
from estimator.hooks.stock_hooks_in_loops import saver_hooks
from estimator.input.array_datasets import release_arrays
from estimator.program.graph_scope import extending
from estimator.program.step_summaries import build_summary_with_new, summaries_so_far
from estimator.program.train_program import TrainProgram
from estimator.session.hook_errors import may_leave_loop
from estimator.session.hooked_session import HookedSession
from estimator.session.opening import Setup, Start, build_setup, build_start
from estimator.session.signals import stop_signals
from estimator.summary.event_writer import EventWriter
from estimator.training.first_calls import FirstCalls
from estimator.training.joining import joined
from estimator.training.nan_guard import WeightsCheck, WeightsListener
from estimator.training.open_training import OpenTraining
from estimator.training.report import SavesInEvents
from estimator.training.request import TrainRequest, TrainResult
from estimator.training.sessions import SessionParts, run_sessions

# How long to wait for another trainer's lock: that job may have been told to end and still be
# saving. On NFS, the lock of a machine that is gone stays for about 90 seconds.
_LOCK_PATIENCE_SECS = 120.0


def run_train(
    program: TrainProgram, request: TrainRequest, note_result: Callable[[TrainResult], None]
) -> None:
    """Opens a session, trains until there is a reason to stop, and saves the last step.

    Args:
      program: the program to train.
      request: what `train` was asked to do.
      note_result: called with the result, also if a signal then ends the process.

    Raises:
      tf.compat.v1.train.NanLossDuringTrainingError: the loss or a weight is not finite and the
        `nan_policy` is "raise", or "skip" and it was so before; that state is not saved.
      ValueError: the input had no batch at all, or the checkpoint or the old model does not fit.
      KeyboardInterrupt, SystemExit: a signal was received; the last step is saved. See
        `stop_signals`.
      TimeoutError, tf.errors.UnavailableError: another task did not start in time, or is gone.
      RuntimeError: another process trains in the same `model_dir`.
    """
    config = request.config
    check_runs_there(program.graph, request.connection)
    worker_group = program.runtime.make_worker_group(
        program.agreement, request.limits, request.connection
    )
    model_dir = str(config.model_dir)
    start = _build_start(program, request, worker_group)
    position = _build_position(program, request, worker_group)
    weights = WeightsCheck(program.graph, program.state.current_step, config.nan_policy)
    _tell_loop_length(request)
    with contextlib.ExitStack() as stack:
        stack.callback(release_arrays, program.graph)
        if worker_group.is_chief:
            patience_secs = min(_LOCK_PATIENCE_SECS, config.session_creation_timeout_secs)
            stack.enter_context(trainer_lock(model_dir, patience_secs))
        stop = stack.enter_context(stop_signals())
        _watch_saver_hooks(request, position, weights, stack)
        # Before the setup, so that what hooks add to the graph is initialized, saved and recorded.
        hooked, program = _begin_hooks(program, request, worker_group)
        training = OpenTraining(program, hooked, request, worker_group, stop, weights)
        first_calls = FirstCalls(training, start.saver)
        setup = _build_setup(training, start, first_calls)
        events = EventWriter(model_dir, program.graph if config.checkpoint_save_graph_def else None)
        checkpoints = _make_checkpoint_writer(training, setup, position, events)
        tasks = stack.enter_context(joined(training))
        stack.callback(first_calls.finish)
        parts = SessionParts(setup, first_calls, checkpoints, position, events)
        note_result(run_sessions(training, parts, tasks))


def _build_start(program: TrainProgram, request: TrainRequest, worker_group: WorkerGroup) -> Start:
    """Builds the saver and the warm start of the program."""
    make_saver = functools.partial(
        build_saver,
        keep_checkpoint_max=request.config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=request.config.keep_checkpoint_every_n_hours,
    )
    scaffold = program.spec.scaffold
    return build_start(program.graph, scaffold, make_saver, request.old_model, worker_group)


def _build_setup(training: OpenTraining, start: Start, first_calls: FirstCalls) -> Setup:
    """Builds what initializes or restores a session on the program."""
    accumulation = training.program.accumulation
    return build_setup(
        start,
        training.request.connection.session_config,
        # A resumed run may be the first to accumulate gradients.
        may_lack=accumulation.variables if accumulation is not None else (),
        callbacks=first_calls,
    )


def _tell_loop_length(request: TrainRequest) -> None:
    """Tells stock hooks that count steps how many steps a session call runs."""
    num_steps = loop_steps(request.config.iterations_per_loop)
    if num_steps is not None:
        for hook in request.hooks:
            _tf.set_steps_per_run(hook, num_steps)


def _begin_hooks(
    program: TrainProgram, request: TrainRequest, worker_group: WorkerGroup
) -> tuple[HookedSession, TrainProgram]:
    """Calls `begin` of hooks and listeners; returns the program with the summaries they add."""
    fetch_overrides = {id(asked): instead for asked, instead in program.fetches.fetch_overrides}
    with extending(program.graph, program.place):
        if request.own_hooks:
            _add_loss_summary(program.fetches.loss)
        before = summaries_so_far()
        # A saver hook calls them itself.
        if worker_group.is_chief and not saver_hooks(request.hooks):
            for listener in request.listeners:
                listener.begin()
        hooked = HookedSession(
            program.graph,
            request.own_hooks,
            fetch_overrides=fetch_overrides,
            is_loop=program.is_loop,
            may_leave_loop=may_leave_loop(request.config, is_compiled=program.runtime.is_compiled),
            step=program.fetches.global_step,
        )
        if program.fetches.has_own_summary:
            return hooked, program
        summary = build_summary_with_new(program.fetches.summary, before)
        fetches = dataclasses.replace(program.fetches, summary=summary)
        return hooked, dataclasses.replace(program, fetches=fetches)


def _add_loss_summary(loss: tf.Tensor) -> None:
    """Adds the loss to what `summary.merge_all` merges in a hook's `begin`, as tf.estimator does.

    What the library itself records, it takes from the results of the session calls.
    """
    summaries = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
    if all(summary.op.name != "loss" for summary in summaries):
        tf.compat.v1.summary.scalar("loss", loss)


def _build_position(
    program: TrainProgram, request: TrainRequest, worker_group: WorkerGroup
) -> InputPosition | None:
    """Builds what saves the position of the input; returns None if it is not saved."""
    if not program.input.iterators or not request.config.resume_input:
        return None
    if not worker_group.is_in_lockstep:
        return None  # No position matches the checkpoint.
    if program.unrestorable is not None:
        log.warning(
            "The position in the input is not saved, because TensorFlow cannot resume within %s: a "
            "resumed run restarts its input from the beginning.",
            program.unrestorable,
        )
        return None
    if not worker_group.decides_alone and saver_hooks(request.hooks):
        log.warning(
            "A CheckpointSaverHook saves when the chief says so, which the other workers do not "
            "hear of: the position in the input is not saved. Leave the hook out, and set the "
            "intervals of the RunConfig."
        )
        return None
    with program.graph.as_default():
        return InputPosition(
            str(request.config.model_dir),
            program.input.iterators,
            program.input.initializer,
            worker_group.workers,
            tf.compat.v1.global_variables(),
            identity=program.input_identity,
            # The chief saves when all workers have written their positions.
            is_copied=request.config.async_checkpoints and worker_group.decides_alone,
        )


def _make_checkpoint_writer(
    training: OpenTraining, setup: Setup, position: InputPosition | None, events: EventWriter
) -> CheckpointWriter | None:
    """Makes the object that writes checkpoints; returns None if a hook saves them."""
    request, worker_group = training.request, training.worker_group
    collectives = worker_group.ops_of_save(setup.saver)
    copy = _build_copy(request, setup) if request.config.async_checkpoints else None
    if saver_hooks(request.hooks):
        if collectives:
            raise ValueError(
                "A CheckpointSaverHook saves in the chief alone, and some variables (moving "
                "statistics, say) are averaged over all workers when they are saved. Leave the "
                "hook out, and set `save_checkpoints_steps` of the RunConfig."
            )
        return None

    def save_on(session: tf.compat.v1.Session) -> bool:
        # Wait until all workers have saved their positions, so that no checkpoint lacks one.
        worker_group.meet(session)
        if collectives and not worker_group.is_chief:
            session.run(collectives)
        return worker_group.is_chief

    return CheckpointWriter(
        str(request.config.model_dir),
        setup.saver,
        position=position if worker_group.saves else None,
        listeners=[*request.listeners, SavesInEvents(events, training.program.graph)]
        if worker_group.is_chief
        else (),
        save_graph_def=request.config.checkpoint_save_graph_def,
        save_on=save_on,
        copy=copy,
    )


def _build_copy(request: TrainRequest, setup: Setup) -> CheckpointCopy:
    """Builds what copies checkpoints; raises ValueError if that cannot be done in this process."""
    if saver_hooks(request.hooks):
        raise ValueError(
            "`async_checkpoints` (True) has no effect on a CheckpointSaverHook, which saves by "
            "itself. Leave the hook out, and set `save_checkpoints_steps` of the RunConfig."
        )
    if request.connection.is_elsewhere:
        raise ValueError(
            f"`async_checkpoints` (True) copies variables in this process, and training runs in "
            f"another one, the server {request.connection.target}. Leave it out."
        )
    check_can_copy(setup.graph, setup.saver)
    return CheckpointCopy(setup.graph, setup.saver)


def _watch_saver_hooks(
    request: TrainRequest,
    position: InputPosition | None,
    weights: WeightsCheck,
    stack: contextlib.ExitStack,
) -> None:
    """Adds listeners to the hooks that save, until `stack` is closed.

    Each of them checks the weights. The first one also saves the position of the input, and calls
    the listeners of the request.
    """
    check = WeightsListener(weights)
    positions = [] if position is None else [position]
    for i, hook in enumerate(saver_hooks(request.hooks)):
        first, last = ([check, *positions], request.listeners) if i == 0 else ([check], [])
        stack.enter_context(_tf.listening(hook, first, last))
