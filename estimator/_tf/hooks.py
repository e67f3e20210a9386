"""Private parts of TensorFlow's own hooks: their tensors, and how they count steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator._tf.patches import Patch, patched


def logging_hook_tensors(hook: tf.compat.v1.train.LoggingTensorHook) -> dict[str, Any]:
    """Returns the tensors of a LoggingTensorHook by tag, as the tag is logged (2.16 to 2.21).

    A hook that was given a list of tensors uses them as tags, but tensors of a loop's body cannot
    be looked up in a dict.
    """
    return {str(tag): tensor for tag, tensor in hook._tensors.items()}


def replace_logging_hook_tensors(
    hook: tf.compat.v1.train.LoggingTensorHook, tensors: dict[str, tf.Tensor]
) -> None:
    """Replaces some tensors of a LoggingTensorHook by tag, before its `begin` (2.16 to 2.21)."""
    hook._tensors = {**logging_hook_tensors(hook), **tensors}
    hook._tag_order = [str(tag) for tag in hook._tag_order]


def tell_steps_so_far(hook: tf.compat.v1.train.LoggingTensorHook, steps: int) -> None:
    """Sets the step count of a LoggingTensorHook, which counts session calls (2.16 to 2.21)."""
    hook._iter_count = steps


def summary_tensors(hook: tf.compat.v1.train.SummarySaverHook) -> list[tf.Tensor]:
    """Returns the serialized summaries that a SummarySaverHook writes (2.16 to 2.21)."""
    return hook._get_summary_op() or []


def set_summary_tensors(
    hook: tf.compat.v1.train.SummarySaverHook, tensors: list[tf.Tensor]
) -> None:
    """Replaces the summary tensors of a SummarySaverHook (2.16 to 2.21)."""
    hook._summary_op = tensors


def final_ops(hook: tf.compat.v1.train.FinalOpsHook) -> Any:
    """Returns the ops that a FinalOpsHook runs when training ends (2.16 to 2.21)."""
    return hook._final_ops


_AFTER_RUN = tf.compat.v1.train.StopAtStepHook.after_run


def last_step_of(hook: tf.compat.v1.train.StopAtStepHook) -> int | None:
    """Returns the step at which a StopAtStepHook stops; None before its session exists (2.16)."""
    return hook._last_step


def planned_stop(hook: tf.compat.v1.train.StopAtStepHook) -> str:
    """Describes at which step a StopAtStepHook stops, by its argument (2.16 to 2.21)."""
    if hook._num_steps is not None:
        return f"num_steps={hook._num_steps}"
    return f"last_step={hook._last_step}"


def stops_at_last_step(hook: tf.compat.v1.train.StopAtStepHook) -> bool:
    """Returns whether a StopAtStepHook decides as TensorFlow's does, and not by its own method."""
    return getattr(hook.after_run, "__func__", None) is _AFTER_RUN


def set_steps_per_run(hook: tf.compat.v1.train.SessionRunHook, steps: int) -> None:
    """Tells a stock hook that counts steps how many steps a session call runs (2.16 to 2.21)."""
    if hasattr(hook, "_set_steps_per_run"):
        hook._set_steps_per_run(steps)


def forget_request(hook: tf.compat.v1.train.SummarySaverHook) -> None:
    """Cancels a SummarySaverHook's request to write after the current session call (2.16)."""
    hook._request_summary = False


def step_timer(hook: tf.compat.v1.train.SessionRunHook) -> tuple[int, int | None] | None:
    """Returns a stock hook's interval in steps, and the step at which it last acted (2.16 to 2.21).

    None if its interval is not in steps; the step is None if it acts on the next call in any case.
    """
    timer: Any = getattr(hook, "_timer", None)
    every_steps = getattr(timer, "_every_steps", None)
    if every_steps is None:
        return None
    is_first_call = getattr(hook, "_next_step", 0) is None
    return every_steps, None if is_first_call else timer.last_triggered_step()


def tell_next_step(hook: tf.compat.v1.train.SessionRunHook, step: int) -> None:
    """Tells a stock hook which step the next session call ends on (2.16 to 2.21).

    SummarySaverHook and ProfilerHook assume that a call runs one step.
    """
    if getattr(hook, "_next_step", None) is not None:
        hook._next_step = step


def listeners_of(
    hook: tf.compat.v1.train.CheckpointSaverHook,
) -> Sequence[tf.compat.v1.train.CheckpointSaverListener]:
    """Returns the listeners of a CheckpointSaverHook (2.16 to 2.21)."""
    return hook._listeners


def listening(
    hook: tf.compat.v1.train.CheckpointSaverHook,
    first: Sequence[tf.compat.v1.train.CheckpointSaverListener],
    last: Sequence[tf.compat.v1.train.CheckpointSaverListener],
) -> Patch:
    """Inside, a CheckpointSaverHook has more listeners, before and after its own.

    The hook takes listeners only in its constructor, and may be used for another training later.
    2.16 to 2.21.
    """
    return patched(hook, "_listeners", lambda own: [*first, *own, *last])
