"""Decides when training saves a checkpoint, and checks the weights before it."""

from __future__ import annotations

from estimator.checkpoint.writer import CheckpointWriter
from estimator.config.run_config import RunConfig
from estimator.session.schedule import Schedule
from estimator.training.open_training import OpenTraining


def saves_on_the_way(config: RunConfig) -> bool:
    """Returns whether checkpoints are saved before the end of training, too."""
    return config.save_checkpoints_steps is not None or config.save_checkpoints_secs is not None


def saves_start(training: OpenTraining) -> bool:
    """Returns whether a new training is saved before its first step."""
    return training.worker_group.saves and saves_on_the_way(training.config)


class Saving:
    """Saves checkpoints on schedule and at the end.

    Attributes:
      schedule: when checkpoints are due.
    """

    def __init__(self, training: OpenTraining, checkpoints: CheckpointWriter | None) -> None:
        """Starts the schedule of checkpoints.

        Args:
          training: the training run to save.
          checkpoints: writes checkpoints; None if a hook does.
        """
        config = training.config
        self._training = training
        self._worker_group = training.worker_group
        self._session, self._weights = training.session, training.weights
        self._checkpoints = checkpoints
        self.schedule = Schedule()
        if checkpoints is not None:
            self.schedule = Schedule(
                config.save_checkpoints_steps, config.save_checkpoints_secs, training.request.clock
            )

    def save_if_due(self, before: int, step: int) -> str | None:
        """Saves if a checkpoint is due between the steps `before` and `step`.

        Finishes the save before it, if that was written in a thread and is whole by now.

        Returns:
          "listener" if a listener asks to stop; else None.

        Raises:
          BadWeightsError: some weights are not finite; nothing is saved.
        """
        checkpoints = self._checkpoints
        if checkpoints is None:
            return None
        is_due, session = self._is_due(before, step), self._session.session
        if not is_due and not checkpoints.is_finished:
            return None
        is_asked_to_stop = checkpoints.is_finished and checkpoints.finish(session)
        if is_due:
            step = self._training.step_after_hooks(step)
            self._weights.check(session)
            if not self._worker_group.has_more:
                checkpoints.forget_position()  # The input has ended; nothing is left to resume.
            is_asked_to_stop = checkpoints.save(session, step) or is_asked_to_stop
        self._session.ask_to_stop(step)
        if is_asked_to_stop and not self._worker_group.decides_alone:
            self._worker_group.request("listener")
            return None
        return "listener" if is_asked_to_stop else None

    def _is_due(self, before: int, step: int) -> bool:
        """Returns whether to save now; if that depends on time, the chief's clock decides."""
        if not self.schedule.is_by_clock or self._worker_group.decides_alone:
            return self.schedule.is_due(before, step)
        if self._worker_group.is_chief and self.schedule.is_due(before, step):
            self._worker_group.request("save")
        return "save" in self._worker_group.agreed

    def end(self, step: int, *, is_saved: bool, is_uncounted: bool, is_input_over: bool) -> None:
        """Saves the last step, and calls `end` of the listeners.

        Args:
          step: the last step.
          is_saved: whether to save it: False if the weights or the loss are not finite.
          is_uncounted: whether steps have run without advancing the global step.
          is_input_over: whether the input has ended, so that there is no position to resume from.
        """
        if self._checkpoints is None:
            return
        if is_uncounted:
            self._checkpoints.note_change()
        if is_saved and (is_input_over or not self._worker_group.has_more):
            self._checkpoints.forget_position()
        self._checkpoints.end(self._session.session, step, is_saved=is_saved)
