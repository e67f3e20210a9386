"""The model of the classic distributed MNIST example: one hidden layer of 100."""

from typing import Any

import tensorflow as tf

import estimator as est
from models import classification

NUM_CLASSES = 10


def model_fn(
    features: dict[str, tf.Tensor], labels: tf.Tensor | None, mode: str, params: dict[str, Any]
) -> est.tpu.TPUEstimatorSpec:
    """Classifies digits; the arguments and the result are those of `mnist_cnn.model_fn`."""
    logits = build_logits(features["image"])
    return classification.build_spec(logits, labels, mode, params)


def build_logits(images: tf.Tensor) -> tf.Tensor:
    """Maps images [batch, 28, 28, 1] to logits [batch, 10]."""
    pixels = tf.reshape(images, [-1, 28 * 28])
    hidden = tf.nn.relu(classification.build_dense("hidden", pixels, units=100))
    return classification.build_dense("logits", hidden, units=NUM_CLASSES)
