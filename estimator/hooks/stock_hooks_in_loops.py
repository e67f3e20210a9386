"""TensorFlow's own hooks in loops: they act on the same steps, whatever a loop's length.

They take a session call for one step. Those that count steps are told which step a call ends on,
and loops are cut where they are due.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from estimator import _tf
from estimator.session.hooked_session import Hook

_train = tf.compat.v1.train

# A LoggingTensorHook of every step would make every loop one step long: it sees the last step of
# the loops as they are.
_CUT_LOOPS = (
    _train.CheckpointSaverHook,
    _train.ProfilerHook,
    _train.StepCounterHook,
    _train.SummarySaverHook,
)


def saver_hooks(hooks: Sequence[Hook]) -> list[tf.compat.v1.train.CheckpointSaverHook]:
    """Those that save checkpoints."""
    return [hook for hook in hooks if isinstance(hook, _train.CheckpointSaverHook)]


def first_stop(hooks: Sequence[Hook]) -> int | None:
    """The first step at which a StopAtStepHook among them stops; None without one."""
    stops = [_tf.last_step_of(hook) for hook in hooks if isinstance(hook, _train.StopAtStepHook)]
    return min((stop for stop in stops if stop is not None), default=None)


class StockHookSchedule:
    """When the stock ones among some hooks are due, as a schedule, and what they must be told."""

    def __init__(self, hooks: Sequence[Hook], first_step: int) -> None:
        """Reads the hooks' timers from now on.

        Args:
          hooks: any.
          first_step: the global step that training starts from.
        """
        self._cutting = [hook for hook in hooks if isinstance(hook, _CUT_LOOPS)]
        counting = (*_CUT_LOOPS, _train.LoggingTensorHook)
        self._others = [hook for hook in hooks if not isinstance(hook, counting)]
        self._hooks = hooks
        self._first_step = first_step

    def of_call(self, is_end_of_step: bool) -> Sequence[Hook]:
        """The hooks that a session call is made with: those that count steps want whole ones."""
        return self._hooks if is_end_of_step else self._others

    def next_step(self, step: int) -> int | None:
        """The first step after `step` that one of them waits for; None if none does."""
        timers = [timer for hook in self._cutting if (timer := _tf.step_timer(hook)) is not None]
        # Before its first call a hook has no step to count from: it takes the end of that call.
        due = [1 if last is None else last + every_steps for every_steps, last in timers]
        return max(min(due), step + 1) if due else None

    def cut(self, step: int, expected: int) -> None:
        """Tells them that the last call has ended on `step`, with the input, not as expected."""
        for hook in self._cutting:
            if isinstance(hook, _train.SummarySaverHook) and step != expected:
                _tf.forget_request(hook)

    def expect(self, step: int, num_steps: int) -> None:
        """Tells them that the next call goes on from `step`, by `num_steps`."""
        for hook in self._hooks:
            if isinstance(hook, _train.SummarySaverHook | _train.ProfilerHook):
                _tf.tell_next_step(hook, step + num_steps)
            elif isinstance(hook, _train.LoggingTensorHook):
                _tf.tell_steps_so_far(hook, step - self._first_step)
