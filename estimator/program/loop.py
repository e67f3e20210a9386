"""Builds the library's only `tf.while_loop`: many train steps in one session call."""

from __future__ import annotations

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

    def should_go_on(step: tf.Tensor, loss: tf.Tensor, *has_more: tf.Tensor) -> tf.Tensor:
        more = tf.less(step, num_steps)
        for condition in has_more:
            more = tf.logical_and(more, condition)
        return tf.logical_and(more, tf.math.is_finite(loss)) if stop_on_nan else more

    def build_body(step: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, ...]:
        next_step = step + 1
        loss, has_more = build_step(tf.equal(next_step, num_steps))
        return (next_step, loss, has_more) if can_end else (next_step, loss)

    start = [tf.constant(0, tf.int32), tf.constant(0.0, tf.float32), tf.constant(True)]
    num_run, loss, *has_more = _tf.while_loop(
        should_go_on,
        build_body,
        start if can_end else start[:2],
        parallel_iterations=1,
        back_prop=False,
        name="train_loop",
        return_same_structure=True,
    )
    return num_run, loss, has_more[0] if can_end else None
