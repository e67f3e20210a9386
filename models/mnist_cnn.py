"""The CNN of the classic MNIST example: two convolutions, one hidden layer, dropout."""

from typing import Any

import tensorflow as tf

import estimator as est
from models import classification

NUM_CLASSES = 10
DROPOUT_RATE = 0.4


def model_fn(
    features: dict[str, tf.Tensor], labels: tf.Tensor | None, mode: str, params: dict[str, Any]
) -> est.tpu.TPUEstimatorSpec:
    """Classifies digits.

    Args:
      features: "image", float32 [batch, 28, 28, 1].
      labels: int32 [batch]; None in prediction.
      mode: an `est.ModeKeys`.
      params: "learning_rate", and what else `classification.build_spec` takes.

    Returns:
      The spec; see `classification.build_spec` for its predictions and metrics.
    """
    logits = build_logits(features["image"], is_training=mode == est.ModeKeys.TRAIN)
    return classification.build_spec(logits, labels, mode, params)


def build_logits(images: tf.Tensor, is_training: bool) -> tf.Tensor:
    """Maps images [batch, 28, 28, 1] to logits [batch, 10]."""
    outputs = _build_convolution("convolution_1", images, filters=32)
    outputs = _build_convolution("convolution_2", outputs, filters=64)
    outputs = tf.reshape(outputs, [-1, 7 * 7 * 64])
    outputs = tf.nn.relu(classification.build_dense("hidden", outputs, units=128))
    if is_training:
        outputs = tf.nn.dropout(outputs, rate=DROPOUT_RATE)
    return classification.build_dense("logits", outputs, units=NUM_CLASSES)


def _build_convolution(name: str, inputs: tf.Tensor, filters: int) -> tf.Tensor:
    """5x5 convolution, relu, largest of each 2x2: [b, h, w, c] to [b, h / 2, w / 2, filters]."""
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable("kernel", [5, 5, inputs.shape[-1], filters])
        bias = tf.compat.v1.get_variable("bias", [filters], initializer=tf.zeros_initializer())
    outputs = tf.nn.bias_add(tf.nn.conv2d(inputs, kernel, strides=1, padding="SAME"), bias)
    return tf.nn.max_pool2d(tf.nn.relu(outputs), ksize=2, strides=2, padding="SAME")
