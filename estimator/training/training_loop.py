"""The loops of one `train`: their lengths, what is due after each, and why they end."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

from estimator.checkpoint.writer import CheckpointWriter
from estimator.cluster.kv_store import KeyValueStore, StallDetector
from estimator.cluster.stop_policies import STOP_POLICIES, StopPolicy, stop_policy_name
from estimator.cluster.task_health import TaskHealth
from estimator.config.loop_length import parse_loop_length
from estimator.hooks.stock_hooks_in_loops import first_stop
from estimator.program.programs import TrainProgram
from estimator.session.hooked_session import HookedSession
from estimator.session.schedule import Schedule, loop_length
from estimator.session.signals import StopSignal
from estimator.session.worker_group import WorkerGroup
from estimator.summary.event_writer import EventWriter
from estimator.training.nan_guard import BadWeightsError, NanLossError, WeightsCheck
from estimator.training.profiler import ProfileWindow
from estimator.training.report import Span, TrainReport
from estimator.training.request import TrainRequest, TrainResult, warn_of_no_steps
from estimator.training.step_runner import Steps

_log = logging.getLogger("estimator")


class TrainRun:
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
        team: WorkerGroup,
    ) -> None:
        """Runs nothing yet.

        Args:
          program: what is trained.
          session: open, restored, with the hooks around its calls.
          request: when to stop, to save, to write and to log.
          checkpoints: saves; None if a hook does.
          events: of `model_dir`.
          weights: says whether they are finite.
          stop: the signal that came, if one did.
          team: the workers that train together.
        """
        config = request.config
        self._team = team
        self._model_dir = str(config.model_dir)
        self._request = request
        self._stop = stop
        self._weights = weights
        self._program = program
        self._session = session
        self._clock = request.clock
        self._steps = Steps(
            program,
            session,
            team.own_hooks(request.hooks),
            team,
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

    def run(
        self,
        is_input_resumed: bool,
        checkpoint: str | None,
        peers: TaskHealth,
        replaceable: TaskHealth,
    ) -> TrainResult:
        """Trains; `checkpoint` is the path of what was restored."""
        span = Span(self._first_step, self._max_step, checkpoint)
        request = self._request
        report = TrainReport(
            request.config, self._program, span, self._events, request.batch, request.batch_size
        )
        with report as self._report, self._profile:
            return self._run(is_input_resumed, peers, replaceable)

    def _run(
        self, is_input_resumed: bool, peers: TaskHealth, replaceable: TaskHealth
    ) -> TrainResult:
        reason = self._reason_not_to_begin(is_input_resumed)
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
        reason = self._end(reason, peers, replaceable)
        if self._team.is_chief:
            self._events.flush()
        self._report.end(self._step, self._loss, reason)
        return TrainResult(self._step, self._loss, reason, self._count_skipped())

    def _end(self, reason: str, peers: TaskHealth, replaceable: TaskHealth) -> str:
        """Parts from the others and saves; returns why training stopped after all."""
        reason = self._part(reason, replaceable)
        board = self._team.store
        if board is None or not board.is_chief:
            peers.release()  # The chief's are ps tasks, which it still needs.
        reason = self._finish(reason)
        patience_secs = self._ending(reason).patience_secs
        if board is not None and board.is_chief and patience_secs is not None:
            end = self._clock() + patience_secs
            self._wait_for_workers(board, replaceable, lambda: self._clock() >= end)
        peers.release()
        return reason

    def _ending(self, reason: str) -> StopPolicy:
        return STOP_POLICIES[stop_policy_name(reason, self._stop.received)]

    def _part(self, reason: str, replaceable: TaskHealth) -> str:
        """Tells the others that this worker stops; the chief waits for all, unless it hurries.

        Returns:
          Why it stops: a signal may have come meanwhile.
        """
        session, board = self._session.session, self._team.store
        self._team.meet(session)
        if board is None:
            return reason
        ending = self._ending(reason)
        if ending.is_told_by(board.is_chief):
            board.say_stop(session, stop_policy_name(reason, self._stop.received))
        board.say_done(session)
        if board.is_chief:
            if ending.patience_secs is None:
                self._wait_for_workers(board, replaceable, lambda: self._is_signalled(board))
                if self._stop.received is not None:
                    return self._part("signal", replaceable)
            self._step = self._read_step()
        return reason

    def _is_signalled(self, board: KeyValueStore) -> bool:
        """Whether a signal came here, or to a ps task."""
        told = board.stop_reason(board.stop.read(self._session.session))
        if self._stop.received is None and told is not None and STOP_POLICIES[told].exit_status:
            self._stop.received = signal.Signals[told]
        return self._stop.received is not None

    def _wait_for_workers(
        self, board: KeyValueStore, replaceable: TaskHealth, is_enough: Callable[[], bool]
    ) -> None:
        still = StallDetector(self._read_step, self._clock)
        # Servers that go on without their workers do not tell that one is gone.
        is_lost = replaceable.is_gone if replaceable else lambda name: still.is_stalled()
        board.wait_for_workers(self._session.session, is_lost, is_enough)

    def _read_step(self) -> int:
        return int(self._session.session.run(self._program.current_step))

    def _found_no_batch(self, reason: str | None) -> bool:
        has_begun = self._steps.has_run or self._steps.num_waiting or self._step > self._first_step
        return reason == "end of input" and not has_begun

    def _finish(self, reason: str) -> str:
        """Saves the last step and ends the hooks; returns why training stopped after all.

        A state that is not finite is not saved, but all are told of the end.
        """
        try:
            if reason != "nan loss":
                self._check_weights()
        except BadWeightsError as error:
            reason = self._stop_on_nan(str(error))
        is_saved = reason != "nan loss"
        if self._checkpoints is not None:
            if self._steps.has_run and self._step == self._first_step:
                self._checkpoints.note_change()  # By steps that nobody counted.
            if is_saved and (reason == "end of input" or not self._team.has_more):
                self._checkpoints.forget_position()
            self._checkpoints.end(self._session.session, self._step, is_saved=is_saved)
        self._session.end(unsaved_step=None if is_saved else self._step)
        return reason

    def _reason_not_to_begin(self, is_input_resumed: bool) -> str | None:
        """Why no step is made; in a cluster all find the same, for they have the chief's step."""
        max_steps = self._request.max_steps
        if max_steps is not None and self._step >= max_steps:
            if self._team.is_chief:
                warn_of_no_steps(self._step, max_steps)
            return "max_steps"
        return None if self._has_input(is_input_resumed) else "end of input"

    def _has_input(self, is_resumed: bool) -> bool:
        """Whether all workers have input for the first step; one finds out by running it."""
        news = self._program.has_first_batch
        session = self._session.session
        has_input = news is None or is_resumed or bool(session.run(news))
        return bool(self._team.meet(session, int(has_input)))

    def _reason_to_stop(self) -> str | None:
        """Why this worker stops; what it alone knows of, it tells the others and goes on."""
        reasons = []
        if self._stop.received is not None:
            reasons.append(self._stop.received.name)
        if self._session.should_stop:
            reasons.append("hook")
        if self._max_time_secs is not None and self._elapsed() >= self._max_time_secs:
            reasons.append("max_time")
        is_at_end = self._max_step is not None and self._step >= self._max_step
        if reasons and self._team.is_one and not (is_at_end and reasons[0] == "max_time"):
            return "signal" if reasons[0].startswith("SIG") else reasons[0]
        for reason in reasons:
            self._team.request(reason)
        return self._limit if is_at_end else None

    def _agreed_reason(self) -> str | None:
        """Why all workers stop after the last call."""
        agreed = self._team.stop
        if agreed is not None and agreed.startswith("SIG"):
            # Each ends as the one does that the signal came to.
            self._stop.received = signal.Signals[agreed]
            return "signal"
        return agreed or (None if self._team.has_more else self._complete())

    def _complete(self) -> str:
        """At the end of the input: takes the step of the batches that do not make a whole one."""
        self._steps.complete()
        self._loss, self._step = self._steps.loss, self._steps.step
        return "end of input"

    def _elapsed(self) -> float:
        return self._clock() - self._started_at

    def _run_finite_loop(self) -> str | None:
        try:
            return self._run_loop()
        except BadWeightsError as error:  # Our own save or that of a hook did not come about.
            self._step = self._read_step()
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
        is_recording = self._is_recording_due(before, before + num_steps)
        summary = self._call(num_steps, is_recording)
        if self._steps.is_nan:
            step = self._steps.step_of_loss()
            return self._stop_on_nan(f"The loss of step {step} is {self._loss}")
        agreed = self._complete() if self._steps.is_cut else self._agreed_reason()
        if agreed is not None and self._step == before:
            return agreed  # Nobody began the loop, or the input ended within its first step.
        self._steps.check_ends(before, num_steps)
        if self._team.is_chief:
            # The step that was to be recorded is not made if the input ends before it, or if
            # another worker's hooks cut the loop.
            is_whole = before == 0 or (self._team.is_one and not self._steps.is_cut)
            is_due = (is_whole and self._step > before) or self._step == before + num_steps
            if before == self._first_step and self._summaries.next_step(before) is not None:
                self._events.write_start(before + 1)
            if is_recording and is_due:
                self._write_summaries(summary)
            self._report.advance(self._step, self._loss)
            if self._logs.is_due(before, self._step):
                self._report.tell(self._step, self._loss)
                self._count_skipped()
        if self._steps.is_cut:
            return agreed  # Training ends, and then saves.
        return self._save_if_due(before) or agreed

    def _is_recording_due(self, before: int, after: int) -> bool:
        """Whether the call from `before` to `after` records: so does the first one of all."""
        is_first = before == 0 and self._summaries.next_step(before) is not None
        return is_first or self._summaries.is_due(before, after)

    def _save_if_due(self, before: int) -> str | None:
        if self._checkpoints is None or not self._is_save_due(before):
            return None
        self._check_weights()
        if not self._team.has_more:
            self._checkpoints.forget_position()  # It would be that of the end.
        is_asked_to_stop = self._checkpoints.save(self._session.session, self._step)
        self._session.ask_to_stop(self._step)
        if is_asked_to_stop and not self._team.is_one:
            self._team.request("listener")
            return None
        return "listener" if is_asked_to_stop else None

    def _is_save_due(self, before: int) -> bool:
        """Whether to save now; when the clock decides, it is the chief's, and all are told."""
        if not self._saves.is_by_clock or self._team.is_one:
            return self._saves.is_due(before, self._step)
        if self._team.is_chief and self._saves.is_due(before, self._step):
            self._team.request("save")
        return "save" in self._team.agreed

    def _check_weights(self) -> None:
        if self._nan_policy != "ignore":
            self._weights.check(self._session.session, self._step)

    def _call(self, num_steps: int, is_recording: bool) -> bytes | None:
        """Runs a loop and takes in how it went; returns the summaries of its last step."""
        try:
            with self._profile.call(self._step, num_steps):
                return self._steps.run(num_steps, is_recording, self._max_step)
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

    def _write_summaries(self, summary: bytes | None) -> None:
        self._events.write_scalars({"loss": self._loss or 0.0}, self._step)
        if summary:
            self._events.write_summary(summary, self._step)
