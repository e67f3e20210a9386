"""`tf.contrib.summary`: summaries with a step, for a `host_call`."""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


def always_record_summaries() -> contextlib.AbstractContextManager:
    """Records all summaries that are made inside the block."""
    return tf.summary.record_if(True)


def never_record_summaries() -> contextlib.AbstractContextManager:
    """Records no summaries inside the block."""
    return tf.summary.record_if(False)


def record_summaries_every_n_global_steps(
    n: int, global_step: Any = None
) -> contextlib.AbstractContextManager:
    """Records the summaries inside the block at steps that are multiples of `n`."""
    step = _step(global_step)
    return tf.summary.record_if(tf.equal(step % tf.cast(n, step.dtype), 0))


def scalar(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """Writes a number; its tag is the name, after that of the family."""
    return tf.summary.scalar(_tag(name, family), tf.squeeze(tensor), _step(step))


def histogram(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """Writes a histogram."""
    return tf.summary.histogram(_tag(name, family), tensor, _step(step))


def image(
    name: str, tensor: Any, max_images: int = 3, family: str | None = None, step: Any = None
) -> Any:
    """Writes images, of shape [number, height, width, channels]."""
    return tf.summary.image(_tag(name, family), tensor, _step(step), max_images)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int,
    family: str | None = None,
    step: Any = None,
) -> Any:
    """Writes sounds, of shape [number, frames, channels]."""
    return tf.summary.audio(_tag(name, family), tensor, sample_rate, _step(step), max_outputs)


def _tag(name: str, family: str | None) -> str:
    return f"{family}/{name}" if family else name


def _step(step: Any) -> tf.Tensor:
    step = _V1.train.get_or_create_global_step() if step is None else step
    return tf.cast(tf.convert_to_tensor(step), tf.int64)
