"""Summaries written by a `host_call`: on a TPU, only the host can write files."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def make_host_call(
    folder: str | None, step: tf.Tensor, every_steps: int, **scalars: tf.Tensor
) -> tuple[Callable[..., Any], dict[str, tf.Tensor]] | None:
    """Makes a `host_call` that writes scalars to `folder`, every so many steps.

    The host gets the tensors of all replicas concatenated, so each needs a first dimension. What is
    written is their mean. Call it before the update is built, which changes the step.

    Returns:
      What a `TPUEstimatorSpec` takes as `host_call`; None without a folder.
    """
    if not folder:
        return None

    def host_fn(step: tf.Tensor, **scalars: tf.Tensor) -> Any:
        writer = tf.summary.create_file_writer(folder)
        is_due = tf.equal(step[0] % every_steps, 0)
        with writer.as_default(step=step[0]), tf.summary.record_if(is_due):
            for name, values in scalars.items():
                tf.summary.scalar(name, tf.reduce_mean(values))
        return tf.compat.v1.summary.all_v2_summary_ops()

    tensors = {"step": step, **scalars}
    return host_fn, {name: tf.reshape(tensor, [1]) for name, tensor in tensors.items()}
