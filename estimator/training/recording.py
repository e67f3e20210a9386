"""What is written and told of a training while its loops run, by the chief."""

from __future__ import annotations

import dataclasses
import logging

from estimator.session.schedule import Schedule
from estimator.summary.event_writer import EventWriter
from estimator.training.open_training import OpenTraining
from estimator.training.report import Span, TrainReport
from estimator.training.request import TrainResult
from estimator.training.step_runner import StepRunner

_log = logging.getLogger("estimator")


@dataclasses.dataclass(frozen=True)
class Loop:
    """The steps of a session call.

    Attributes:
      before: the global step before them.
      num_steps: how many were to run.
      is_recording: whether the last of them was to leave its summaries.
    """

    before: int
    num_steps: int
    is_recording: bool


class Recording:
    """Writes summaries, tells of the progress, and counts the steps that were skipped.

    Attributes:
      report: tells people; to be entered around the loops.
      summaries: the schedule of summaries.
    """

    def __init__(
        self, training: OpenTraining, steps: StepRunner, events: EventWriter, span: Span
    ) -> None:
        """Writes nothing yet.

        Args:
          training: what it is of.
          steps: knows the last step and its loss.
          events: of `model_dir`.
          span: of the steps.
        """
        request, config = training.request, training.config
        self._training = training
        self._steps = steps
        self._events = events
        self._first_step = span.first_step
        self._num_skipped = 0
        self.summaries = Schedule(config.save_summary_steps)
        self._logs = Schedule(config.log_step_count_steps)
        self.report = TrainReport(
            config, training.program, span, events, request.batch, request.batch_size
        )

    def is_due(self, before: int, after: int) -> bool:
        """Whether the call from `before` to `after` records: so does the first one of all."""
        is_first = before == 0 and self.summaries.next_step(before) is not None
        return is_first or self.summaries.is_due(before, after)

    def record(self, loop: Loop, summary: bytes | None) -> None:
        """Writes and tells what is due after a loop, which left `summary`."""
        team, steps, before = self._training.team, self._steps, loop.before
        if not team.is_chief:
            return
        # The step that was to be recorded is not made if the input ends before it, or if another
        # worker's hooks cut the loop.
        is_whole = before == 0 or (team.is_one and not steps.is_cut)
        is_made = (is_whole and steps.step > before) or steps.step == before + loop.num_steps
        if before == self._first_step and self.summaries.next_step(before) is not None:
            self._events.write_start(before + 1)
        if loop.is_recording and is_made:
            self._events.write_scalars({"loss": steps.loss or 0.0}, steps.step)
            if summary:
                self._events.write_summary(summary, steps.step)
        self.report.advance(steps.step, steps.loss)
        if self._logs.is_due(before, steps.step):
            self.report.tell(steps.step, steps.loss)
            self._count_skipped()

    def end(self, reason: str) -> TrainResult:
        """Tells how training ended."""
        step, loss = self._steps.step, self._steps.loss
        if self._training.team.is_chief:
            self._events.flush()
        self.report.end(step, loss, reason)
        return TrainResult(step, loss, reason, self._count_skipped())

    def _count_skipped(self) -> int:
        """How many steps of this run were skipped; says so if there are more than before."""
        if self._training.config.nan_policy != "skip":
            return 0
        session = self._training.session.session
        count = int(session.run(self._training.program.state.skipped_steps))
        if count > self._num_skipped:
            _log.warning(
                "%d of the steps %d to %d were skipped: the loss or a weight was not finite.",
                count,
                self._first_step + 1,
                self._steps.step,
            )
        self._num_skipped = count
        return count
