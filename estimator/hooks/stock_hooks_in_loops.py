"""Makes TensorFlow's own hooks act on the same steps in loops of any length.

These hooks assume that a session call is one step. Those that count steps are told on which step a
call ends, and loops end where they are due.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.session.hooked_session import Hook

_train = tf.compat.v1.train

# A LoggingTensorHook for every step would make every loop one step long; instead it sees the last
# step of each loop.
_CUT_LOOPS = (
    _train.CheckpointSaverHook,
    _train.ProfilerHook,
    _train.StepCounterHook,
    _train.SummarySaverHook,
)


def saver_hooks(hooks: Sequence[Hook]) -> list[tf.compat.v1.train.CheckpointSaverHook]:
    """Returns the hooks that save checkpoints."""
    return [hook for hook in hooks if isinstance(hook, _train.CheckpointSaverHook)]


def first_stop(hooks: Sequence[Hook]) -> int | None:
    """Returns the first step at which a StopAtStepHook stops; None if there is none."""
    return min(_last_steps(filter(_tf.stops_at_last_step, _stop_hooks(hooks))), default=None)


def describe_stops(hooks: Sequence[Hook]) -> str:
    """Describes when StopAtStepHooks stop; "none" if there is none."""
    stops = map(_tf.planned_stop, filter(_tf.stops_at_last_step, _stop_hooks(hooks)))
    return ", ".join(sorted(stops)) or "none"


def _stop_hooks(hooks: Sequence[Hook]) -> list[tf.compat.v1.train.StopAtStepHook]:
    return [hook for hook in hooks if isinstance(hook, _train.StopAtStepHook)]


def _last_steps(hooks: Iterable[tf.compat.v1.train.StopAtStepHook]) -> list[int]:
    return [last for hook in hooks if (last := _tf.last_step_of(hook)) is not None]


class StockHookSchedule:
    """The schedule of TensorFlow's own hooks among some hooks, and what they must be told."""

    def __init__(self, hooks: Sequence[Hook], first_step: int) -> None:
        """Sorts the hooks by kind.

        Args:
          hooks: any hooks.
          first_step: the global step that training starts from.
        """
        self._cutting = [hook for hook in hooks if isinstance(hook, _CUT_LOOPS)]
        counting = (*_CUT_LOOPS, _train.LoggingTensorHook)
        # Those with an `after_run` of their own, which may call TensorFlow's.
        self._deciding = [hook for hook in _stop_hooks(hooks) if not _tf.stops_at_last_step(hook)]
        self._others = [hook for hook in hooks if not isinstance(hook, counting)]
        self._hooks = hooks
        self._first_step = first_step

    def of_call(self, is_end_of_step: bool) -> Sequence[Hook]:
        """Returns the hooks for a session call; those that count steps see whole steps only."""
        return self._hooks if is_end_of_step else self._others

    def next_step(self, step: int) -> int | None:
        """Returns the next step that a hook waits for; None if there is none."""
        timers = [timer for hook in self._cutting if (timer := _tf.step_timer(hook)) is not None]
        # Before its first call, a hook has no step to count from, and uses the end of that call.
        due = [1 if last is None else last + every_steps for every_steps, last in timers]
        # TensorFlow's takes a call for one step, so the last step has a call of its own.
        lasts = _last_steps(self._deciding)
        due += [at for last in lasts for at in (last - 1, last) if at > step]
        return max(min(due), step + 1) if due else None

    def cut(self, step: int, expected: int) -> None:
        """Tells hooks that the input ended the last call at `step`, not at the expected step."""
        for hook in self._cutting:
            if isinstance(hook, _train.SummarySaverHook) and step != expected:
                _tf.forget_request(hook)

    def expect(self, step: int, num_steps: int) -> None:
        """Tells hooks that the next call continues from `step` by `num_steps`."""
        for hook in self._hooks:
            if isinstance(hook, _train.SummarySaverHook | _train.ProfilerHook):
                _tf.tell_next_step(hook, step + num_steps)
            elif isinstance(hook, _train.LoggingTensorHook):
                _tf.tell_steps_so_far(hook, step - self._first_step)
