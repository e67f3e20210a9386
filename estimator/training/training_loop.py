"""The training loop: how long each session call is, what is due after it, and when to stop."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from estimator.checkpoint.writer import CheckpointWriter
from estimator.session.schedule import HasNextStep, loop_length
from estimator.summary.event_writer import EventWriter
from estimator.training.joining import WatchedTasks
from estimator.training.nan_guard import BadWeightsError, stop_on_nan
from estimator.training.open_training import OpenTraining
from estimator.training.profiler import ProfileWindow
from estimator.training.recording import Loop, Recording
from estimator.training.report import Span
from estimator.training.request import TrainResult, warn_of_no_steps
from estimator.training.saving import Saving
from estimator.training.shutdown import Shutdown
from estimator.training.step_runner import StepRunner
from estimator.training.stop_reasons import StopReasons


class TrainRun:
    """Runs the loops of one session, until there is a reason to stop."""

    def __init__(
        self,
        training: OpenTraining,
        tasks: WatchedTasks,
        checkpoints: CheckpointWriter | None,
        events: EventWriter,
        stopping: StopReasons,
        restored: str | None,
        first_step: int | None,
    ) -> None:
        """Prepares the loops; runs no step.

        Args:
          training: the training run.
          tasks: the cluster's tasks that are watched.
          checkpoints: writes checkpoints; None if a hook does.
          events: writes the event file of `model_dir`.
          stopping: finds reasons to stop, of all sessions of the training.
          restored: the path of the checkpoint that training continues from; None if there is none.
          first_step: the global step; None if it is to be read from the session.
        """
        config = training.config
        self._training = training
        self._steps = StepRunner(training, first_step)
        self._first_step = self._steps.step
        self._stopping = stopping
        stopping.begin(self._first_step)
        self._saving = Saving(training, checkpoints)
        span = Span(self._first_step, stopping.max_step, restored)
        self._recording = Recording(training, self._steps, events, span)
        self._shutdown = Shutdown(training, self._steps, tasks)
        self._profile = ProfileWindow(
            config.profile_steps if config.is_chief else None, str(config.model_dir)
        )

    def run(self, is_input_resumed: bool) -> TrainResult:
        """Trains, saves the last step, and returns the result.

        Args:
          is_input_resumed: whether the input continues from its position at the checkpoint.
        """
        with self._recording.report, contextlib.closing(self._profile):
            reason = self._run_loops(is_input_resumed)
            reason = self._shutdown.begin(reason)
            self._stopping.is_ending = True
            reason = self._save_last(reason)
            result = self._recording.end(reason)
            self._shutdown.end(reason)  # May close the session.
            return result

    def _run_loops(self, is_input_resumed: bool) -> str:
        """Runs loops until there is a reason to stop."""
        session, program = self._training.session.session, self._training.program
        # Not where an earlier session of this training has taken the last batch.
        may_begin_again = is_input_resumed and self._first_step == self._stopping.first_step
        why_not = self._reason_not_to_begin(is_input_resumed)
        reason = self._training.worker_group.start_steps(session, why_not)
        reason = reason or self._stopping.agreed()
        while reason is None:
            reason = self._stopping.find(self._steps.step) or self._run_finite_loop()
            if self._found_no_batch(reason) and may_begin_again:
                # The previous run took the last batch, but stopped for another reason.
                session.run(program.input.initializer)
                reason, may_begin_again = None, False
        if self._found_no_batch(reason) and self._first_step == self._stopping.first_step:
            raise ValueError(
                "`input_fn` gave no batch for every replica: its dataset is empty, or smaller than "
                "one global batch. Check its files and filters, or drop_remainder. Or a hook has "
                "ended the training before the first step."
            )
        return reason

    def _reason_not_to_begin(self, is_input_resumed: bool) -> str | None:
        """Returns this worker's reason not to run any step, or None."""
        max_steps, step = self._training.request.max_steps, self._steps.step
        if max_steps is not None and step >= max_steps:
            if self._training.worker_group.is_chief:
                warn_of_no_steps(step, max_steps)
            return "max_steps"
        has_input = self._has_input(is_input_resumed)
        self._training.session.ask_to_stop(step)
        if self._training.session.should_stop:
            return "hook"
        return None if has_input else "end of input"

    def _has_input(self, is_resumed: bool) -> bool:
        """Returns whether this worker has input; without others, its first call tells."""
        has_first_batch = self._training.program.agreement.has_first_batch
        session = self._training.session.session
        return has_first_batch is None or is_resumed or bool(session.run(has_first_batch))

    def _found_no_batch(self, reason: str | None) -> bool:
        steps = self._steps
        has_begun = steps.has_run or steps.num_waiting or steps.step > self._first_step
        return reason == "end of input" and not has_begun

    def _run_finite_loop(self) -> str | None:
        try:
            return self._run_loop()
        except BadWeightsError as error:  # The library's or a hook's save was refused.
            self._steps.read_step()
            return self._stop_on_nan(str(error))

    def _run_loop(self) -> str | None:
        """Runs one loop and what is due after it; returns why to stop, or None to continue."""
        steps = self._steps
        loop = self._next_loop()
        with self._profile.call(loop.before, loop.num_steps):
            summary = self._run_steps(loop)
        if steps.is_nan:
            return self._stop_on_nan(f"The loss of step {steps.step_of_loss()} is {steps.loss}")
        agreed = self._agreed_reason()
        if agreed is not None and steps.step == loop.before:
            return agreed  # No worker started the loop, or the input ended in its first step.
        steps.check_ends(loop.before, loop.num_steps)
        self._recording.record(loop, summary)
        if steps.is_cut:
            return agreed  # Training ends, and saves at the end.
        return self._saving.save_if_due(loop.before, steps.step) or agreed

    def _run_steps(self, loop: Loop) -> bytes | None:
        """Runs a loop; returns the serialized summaries of its last step, if it recorded any.

        Raises:
          BadWeightsError: a step failed that ran after a loss that is not finite, as a summary or a
            check of the model's does if the weights are no longer finite.
        """
        try:
            return self._steps.run(loop.num_steps, loop.is_recording, self._stopping.max_step)
        except tf.errors.InvalidArgumentError:
            if self._training.program.runs_ahead:
                self._training.weights.check(self._training.session.session)
            raise

    def _next_loop(self) -> Loop:
        """Returns the next loop, which ends on the first step at which something is due."""
        step = self._steps.step
        schedules: list[HasNextStep] = [
            self._saving.schedule,
            self._recording.summaries,
            self._steps.stock_hooks,
            self._profile,
            *self._training.session.schedules(),
        ]
        num_steps = loop_length(step, self._steps.num_steps(), self._stopping.max_step, schedules)
        return Loop(step, num_steps, self._recording.is_due(step, step + num_steps))

    def _agreed_reason(self) -> str | None:
        """Returns why all workers stop after the last call, or None.

        At the end of the input, completes the last step.
        """
        if not self._steps.is_cut:
            reason = self._stopping.agreed()
            if reason is not None or self._training.worker_group.has_more:
                return reason
        self._steps.complete()
        return "end of input"

    def _save_last(self, reason: str) -> str:
        """Saves the last step and calls `end` of hooks and listeners; returns the final reason.

        If the weights are not finite, nothing is saved, and `end` is called nevertheless.
        """
        session = self._training.session
        if reason != "nan loss":  # A GPU may be a step ahead of that loss.
            self._steps.step = self._training.step_after_hooks(self._steps.step)
        step = self._steps.step
        try:
            if reason != "nan loss":
                self._training.weights.check(session.session)
        except BadWeightsError as error:
            reason = self._stop_on_nan(str(error))
        is_saved = reason != "nan loss"
        self._saving.end(
            step,
            is_saved=is_saved,
            is_uncounted=self._steps.has_run and step == self._first_step,
            is_input_over=reason == "end of input",
        )
        session.end(unsaved_step=None if is_saved else step)
        return reason

    def _stop_on_nan(self, what: str) -> str:
        return stop_on_nan(what, self._training.config.nan_policy)
