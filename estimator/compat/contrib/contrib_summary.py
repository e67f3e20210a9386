"""`tf.contrib.summary`: summaries with a step, for a `host_call`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
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
    """Writes a number; with a family, its tag is `family/scope/family/name`, as in TensorFlow 1."""
    return _write(tf.summary.scalar, name, family, tf.squeeze(tensor), _step(step))


def histogram(name: str, tensor: Any, family: str | None = None, step: Any = None) -> Any:
    """Writes a histogram."""
    return _write(tf.summary.histogram, name, family, tensor, _step(step))


def image(
    name: str, tensor: Any, max_images: int = 3, family: str | None = None, step: Any = None
) -> Any:
    """Writes images, of shape [number, height, width, channels]."""
    return _write(tf.summary.image, name, family, tensor, _step(step), max_images)


def audio(
    name: str,
    tensor: Any,
    sample_rate: Any,
    max_outputs: int,
    family: str | None = None,
    step: Any = None,
) -> Any:
    """Writes sounds, of shape [number, frames, channels]."""
    return _write(tf.summary.audio, name, family, tensor, sample_rate, _step(step), max_outputs)


def _write(write: Callable[..., Any], name: str, family: str | None, *values: Any) -> Any:
    """Writes a summary with the tag that TensorFlow 1 gives it in a family and a name scope."""
    if not family:
        return write(name, *values)
    tag = "/".join(filter(None, [family, tf.get_current_name_scope(), family, name]))
    with _V1.name_scope(None):
        return write(tag, *values)


def _step(step: Any) -> tf.Tensor:
    step = _V1.train.get_or_create_global_step() if step is None else step
    return tf.cast(tf.convert_to_tensor(step), tf.int64)
