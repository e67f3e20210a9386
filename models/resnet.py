"""ResNet-18 and ResNet-50 (He et al., 2015), in the form that is called v1.5.

Images of up to 64 pixels, such as digits, get the stem that is usual for small images: one 3x3
convolution, which keeps their size. Larger ones get the paper's 7x7 convolution and pooling. In
v1.5 the 3x3 convolution of a bottleneck halves the image; in v1 it was the 1x1 before it, which
skips three of four pixels.
"""

from typing import Any

import tensorflow as tf

import estimator as est
from models import classification, host_summaries, schedules

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # In each of the four stages.
LARGEST_SMALL_IMAGE = 64
DEFAULTS = {
    "depth": 18,
    "width": 64,
    "num_classes": 10,
    "learning_rate": 0.1,
    "warmup_steps": 100,
    "train_steps": 2000,
    "momentum": 0.9,
    "weight_decay": 1e-4,
    "norm_momentum": 0.9,
    "summary_dir": None,
    "summary_steps": 100,
}


def model_fn(
    features: dict[str, tf.Tensor], labels: tf.Tensor | None, mode: str, params: dict[str, Any]
) -> est.tpu.TPUEstimatorSpec:
    """Classifies images.

    Args:
      features: "image", float32 [batch, height, width, channels].
      labels: int32 [batch]; None in prediction.
      mode: an `est.ModeKeys`.
      params: any of `DEFAULTS`: "depth" is a key of `BLOCKS`, "width" the channels of the first
        stage, "learning_rate" the highest, and "summary_dir" a folder for a `host_call`.

    Returns:
      The spec; see `classification.build_spec` for its predictions and metrics.

    Raises:
      ValueError: "depth" is not a key of `BLOCKS`.
    """
    params = {**DEFAULTS, **params}
    logits = build_logits(features["image"], params, is_training=mode == est.ModeKeys.TRAIN)
    if mode != est.ModeKeys.TRAIN:
        return classification.build_spec(logits, labels, mode, params)

    step = tf.compat.v1.train.get_or_create_global_step()
    learning_rate = schedules.build_cosine(
        step,
        peak=params["learning_rate"],
        warmup_steps=params["warmup_steps"],
        train_steps=params["train_steps"],
    )
    host_call = host_summaries.make_host_call(
        params["summary_dir"], step, params["summary_steps"], learning_rate=learning_rate
    )
    loss = classification.build_smoothed_loss(labels, logits) + _build_penalty(params)
    optimizer = tf.compat.v1.train.MomentumOptimizer(
        learning_rate, params["momentum"], use_nesterov=True
    )
    updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        train_op = est.tpu.CrossShardOptimizer(optimizer).minimize(loss, global_step=step)
    return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, host_call=host_call)


def build_logits(images: tf.Tensor, params: dict[str, Any], is_training: bool) -> tf.Tensor:
    """Maps images [batch, height, width, channels] to logits [batch, classes]."""
    if params["depth"] not in BLOCKS:
        raise ValueError(
            f'`params["depth"]` ({params["depth"]}) must be {" or ".join(map(str, BLOCKS))}. '
            "For another depth, add its number of blocks in each stage to `resnet.BLOCKS`."
        )
    norm = Norm(params["norm_momentum"], is_training)
    build_block = _build_bottleneck if params["depth"] >= 50 else _build_basic_block
    outputs = _build_stem(images, params["width"], norm)
    for stage, num_blocks in enumerate(BLOCKS[params["depth"]]):
        filters = params["width"] * 2**stage
        for block in range(num_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            with tf.compat.v1.variable_scope(f"stage_{stage}/block_{block}"):
                outputs = build_block(outputs, filters, stride, norm)
    outputs = tf.reduce_mean(outputs, [1, 2])
    return classification.build_dense("logits", outputs, units=params["num_classes"])


def _build_stem(images: tf.Tensor, filters: int, norm: "Norm") -> tf.Tensor:
    if images.shape[1] <= LARGEST_SMALL_IMAGE:
        return tf.nn.relu(norm.build("stem_norm", _build_convolution("stem", images, filters, 3)))
    outputs = _build_convolution("stem", images, filters, 7, stride=2)
    outputs = tf.nn.relu(norm.build("stem_norm", outputs))
    return tf.nn.max_pool2d(outputs, ksize=3, strides=2, padding="SAME")


def _build_basic_block(inputs: tf.Tensor, filters: int, stride: int, norm: "Norm") -> tf.Tensor:
    """Builds two 3x3 convolutions and a shortcut: [b, h, w, c] to [b, h / s, w / s, filters]."""
    outputs = _build_convolution("convolution_1", inputs, filters, 3, stride)
    outputs = tf.nn.relu(norm.build("norm_1", outputs))
    outputs = _build_convolution("convolution_2", outputs, filters, 3)
    outputs = norm.build("norm_2", outputs, starts_at=0.0)
    return tf.nn.relu(outputs + _build_shortcut(inputs, filters, stride, norm))


def _build_bottleneck(inputs: tf.Tensor, filters: int, stride: int, norm: "Norm") -> tf.Tensor:
    """Builds 1x1, 3x3, 1x1 and a shortcut: [b, h, w, c] to [b, h / s, w / s, 4 * filters]."""
    outputs = _build_convolution("convolution_1", inputs, filters, 1)
    outputs = tf.nn.relu(norm.build("norm_1", outputs))
    outputs = _build_convolution("convolution_2", outputs, filters, 3, stride)
    outputs = tf.nn.relu(norm.build("norm_2", outputs))
    outputs = _build_convolution("convolution_3", outputs, 4 * filters, 1)
    outputs = norm.build("norm_3", outputs, starts_at=0.0)
    return tf.nn.relu(outputs + _build_shortcut(inputs, 4 * filters, stride, norm))


def _build_shortcut(inputs: tf.Tensor, filters: int, stride: int, norm: "Norm") -> tf.Tensor:
    """Returns the inputs, projected where the block changes their shape."""
    if stride == 1 and inputs.shape[-1] == filters:
        return inputs
    return norm.build("shortcut_norm", _build_convolution("shortcut", inputs, filters, 1, stride))


def _build_convolution(
    name: str, inputs: tf.Tensor, filters: int, size: int, stride: int = 1
) -> tf.Tensor:
    """Builds a convolution without a bias: the normalization after it has one."""
    with tf.compat.v1.variable_scope(name):
        kernel = tf.compat.v1.get_variable(
            "kernel",
            [size, size, inputs.shape[-1], filters],
            initializer=tf.compat.v1.initializers.he_normal(),
        )
    return tf.nn.conv2d(inputs, kernel, strides=stride, padding="SAME")


def _build_penalty(params: dict[str, Any]) -> tf.Tensor:
    """Builds L2 regularization: half the sum of the squared kernels, times the weight decay."""
    variables = tf.compat.v1.trainable_variables()
    kernels = [variable for variable in variables if variable.name.endswith("kernel:0")]
    return params["weight_decay"] * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])


class Norm:
    """Batch normalization, whose moving averages the training step updates."""

    def __init__(self, momentum: float, is_training: bool) -> None:
        """`momentum` is how much of a moving average a step keeps."""
        self._momentum = momentum
        self._is_training = is_training

    def build(self, name: str, inputs: tf.Tensor, starts_at: float = 1.0) -> tf.Tensor:
        """Normalizes each channel, with a scale that starts at `starts_at`.

        A block whose last scale starts at 0 starts as its shortcut, which helps the first steps.
        """
        with tf.compat.v1.variable_scope(name):
            scale = self._make_variable("scale", inputs, starts_at)
            offset = self._make_variable("offset", inputs, 0.0)
            mean = self._make_variable("moving_mean", inputs, 0.0, is_average=True)
            variance = self._make_variable("moving_variance", inputs, 1.0, is_average=True)
        if not self._is_training:
            return tf.nn.batch_normalization(inputs, mean, variance, offset, scale, 1e-5)
        outputs, batch_mean, batch_variance = tf.compat.v1.nn.fused_batch_norm(
            inputs, scale, offset, epsilon=1e-5
        )
        for average, value in ((mean, batch_mean), (variance, batch_variance)):
            update = average.assign_sub((1.0 - self._momentum) * (average - value))
            tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        return outputs

    def _make_variable(
        self, name: str, inputs: tf.Tensor, start: float, is_average: bool = False
    ) -> tf.Variable:
        # Each replica has averages of its own, of which a checkpoint holds the mean.
        sync = tf.VariableSynchronization
        return tf.compat.v1.get_variable(
            name,
            [inputs.shape[-1]],
            initializer=tf.constant_initializer(start),
            trainable=not is_average,
            synchronization=sync.ON_READ if is_average else sync.AUTO,
            aggregation=tf.VariableAggregation.MEAN if is_average else tf.VariableAggregation.NONE,
        )
