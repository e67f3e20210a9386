"""Learning rates that warm up, because a high rate makes fresh weights diverge, then fall to 0."""

import math

import tensorflow as tf


def build_cosine(step: tf.Tensor, *, peak: float, warmup_steps: int, train_steps: int) -> tf.Tensor:
    """Builds a rate that rises linearly to its peak and falls to 0 at `train_steps` as a cosine."""
    progress = _build_progress(step, warmup_steps, train_steps)
    return peak * _build_warmup(step, warmup_steps) * 0.5 * (1.0 + tf.cos(math.pi * progress))


def build_linear(step: tf.Tensor, *, peak: float, warmup_steps: int, train_steps: int) -> tf.Tensor:
    """Builds a rate that rises linearly to its peak and falls linearly to 0 at `train_steps`."""
    progress = _build_progress(step, warmup_steps, train_steps)
    return peak * _build_warmup(step, warmup_steps) * (1.0 - progress)


def _build_warmup(step: tf.Tensor, warmup_steps: int) -> tf.Tensor:
    """Builds the part of the peak that the warm-up allows; the first step has more than 0."""
    return tf.minimum(1.0, tf.cast(step + 1, tf.float32) / max(warmup_steps, 1))


def _build_progress(step: tf.Tensor, warmup_steps: int, train_steps: int) -> tf.Tensor:
    """Builds how far training is between the end of the warm-up, 0, and its own end, 1."""
    passed = tf.cast(step - warmup_steps, tf.float32) / max(train_steps - warmup_steps, 1)
    return tf.clip_by_value(passed, 0.0, 1.0)
