"""The only `tf.while_loop` of the library: many train steps in one session call."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from estimator import _tf


def build_loop(
    build_step: Callable[[tf.Tensor], tf.Tensor], num_steps: tf.Tensor, stop_on_nan: bool
) -> tf.Tensor:
    """Runs a train step `num_steps` times, or until its loss is not finite.

    One step starts when the one before has ended on every device: with `parallel_iterations=1`
    and each new loss depending on all that its step does, two steps never touch the variables at
    once, and an input that ends leaves whole steps only.

    Args:
      build_step: builds one step in the loop's body. It is given whether this is the loop's last
        step (scalar, bool) and returns the step's loss (scalar, float32), which depends on
        everything that the step does.
      num_steps: scalar, int32, at least 1. Fed, so one graph runs loops of any length.
      stop_on_nan: end the loop after a step whose loss is not finite.

    Returns:
      The loss of the last step that ran: scalar, float32.
    """

    def should_go_on(step: tf.Tensor, loss: tf.Tensor) -> tf.Tensor:
        more = tf.less(step, num_steps)
        return tf.logical_and(more, tf.math.is_finite(loss)) if stop_on_nan else more

    def build_body(step: tf.Tensor, loss: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        del loss  # Only the condition needs the loss of the step before.
        next_step = step + 1
        return next_step, build_step(tf.equal(next_step, num_steps))

    _, loss = _tf.while_loop(
        should_go_on,
        build_body,
        [tf.constant(0, tf.int32), tf.constant(0.0, tf.float32)],
        parallel_iterations=1,
        back_prop=False,
        name="train_loop",
        return_same_structure=True,
    )
    return loss
