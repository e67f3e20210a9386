"""A training whose session is open: what all that goes on in it has in common."""

from __future__ import annotations

import dataclasses

from estimator.config.run_config import RunConfig
from estimator.program.train_program import TrainProgram
from estimator.session.hooked_session import HookedSession
from estimator.session.signals import StopSignal
from estimator.session.worker_group import WorkerGroup
from estimator.training.request import TrainRequest


@dataclasses.dataclass(frozen=True)
class OpenTraining:
    """A training whose session is open.

    Attributes:
      program: what is trained.
      session: restored, with the hooks around its calls.
      request: when to stop, to save, to write and to log.
      team: the workers that train together.
      stop: the signal that came, if one did.
    """

    program: TrainProgram
    session: HookedSession
    request: TrainRequest
    team: WorkerGroup
    stop: StopSignal

    @property
    def config(self) -> RunConfig:
        """The request's."""
        return self.request.config

    def read_step(self) -> int:
        """The global step, from the session."""
        return int(self.session.session.run(self.program.state.current_step))
