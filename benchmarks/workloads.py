"""The three models, written once for every contender that is not Keras, and their input."""

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

LEARNING_RATE = 0.01
DROPOUT_RATE = 0.4
NUM_CLASSES = 10
NUM_EXAMPLES = 5000

# (name, shape, initializer) -> a variable: `get_variable`, or a hand-written store.
VariableGetter = Callable[[str, Sequence[int], Callable], tf.Variable]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and the size of its input.

    `forward(get, images, is_training)` gives the logits.
    """

    name: str
    image_shape: tuple[int, ...]
    batch_size: int
    forward: Callable[[VariableGetter, tf.Tensor, bool], tf.Tensor]


@functools.cache
def make_images_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Seeded noise of the size of MNIST: speed does not depend on the values."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(NUM_EXAMPLES, 784), dtype=np.uint8)
    labels = rng.integers(0, NUM_CLASSES, size=NUM_EXAMPLES, dtype=np.int32)
    return images, labels


def make_batches(workload: Workload, batch_size: int | None = None) -> tf.data.Dataset:
    """One pass over the examples, in batches of a fixed shape: `([B, *image], [B])`."""
    shape = (batch_size or workload.batch_size, *workload.image_shape)

    def scale(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reshape(tf.cast(images, tf.float32) / 255.0 - 0.5, shape), labels

    dataset = tf.data.Dataset.from_tensor_slices(make_images_and_labels())
    return dataset.batch(shape[0], drop_remainder=True).map(scale)


def make_training_input(workload: Workload, batch_size: int | None = None) -> tf.data.Dataset:
    """Endless batches from memory.

    Whole batches are cached, so that input costs little and what is left is the training loop.
    """
    return make_batches(workload, batch_size).cache().repeat().prefetch(4)


def make_few_batches(workload: Workload, batch_size: int, num_batches: int) -> tf.data.Dataset:
    """The first examples, ready-made: a data set that is cheap to make and to open."""
    images, labels = (array[: batch_size * num_batches] for array in make_images_and_labels())
    images = (images / np.float32(255.0) - np.float32(0.5)).reshape(-1, *workload.image_shape)
    return tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch_size)


def compute_loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The mean cross-entropy over a batch."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return tf.reduce_mean(losses)


def compute_predictions(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """What `predict` returns: the class and the probabilities of each example."""
    return {"class": tf.argmax(logits, axis=-1), "probabilities": tf.nn.softmax(logits)}


def _make_glorot(name: str) -> Callable:
    """Seeded by the name: every contender starts from the same weights."""
    seed = [zlib.crc32(name.encode()) & 0x7FFFFFFF, 0]

    def glorot(shape: Sequence[int], dtype: tf.DType = tf.float32) -> tf.Tensor:
        receptive_field = math.prod(shape[:-2])
        limit = math.sqrt(6.0 / (receptive_field * (shape[-2] + shape[-1])))
        return tf.random.stateless_uniform(shape, seed, -limit, limit, dtype)

    return glorot


def _zeros(shape: Sequence[int], dtype: tf.DType = tf.float32) -> tf.Tensor:
    return tf.zeros(shape, dtype)


def _dense(get: VariableGetter, name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    kernel = get(f"{name}_kernel", [inputs.shape[-1], units], _make_glorot(name))
    return tf.nn.bias_add(tf.matmul(inputs, kernel), get(f"{name}_bias", [units], _zeros))


def _conv_and_pool(get: VariableGetter, name: str, inputs: tf.Tensor, units: int) -> tf.Tensor:
    kernel = get(f"{name}_kernel", [5, 5, inputs.shape[-1], units], _make_glorot(name))
    outputs = tf.nn.conv2d(inputs, kernel, strides=1, padding="SAME")
    outputs = tf.nn.relu(tf.nn.bias_add(outputs, get(f"{name}_bias", [units], _zeros)))
    return tf.nn.max_pool2d(outputs, ksize=2, strides=2, padding="VALID")


def _logistic(get: VariableGetter, images: tf.Tensor, is_training: bool) -> tf.Tensor:
    del is_training
    return _dense(get, "logits", images, NUM_CLASSES)


def _mlp(get: VariableGetter, images: tf.Tensor, is_training: bool) -> tf.Tensor:
    del is_training
    hidden = tf.nn.relu(_dense(get, "hidden", images, 100))
    return _dense(get, "logits", hidden, NUM_CLASSES)


def _cnn(get: VariableGetter, images: tf.Tensor, is_training: bool) -> tf.Tensor:
    outputs = _conv_and_pool(get, "conv_1", images, 32)
    outputs = _conv_and_pool(get, "conv_2", outputs, 64)
    outputs = tf.reshape(outputs, [-1, 7 * 7 * 64])
    outputs = tf.nn.relu(_dense(get, "hidden", outputs, 128))
    if is_training:
        outputs = tf.nn.dropout(outputs, rate=DROPOUT_RATE)
    return _dense(get, "logits", outputs, NUM_CLASSES)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("logistic", (784,), batch_size=32, forward=_logistic),
        Workload("mlp", (784,), batch_size=100, forward=_mlp),
        Workload("cnn", (28, 28, 1), batch_size=64, forward=_cnn),
    )
}
