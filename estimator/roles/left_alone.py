"""Detects that a restarted task has nothing to do: training and the other tasks have ended."""

from __future__ import annotations

import contextlib

from estimator.cluster.server import chief_address
from estimator.cluster.task_health import TaskHealth
from estimator.config.run_config import RunConfig
from estimator.runtime.strategy import make_training_runtime
from estimator.session.signals import stop_signals
from estimator.training.end_record import (
    CHIEF_ANSWERS_SECS,
    is_training_over,
    warn_of_absent_tasks,
)

# Longer than for the chief, because a worker that cannot read `model_dir` needs the chief to learn
# that nothing is left to train.
_OTHERS_ANSWER_SECS = 300.0


def is_left_alone(config: RunConfig, max_steps: int | None) -> bool:
    """Returns whether nothing is left to train, and the tasks that this one needs do not answer.

    A task may be killed while the others end. When Kubernetes, say, restarts it, it must end, too,
    instead of waiting `session_creation_timeout_secs` for tasks that do not come back.

    Args:
      config: this task's config.
      max_steps: the step at which training ends, or None.

    Raises:
      KeyboardInterrupt, SystemExit: a signal was received.
    """
    if config.cluster.is_alone or not is_training_over(config, max_steps):
        return False
    if config.is_chief:
        # Connecting starts the server, which the others look for.
        others, secs = make_training_runtime(config).connect().needed, _OTHERS_ANSWER_SECS
    else:
        others, secs = chief_address(config.cluster), CHIEF_ANSWERS_SECS
    health = TaskHealth(others, config.peer_timeout_secs)
    with contextlib.closing(health), stop_signals() as stop:
        try:
            health.wait(min(secs, config.session_creation_timeout_secs), stop.end_process)
        except TimeoutError:
            warn_of_absent_tasks(", ".join(others))
            return True
    return False
