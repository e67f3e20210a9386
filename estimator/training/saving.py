"""When a training saves, and that it saves nothing that is not finite."""

from __future__ import annotations

import dataclasses

from estimator.checkpoint.input_position import InputPosition
from estimator.checkpoint.writer import CheckpointWriter
from estimator.session.schedule import Schedule
from estimator.training.nan_guard import WeightsCheck
from estimator.training.open_training import OpenTraining


@dataclasses.dataclass(frozen=True)
class Savers:
    """What saves a training.

    Attributes:
      checkpoints: saves all of it; None if a hook does.
      position: saves where the input stands; None if that is not saved.
      weights: says whether they are finite.
    """

    checkpoints: CheckpointWriter | None
    position: InputPosition | None
    weights: WeightsCheck


class Saving:
    """Saves when it is due, and at the end.

    Attributes:
      schedule: when it is due.
    """

    def __init__(self, training: OpenTraining, savers: Savers) -> None:
        """Starts the interval between checkpoints.

        Args:
          training: what is saved.
          savers: save it.
        """
        config = training.config
        self._team = training.team
        self._session = training.session
        self._checkpoints = savers.checkpoints
        self._weights = None if config.nan_policy == "ignore" else savers.weights
        self.schedule = Schedule()
        if savers.checkpoints is not None:
            self.schedule = Schedule(
                config.save_checkpoints_steps, config.save_checkpoints_secs, training.request.clock
            )

    def save_if_due(self, before: int, step: int) -> str | None:
        """Saves if the steps from `before` to `step` make it due; returns why to stop after it.

        Raises:
          BadWeightsError: some weights are not finite, and are not saved.
        """
        if self._checkpoints is None or not self._is_due(before, step):
            return None
        self.check_weights(step)
        if not self._team.has_more:
            self._checkpoints.forget_position()  # It would be that of the end.
        is_asked_to_stop = self._checkpoints.save(self._session.session, step)
        self._session.ask_to_stop(step)
        if is_asked_to_stop and not self._team.is_one:
            self._team.request("listener")
            return None
        return "listener" if is_asked_to_stop else None

    def _is_due(self, before: int, step: int) -> bool:
        """Whether to save now; when the clock decides, it is the chief's, and all are told."""
        if not self.schedule.is_by_clock or self._team.is_one:
            return self.schedule.is_due(before, step)
        if self._team.is_chief and self.schedule.is_due(before, step):
            self._team.request("save")
        return "save" in self._team.agreed

    def check_weights(self, step: int) -> None:
        """Raises BadWeightsError unless all weights after `step` are finite, if that matters."""
        if self._weights is not None:
            self._weights.check(self._session.session, step)

    def end(self, step: int, *, is_saved: bool, is_uncounted: bool, is_input_over: bool) -> None:
        """Saves the last step, and tells listeners of the end.

        Args:
          step: the last one.
          is_saved: whether it is saved: a state that is not finite is not.
          is_uncounted: whether there were steps, and nobody counted them.
          is_input_over: whether the input has ended: there is no position to go on from.
        """
        if self._checkpoints is None:
            return
        if is_uncounted:
            self._checkpoints.note_change()
        if is_saved and (is_input_over or not self._team.has_more):
            self._checkpoints.forget_position()
        self._checkpoints.end(self._session.session, step, is_saved=is_saved)
