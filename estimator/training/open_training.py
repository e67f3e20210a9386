"""A training run, as shared by the parts that start it, run its loops, and end it."""

from __future__ import annotations

import dataclasses

from estimator.cluster.worker_group import WorkerGroup
from estimator.config.run_config import RunConfig
from estimator.program.train_program import TrainProgram
from estimator.session.hooked_session import HookedSession
from estimator.session.signals import StopSignal
from estimator.training.nan_guard import WeightsCheck
from estimator.training.request import TrainRequest


@dataclasses.dataclass(frozen=True)
class OpenTraining:
    """A training run whose hooks have begun.

    Attributes:
      program: the program to train.
      session: calls the hooks around calls of the session that is opened next.
      request: what `train` was asked to do.
      worker_group: the workers that train together.
      stop: holds the signal that was received, if any.
      weights: checks that the weights are finite.
    """

    program: TrainProgram
    session: HookedSession
    request: TrainRequest
    worker_group: WorkerGroup
    stop: StopSignal
    weights: WeightsCheck

    @property
    def config(self) -> RunConfig:
        """The RunConfig of the request."""
        return self.request.config

    def read_step(self) -> int:
        """Reads the global step from the session."""
        return int(self.session.session.run(self.program.state.current_step))

    def step_after_hooks(self, step: int) -> int:
        """Returns the global step, which a hook may have set since the last call ended at `step`.

        What is saved then has the number that is in it. Other workers may advance the step at any
        time, or have to agree: there, it is `step`.
        """
        group = self.worker_group
        return self.read_step() if group.decides_alone and group.is_in_lockstep else step
