"""Writes summaries and reports progress while training runs; the chief does most of it."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from estimator.console import log
from estimator.session.schedule import Schedule
from estimator.summary.event_writer import EventWriter
from estimator.training.open_training import OpenTraining
from estimator.training.report import Span, TrainReport
from estimator.training.request import TrainResult
from estimator.training.step_runner import StepRunner


@dataclasses.dataclass(frozen=True)
class Loop:
    """The steps that one session call is asked to run.

    Attributes:
      before: the global step before the call.
      num_steps: the number of steps to run.
      is_recording: whether the last step is to record summaries.
    """

    before: int
    num_steps: int
    is_recording: bool


class Recording:
    """Writes summaries, reports progress, and counts skipped steps.

    Attributes:
      report: prints progress; must be entered around the loops.
      summaries: the schedule of summaries.
    """

    def __init__(
        self, training: OpenTraining, steps: StepRunner, events: EventWriter, span: Span
    ) -> None:
        """Creates the schedules and the report; `record` is the first to write.

        Args:
          training: the training run to record.
          steps: has the last step and its loss.
          events: writes the event file of `model_dir`.
          span: the steps of the training run.
        """
        config = training.config
        self._training = training
        self._steps = steps
        self._events = events
        self._first_step = span.first_step
        self._planned_step = span.first_step
        self._num_skipped = 0
        self.summaries = Schedule(config.save_summary_steps)
        self._logs = Schedule(config.log_step_count_steps)
        self.report = TrainReport(training, span, events)

    def is_due(self, before: int, after: int) -> bool:
        """Returns whether the call that is planned from `before` to `after` records.

        The first call of all, from step 0, always does, unless summaries are off. A call passes
        more steps than planned if other workers, or a second optimizer, advance the step, too, and
        fewer if another worker's hooks shorten its loop: a multiple that no call was planned to
        reach, or that one did not reach, is due in the next.
        """
        already_checked = min(self._planned_step, before)
        self._planned_step = after
        is_first = before == 0 and self.summaries.next_step(before) is not None
        return is_first or self.summaries.is_due(already_checked, after)

    def record(self, loop: Loop, summary: bytes | None) -> None:
        """Writes and reports what is due after a loop.

        Args:
          loop: the loop that has run.
          summary: the serialized summaries of its last step, if it recorded any.
        """
        worker_group, steps, before = self._training.worker_group, self._steps, loop.before
        if not worker_group.is_chief:
            return
        # The step to record has not run if the input ended before it, or if another worker's hooks
        # shortened the loop.
        is_whole = before == 0 or (worker_group.decides_alone and not steps.is_cut)
        is_made = (is_whole and steps.step > before) or steps.step >= before + loop.num_steps
        if before == self._first_step and self.summaries.next_step(before) is not None:
            self._events.write_start(before + 1)
        if loop.is_recording and is_made:
            if not _holds_loss(summary):
                self._events.write_scalars({"loss": steps.loss or 0.0}, steps.step)
            if summary:
                self._events.write_summary(summary, steps.step)
        self.report.advance(steps.step, steps.loss)
        if self._logs.is_due(before, steps.step):
            self.report.tell(steps.step, steps.loss)
            self._count_skipped()

    def end(self, reason: str) -> TrainResult:
        """Reports and returns how training ended."""
        step, loss = self._steps.step, self._steps.loss
        if self._training.worker_group.is_chief:
            self._events.flush()
        self.report.end(step, loss, reason)
        return TrainResult(step, loss, reason, self._count_skipped())

    def _count_skipped(self) -> int:
        """Returns how many steps of this run were skipped; warns if the count has grown."""
        if self._training.config.nan_policy != "skip":
            return 0
        session = self._training.session.session
        count = int(session.run(self._training.program.state.skipped_steps))
        if count > self._num_skipped:
            log.warning(
                "%d of the steps %d to %d were skipped: the loss or a weight was not finite.",
                count,
                self._first_step + 1,
                self._steps.step,
            )
        self._num_skipped = count
        return count


def _holds_loss(summary: bytes | None) -> bool:
    """Returns whether the model itself recorded the tag "loss", which then is the only one."""
    values = tf.compat.v1.Summary.FromString(summary or b"").value
    return any(value.tag == "loss" for value in values)
