"""Programs as they stood on tf.estimator 2.15; `est` is what they import.

`make_tf_estimator_2_15.py` runs them with TensorFlow 2.15's, and the tests with this library.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

V1 = tf.compat.v1
HERE = pathlib.Path(__file__).parent / "tf_estimator_2_15"
NUM_STEPS, MORE_STEPS = 10, 5
BATCH_SIZE, NUM_EVAL_STEPS = 4, 5  # Of 18 examples: the last batch has 2.

_random = np.random.RandomState(7)
X = _random.randn(18, 3).astype(np.float32)
WORDS = _random.randint(6, size=18)
CLASSES = (X.sum(axis=1) > 0).astype(np.int64) + (X[:, 0] > 1)
TARGETS = (np.tanh(X @ [1.0, -2.0, 0.5]) + 0.1 * WORDS).astype(np.float32)[:, None]

# The old vocabulary is a file beside the checkpoints. In the new one some entries are new, some
# have moved and some are gone.
OLD_VOCABULARY = ("ape", "bear", "cat", "dog", "eel", "fox")
NEW_VOCABULARY = ("fox", "gnu", "ape", "hen", "cat")


def make_dataset(is_training: bool, batch_size: int = BATCH_SIZE) -> tf.data.Dataset:
    """(features, labels): in training without an end, else all examples once."""
    features = {"x": X, "word": np.array(OLD_VOCABULARY)[WORDS], "id": WORDS}
    labels = {"target": TARGETS, "class": CLASSES}
    data = tf.data.Dataset.from_tensor_slices((features, labels))
    return (data.repeat() if is_training else data).batch(batch_size)


def plain_input_fn(mode: str) -> tf.data.Dataset:
    return make_dataset(mode == "train")


def canned_input_fn(is_training: bool = False) -> tf.data.Dataset:
    """With the word's place in the old vocabulary as the class."""
    return make_dataset(is_training).map(lambda features, _: (features, features["id"]))


def tpu_input_fn(mode: str, params: dict[str, Any]) -> tf.data.Dataset:
    return make_dataset(mode == "train", params["batch_size"])


def make_adam(est: Any) -> Callable:
    """A regression with a partitioned embedding, a hidden layer, a decayed rate and Adam."""

    def model_fn(features, labels, mode, params):
        embedding = V1.get_variable(
            "embedding", [6, 2], partitioner=V1.fixed_size_partitioner(params["num_parts"])
        )
        words = tf.nn.embedding_lookup(embedding, features["id"])
        x = tf.concat([features["x"], words], axis=1)
        with V1.variable_scope("hidden"):
            kernel = V1.get_variable("kernel", [5, 4], initializer=V1.glorot_uniform_initializer())
            bias = V1.get_variable("bias", [4], initializer=V1.zeros_initializer())
            x = tf.nn.tanh(tf.matmul(x, kernel) + bias)
        with V1.variable_scope("output"):
            kernel = V1.get_variable("kernel", [4, 1], initializer=V1.glorot_uniform_initializer())
            y = tf.matmul(x, kernel)
        predictions = {"y": y}
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=predictions)
        loss = V1.losses.mean_squared_error(labels["target"], y)
        metrics = {"error": V1.metrics.mean_absolute_error(labels["target"], y)}
        if mode == est.ModeKeys.EVAL:
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
        step = V1.train.get_global_step()
        rate = V1.train.exponential_decay(0.05, step, 4, 0.9, staircase=True)
        train_op = V1.train.AdamOptimizer(rate).minimize(loss, global_step=step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def build_softmax(features: dict[str, tf.Tensor]) -> tf.Tensor:
    with V1.variable_scope("softmax"):
        kernel = V1.get_variable("kernel", [3, 3], initializer=V1.glorot_uniform_initializer())
        bias = V1.get_variable("bias", [3], initializer=V1.zeros_initializer())
    return tf.matmul(features["x"], kernel) + bias


def build_loss(logits: tf.Tensor, labels: dict[str, tf.Tensor]) -> tf.Tensor:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels["class"], logits=logits)
    return tf.reduce_mean(losses)


def make_sgd(est: Any) -> Callable:
    """A classifier with GradientDescent, for MirroredStrategy."""

    def model_fn(features, labels, mode):
        logits = build_softmax(features)
        predictions = {"logits": logits, "class": tf.argmax(logits, axis=1)}
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=predictions)
        loss = build_loss(logits, labels)
        accuracy = V1.metrics.accuracy(labels["class"], predictions["class"])
        if mode == est.ModeKeys.EVAL:
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        optimizer = V1.train.GradientDescentOptimizer(0.3)
        train_op = optimizer.minimize(loss, global_step=V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def make_tpu_momentum(est: Any) -> Callable:
    """A TPUEstimator's, with its CrossShardOptimizer taken out: it died without a TPU."""

    def metric_fn(labels, logits):
        return {"accuracy": V1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}

    def model_fn(features, labels, mode, params):
        assert params["batch_size"] == BATCH_SIZE
        logits = build_softmax(features)
        if mode == est.ModeKeys.PREDICT:
            return est.tpu.TPUEstimatorSpec(mode, predictions={"logits": logits})
        loss = build_loss(logits, labels)
        if mode == est.ModeKeys.EVAL:
            metrics = (metric_fn, [labels["class"], logits])
            return est.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
        optimizer = V1.train.MomentumOptimizer(0.2, 0.9)
        train_op = optimizer.minimize(loss, global_step=V1.train.get_global_step())
        return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def make_batch_norm(est: Any) -> Callable:
    """A classifier of tf.compat.v1.layers with batch normalization, and RMSProp."""

    def model_fn(features, labels, mode):
        is_training = mode == est.ModeKeys.TRAIN
        x = V1.layers.dense(features["x"], 4)
        x = V1.layers.batch_normalization(x, momentum=0.8, training=is_training)
        logits = V1.layers.dense(tf.nn.relu(x), 3, name="logits")
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions={"logits": logits})
        loss = build_loss(logits, labels)
        accuracy = V1.metrics.accuracy(labels["class"], tf.argmax(logits, axis=1))
        if mode == est.ModeKeys.EVAL:
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        optimizer = V1.train.RMSPropOptimizer(0.02, momentum=0.5)
        with tf.control_dependencies(V1.get_collection(V1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, global_step=V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def make_keras_layers(est: Any) -> Callable:
    """A classifier of layers and models of Keras that have no names, with Momentum."""
    keras = tf.keras
    layers = keras.layers

    class Block(keras.Model):
        def __init__(self):
            super().__init__()
            self.first = layers.Dense(4, activation="tanh")
            self.second = layers.Dense(4)
            self.norm = layers.BatchNormalization()

        def call(self, x, training=False):
            return x + self.norm(self.second(self.first(x)), training=training)

    def model_fn(features, labels, mode):
        dense = layers.Dense(3)
        x = layers.Dense(4)(dense(dense(features["x"])))
        grown = keras.Sequential([keras.Input([4])])
        for _ in range(3):
            grown.add(layers.Dense(4))
        x = grown(x)
        x = Block()(Block()(x))
        with tf.name_scope("tower"):
            x = keras.Sequential([layers.Dense(4, activation="tanh"), layers.Dense(4)])(x)
        taken = keras.Input([4])
        x = keras.Model(taken, layers.Dense(4, name="out")(Block()(taken)))(x)
        logits = layers.Dense(3, name="out")(x)
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions={"logits": logits})
        loss = build_loss(logits, labels)
        accuracy = V1.metrics.accuracy(labels["class"], tf.argmax(logits, axis=1))
        if mode == est.ModeKeys.EVAL:
            return est.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        optimizer = V1.train.MomentumOptimizer(0.05, 0.9)
        train_op = optimizer.minimize(loss, V1.train.get_global_step(), V1.trainable_variables())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


@dataclasses.dataclass(frozen=True)
class Program:
    """A model function and how it was run.

    Attributes:
      make_model_fn: takes what programs import as `est`.
      input_fn: for every mode.
      is_tpu: whether it is a TPUEstimator's.
      is_mirrored: whether it was trained under MirroredStrategy, over one device.
      params: for `model_fn`.
    """

    make_model_fn: Callable[[Any], Callable]
    input_fn: Callable = plain_input_fn
    is_tpu: bool = False
    is_mirrored: bool = False
    params: dict[str, Any] = dataclasses.field(default_factory=dict)


PROGRAMS = {
    "adam": Program(make_adam, params={"num_parts": 1}),
    "adam_partitioned": Program(make_adam, params={"num_parts": 3}),
    "mirrored_sgd": Program(make_sgd, is_mirrored=True),
    "tpu_momentum": Program(make_tpu_momentum, tpu_input_fn, is_tpu=True),
    "batch_norm": Program(make_batch_norm),
    "keras_layers": Program(make_keras_layers),
}


def make_estimator(
    est: Any,
    name: str,
    model_dir: str,
    warm_start_from: Any = None,
    batch_size: int = BATCH_SIZE,
    **config: Any,
) -> Any:
    """The program's Estimator or TPUEstimator, with a RunConfig of these fields.

    `batch_size` is over all replicas, which only a TPUEstimator divides among them.
    """
    program = PROGRAMS[name]
    model_fn = program.make_model_fn(est)
    if program.is_tpu:
        return est.tpu.TPUEstimator(
            model_fn,
            model_dir,
            est.tpu.RunConfig(**config),
            use_tpu=False,
            train_batch_size=batch_size,
            eval_batch_size=batch_size,
            predict_batch_size=batch_size,
            warm_start_from=warm_start_from,
        )
    return est.Estimator(
        model_fn, model_dir, est.RunConfig(**config), program.params or None, warm_start_from
    )


def make_warm_started_model_fn(est: Any) -> Callable:
    """Two variables that follow a vocabulary, one by rows and one by columns. It trains neither."""

    def model_fn(features, labels, mode):
        size = len(NEW_VOCABULARY)
        zeros = V1.zeros_initializer()
        V1.get_variable("words/embedding", [size + 2, 2], initializer=zeros)
        V1.get_variable("words/kernel", [4, size], initializer=zeros)
        loss = tf.reduce_mean(features["x"])
        train_op = V1.assign_add(V1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def make_warm_start_settings(est: Any, checkpoint: str) -> Any:
    """Both from the embedding of "canned" and from its last kernel, whose classes are words."""
    vocabularies = {
        "new_vocab": str(HERE / "new_vocabulary.txt"),
        "new_vocab_size": len(NEW_VOCABULARY),
        "old_vocab": str(HERE / "old_vocabulary.txt"),
    }
    return est.WarmStartSettings(
        checkpoint,
        var_name_to_vocab_info={
            "words/embedding": est.VocabInfo(
                num_oov_buckets=2,
                backup_initializer=lambda shape: tf.fill(shape, 5.0),
                old_vocab_size=5,
                **vocabularies,
            ),
            "words/kernel": est.VocabInfo(num_oov_buckets=0, axis=1, **vocabularies),
        },
        var_name_to_prev_var_name={
            "words/embedding": CANNED_EMBEDDING,
            "words/kernel": "dnn/logits/kernel",
        },
    )


CANNED_EMBEDDING = "dnn/input_from_feature_columns/input_layer/word_embedding/embedding_weights"
