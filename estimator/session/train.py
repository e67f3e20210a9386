"""Runs a train program: loops of the right length, checkpoints, summaries, and why it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.old_model import OldModel
from estimator.checkpoint.position import (
    InputPosition,
    PositionListener,
    build_input_position,
    remove_positions,
)
from estimator.checkpoint.writer import CheckpointWriter, build_saver
from estimator.config.loop import parse_loop_length
from estimator.config.run_config import RunConfig
from estimator.graph.program import TrainProgram
from estimator.session.finite import (
    BadWeightsError,
    NanLossError,
    WeightsCheck,
    WeightsListener,
)
from estimator.session.hooks import Hook, HookedSession
from estimator.session.hooks_in_loops import first_stop, saver_hooks
from estimator.session.open import Setup, build_setup, opened
from estimator.session.profile import ProfileWindow
from estimator.session.report import Span, TrainReport
from estimator.session.schedule import Schedule, loop_length
from estimator.session.signals import StopSignal, stop_signals
from estimator.session.steps import Steps
from estimator.session.tpu import start_tpu
from estimator.summary.writer import EventWriter

_log = logging.getLogger("estimator")


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended.

    Attributes:
      global_step: the step that was reached.
      loss: of the last step that a session call reported; None if no step ran.
      reason: why it stopped: "max_steps", "steps", "max_time", "end of input", "hook", "listener",
        "nan loss" or "signal".
      skipped_steps: how many steps the `nan_policy` "skip" took back.
    """

    global_step: int
    loss: float | None
    reason: str
    skipped_steps: int = 0


@dataclasses.dataclass(frozen=True)
class TrainRequest:
    """What a call of `train` asks for.

    Attributes:
      config: when to save, to write and to log; `model_dir` is filled in.
      session_config: of the session.
      steps: this many more, or None.
      max_steps: stop at this global step, or None.
      hooks: the caller's and the model's.
      listeners: told of every checkpoint.
      is_same_input: whether the input is the one that the newest checkpoint's position is in.
      old_model: what to start from if there is no checkpoint, or None.
      batch: how many examples the replicas take at a time, in words, if the caller says.
      clock: seconds from any fixed moment.
    """

    config: RunConfig
    session_config: tf.compat.v1.ConfigProto
    steps: int | None
    max_steps: int | None
    hooks: Sequence[Hook]
    listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
    is_same_input: bool
    old_model: OldModel | None = None
    batch: str = ""
    clock: Callable[[], float] = time.monotonic


def run_train(program: TrainProgram, request: TrainRequest) -> TrainResult:
    """Opens a session, trains until something says stop, and saves the last step.

    Raises:
      tf.compat.v1.train.NanLossDuringTrainingError: the loss or a weight is not finite and the
        `nan_policy` is "raise", or "skip" and it was so before; that state is not saved.
      ValueError: the input had no batch at all, or the checkpoint or the old model does not fit.
      KeyboardInterrupt, SystemExit: a signal came; the last step is saved. See `stop_signals`.
    """
    config = request.config
    model_dir = str(config.model_dir)
    paths = files.checkpoints_newest_first(model_dir)
    setup = build_setup(
        program.graph,
        program.spec.scaffold,
        functools.partial(
            build_saver,
            keep_checkpoint_max=config.keep_checkpoint_max,
            keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        ),
        request.session_config,
        program.initializers,
        request.old_model,
        # A run may begin to accumulate.
        may_lack=program.window.variables if program.window is not None else (),
    )
    position = None
    if program.input.iterators and config.resume_input:
        with program.graph.as_default():
            position = build_input_position(program.input.iterators, program.input.initializer)
    checkpoints = _make_checkpoint_writer(request, setup, position)
    weights = WeightsCheck(program.graph)
    if (loop_steps := parse_loop_length(config.iterations_per_loop).steps) is not None:
        for hook in request.hooks:
            _tf.set_steps_per_run(hook, loop_steps)
    stand_ins = {id(inside): outside for inside, outside in program.stand_ins}
    graph = program.graph if config.checkpoint_save_graph_def else None
    events = EventWriter(model_dir, graph)
    with contextlib.ExitStack() as stack:
        _watch_saver_hooks(request, position, weights, stack)
        hooked = HookedSession(
            program.graph,
            request.hooks,
            stand_ins=None if program.num_steps is None else stand_ins,
            step=program.global_step,
        )
        if checkpoints is not None:
            with program.graph.as_default():
                checkpoints.begin()
        stop = stack.enter_context(stop_signals())
        target = start_tpu(program.strategy)
        target = config.master if target is None else target
        session, path = stack.enter_context(opened(setup, paths, target))
        # Not before: until the checkpoint has turned out to be this model's, nothing is touched.
        tf.io.gfile.makedirs(model_dir)
        if position is None or not request.is_same_input:
            remove_positions(model_dir)
        if path is not None and checkpoints is not None:
            checkpoints.go_on_from(path, paths)
        is_resumed = _start_input(session, program, position, model_dir, path)
        hooked.start(session, stack.enter_context(_coordinated(session)))
        run = _TrainRun(program, hooked, request, checkpoints, events, weights, stop)
        return run.run(is_resumed, path)


def _start_input(
    session: tf.compat.v1.Session,
    program: TrainProgram,
    position: InputPosition | None,
    model_dir: str,
    path: str | None,
) -> bool:
    """Starts the input; returns whether it goes on where it stood at the checkpoint `path`."""
    if program.input.initializer is not None:
        session.run(program.input.initializer)
    if path is None or position is None:
        return False
    return position.restore(session, model_dir, files.checkpoint_step(path) or 0)


@contextlib.contextmanager
def _coordinated(session: tf.compat.v1.Session) -> Iterator[tf.train.Coordinator]:
    """Runs the graph's queue runners, if an old input has some, around the block."""
    coordinator = tf.train.Coordinator()
    threads = tf.compat.v1.train.start_queue_runners(session, coordinator) if _has_queues() else []
    try:
        yield coordinator
    finally:
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)


def _has_queues() -> bool:
    return bool(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS))


def _make_checkpoint_writer(
    request: TrainRequest, setup: Setup, position: InputPosition | None
) -> CheckpointWriter | None:
    """None if one of the hooks saves checkpoints: then it is the one that does."""
    if saver_hooks(request.hooks):
        return None
    return CheckpointWriter(
        str(request.config.model_dir),
        setup.saver,
        position=position,
        listeners=request.listeners,
        save_graph_def=request.config.checkpoint_save_graph_def,
    )


def _watch_saver_hooks(
    request: TrainRequest,
    position: InputPosition | None,
    weights: WeightsCheck,
    stack: contextlib.ExitStack,
) -> None:
    """Until the stack ends: hooks that save do it as we do; the first tells our listeners."""
    checks = [] if request.config.nan_policy == "ignore" else [WeightsListener(weights)]
    positions = [PositionListener(position, str(request.config.model_dir))] if position else []
    for i, hook in enumerate(saver_hooks(request.hooks)):
        first, last = ([*checks, *positions], request.listeners) if i == 0 else (checks, [])
        stack.enter_context(_tf.listening(hook, first, last))


class _TrainRun:
    """The loops of one `train`, from the session's step to the reason to stop."""

    def __init__(
        self,
        program: TrainProgram,
        session: HookedSession,
        request: TrainRequest,
        checkpoints: CheckpointWriter | None,
        events: EventWriter,
        weights: WeightsCheck,
        stop: StopSignal,
    ) -> None:
        config = request.config
        self._request = request
        self._stop = stop
        self._weights = weights
        self._program = program
        self._session = session
        self._clock = request.clock
        self._steps = Steps(
            program,
            session,
            request.hooks,
            parse_loop_length(config.iterations_per_loop),
            stops_on_nan=config.nan_policy in ("raise", "stop"),
            clock=request.clock,
        )
        self._nan_policy = config.nan_policy
        self._checkpoints = checkpoints
        self._events = events
        self._saves = (
            Schedule()
            if checkpoints is None
            else Schedule(
                config.save_checkpoints_steps, config.save_checkpoints_secs, request.clock
            )
        )
        self._summaries = Schedule(config.save_summary_steps)
        self._logs = Schedule(config.log_step_count_steps)
        self._step = self._first_step = self._steps.step
        self._max_time_secs = config.max_time_secs
        self._started_at = self._clock()
        self._max_step, self._limit = self._end_of(request)
        self._loss: float | None = None
        self._skipped_steps = 0
        self._profile = ProfileWindow(
            config.profile_steps if config.is_chief else None, str(config.model_dir)
        )

    def _end_of(self, request: TrainRequest) -> tuple[int | None, str]:
        """The first step that something says to stop at, and its name."""
        ends: list[tuple[int, str]] = []
        if request.steps is not None:
            ends.append((self._step + request.steps, "steps"))
        if request.max_steps is not None:
            ends.append((request.max_steps, "max_steps"))
        if (stop_hook := first_stop(request.hooks)) is not None:
            ends.append((stop_hook, "hook"))
        return min(ends, key=lambda end: end[0], default=(None, "hook"))

    def run(self, is_input_resumed: bool, checkpoint: str | None) -> TrainResult:
        """Trains; `checkpoint` is the path of what was restored."""
        span = Span(self._first_step, self._max_step, checkpoint)
        report = TrainReport(
            self._request.config, self._program, span, self._events, self._request.batch
        )
        with report as self._report, self._profile:
            return self._run(is_input_resumed)

    def _run(self, is_input_resumed: bool) -> TrainResult:
        reason = None
        self._session.ask_to_stop(self._step)
        while reason is None:
            reason = self._reason_to_stop() or self._run_finite_loop()
            if self._found_no_batch(reason) and is_input_resumed:
                # The run before took the last batch and stopped for another reason.
                self._session.session.run(self._program.input.initializer)
                reason, is_input_resumed = None, False
        if self._found_no_batch(reason):
            raise ValueError(
                "`input_fn` gave no batch for every replica: its dataset is empty, or smaller than "
                "one global batch. Check its files and filters, or drop_remainder."
            )
        if reason != "nan loss":
            reason = self._finish(reason)
        self._events.flush()
        self._report.end(self._step, self._loss, reason)
        return TrainResult(self._step, self._loss, reason, self._count_skipped())

    def _found_no_batch(self, reason: str | None) -> bool:
        is_at_start = self._step == self._first_step and self._steps.num_waiting == 0
        return reason == "end of input" and is_at_start

    def _finish(self, reason: str) -> str:
        """Saves the last step and ends the hooks; returns why training stopped after all."""
        try:
            self._check_weights()
            if self._checkpoints is not None:
                if reason == "end of input":
                    self._checkpoints.forget_position()
                self._checkpoints.end(self._session.session, self._step)
            self._session.end()
        except BadWeightsError as error:
            return self._stop_on_nan(str(error))
        return reason

    def _reason_to_stop(self) -> str | None:
        if self._stop.received is not None:
            return "signal"
        if self._session.should_stop:
            return "hook"
        if self._max_step is not None and self._step >= self._max_step:
            return self._limit
        if self._max_time_secs is not None and self._elapsed() >= self._max_time_secs:
            return "max_time"
        return None

    def _elapsed(self) -> float:
        return self._clock() - self._started_at

    def _run_finite_loop(self) -> str | None:
        try:
            return self._run_loop()
        except BadWeightsError as error:  # Our own save or that of a hook did not come about.
            self._step = int(self._session.session.run(self._program.current_step))
            return self._stop_on_nan(str(error))

    def _run_loop(self) -> str | None:
        """Runs one loop and what is due after it; returns why to stop, None to go on."""
        num_steps = loop_length(
            self._step,
            self._steps.num_steps(),
            self._max_step,
            [
                self._saves,
                self._summaries,
                self._steps.stock_hooks,
                self._profile,
                *self._session.schedules(),
            ],
        )
        before = self._step
        is_recording = self._summaries.is_due(before, before + num_steps)
        try:
            summary = self._call(num_steps, is_recording)
        except tf.errors.OutOfRangeError:
            self._steps.complete()
            self._step = self._steps.step
            return "end of input"
        if self._steps.is_nan:
            step = self._steps.step_of_loss()
            return self._stop_on_nan(f"The loss of step {step} is {self._loss}")
        self._check_advanced(before)
        if is_recording:
            self._write_summaries(summary)
        self._report.advance(self._step, self._loss)
        if self._logs.is_due(before, self._step):
            self._report.tell(self._step, self._loss)
            self._count_skipped()
        return self._save_if_due(before)

    def _save_if_due(self, before: int) -> str | None:
        if self._checkpoints is None or not self._saves.is_due(before, self._step):
            return None
        self._check_weights()
        is_asked_to_stop = self._checkpoints.save(self._session.session, self._step)
        self._session.ask_to_stop(self._step)
        return "listener" if is_asked_to_stop else None

    def _check_weights(self) -> None:
        if self._nan_policy != "ignore":
            self._weights.check(self._session.session, self._step)

    def _call(self, num_steps: int, is_recording: bool) -> bytes | None:
        """Runs a loop and takes in how it went; returns the summaries of its last step."""
        try:
            with self._profile.call(self._step, num_steps):
                return self._steps.run(num_steps, is_recording)
        finally:
            self._loss, self._step = self._steps.loss, self._steps.step

    def _count_skipped(self) -> int:
        """How many steps of this run were skipped; says so if there are more than before."""
        if self._nan_policy != "skip":
            return 0
        count = int(self._session.session.run(self._program.skipped_steps))
        if count > self._skipped_steps:
            _log.warning(
                "%d of the steps %d to %d were skipped: the loss or a weight was not finite.",
                count,
                self._first_step + 1,
                self._step,
            )
        self._skipped_steps = count
        return count

    def _stop_on_nan(self, what: str) -> str:
        message = (
            f"{what}. The state after it is not saved: training resumes from the last checkpoint "
            "before it."
        )
        _log.error(message)
        if self._nan_policy == "stop":
            return "nan loss"
        raise NanLossError(message)

    def _check_advanced(self, before: int) -> None:
        if self._step == before:
            raise ValueError(
                f"The global step is still {before} after a run of `train_op`, so training would "
                "never end. Let `train_op` run the op that increments it."
            )

    def _write_summaries(self, summary: bytes | None) -> None:
        self._events.write_scalars({"loss": self._loss or 0.0}, self._step)
        if summary:
            self._events.write_summary(summary, self._step)
