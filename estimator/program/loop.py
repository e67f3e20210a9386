"""Builds the library's only `tf.while_loop`: many train steps in one session call."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

from estimator import _tf


def build_loop(
    build_step: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]],
    num_steps: tf.Tensor,
    stop_on_nan: bool,
    can_end: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Runs a train step `num_steps` times, or until its loss is not finite.

    A step starts after the previous one has ended on every device: with `parallel_iterations=1`,
    and each loss depending on everything that its step does, two steps never touch the variables at
    the same time, and an input that ends leaves only whole steps.

    On a GPU, a bool is in the device's memory and an int32 in the host's. So whether to go on is an
    int32: as a bool, it would be copied to the device and back in every step.

    Args:
      build_step: builds one step in the loop's body. It is called with whether this is the loop's
        last step (scalar, bool). It returns the step's loss (scalar, float32), which depends on
        everything that the step does, and whether another step may follow (scalar, bool).
      num_steps: scalar, int32; fed, so that one graph runs loops of any length.
      stop_on_nan: whether to end the loop after a step whose loss is not finite.
      can_end: whether to end the loop after a step that says that no other may follow.

    Returns:
      The number of steps run (scalar, int32), the loss of the last one (scalar, float32), and
      whether another may follow (scalar, bool; None unless `can_end`).
    """

    def build_body(step: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        next_step = step + 1
        with tf.device("/cpu:0"):
            is_last = tf.equal(next_step, num_steps)
        loss, has_more = build_step(is_last)
        with tf.device("/cpu:0"):
            conditions = [has_more] if can_end else []
            conditions += [tf.math.is_finite(loss)] if stop_on_nan else []
            goes_on = functools.reduce(tf.logical_and, conditions, tf.constant(True))
            end = tf.where(goes_on, num_steps, next_step)
            more = [tf.cast(has_more, tf.int32)] if can_end else []
        return next_step, end, loss, *more

    start = [tf.constant(0), num_steps, tf.constant(0.0), tf.constant(1)]
    num_run, _, loss, *more = _tf.while_loop(
        lambda step, end, *_: tf.less(step, end),
        build_body,
        start if can_end else start[:3],
        parallel_iterations=1,
        back_prop=False,
        name="train_loop",
        return_same_structure=True,
    )
    with tf.device("/cpu:0"):
        return num_run, loss, tf.cast(more[0], tf.bool) if can_end else None
