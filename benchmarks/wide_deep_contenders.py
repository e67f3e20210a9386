"""Wide and deep by this library, by hand and in Keras 3: each `train(loop_steps, report)`."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import estimator as est
from benchmarks import wide_deep_input as shared
from benchmarks.keras_fit import ENDLESS, ReportCallback
from benchmarks.ours import ReportHook, Setup, make_config

Report = Callable[[int], bool]


def train_ours(model_dir: str, loop_steps: int, report: Report) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    wide, deep = shared.make_columns()
    est.DNNLinearCombinedClassifier(
        model_dir,
        linear_feature_columns=wide,
        linear_optimizer=tf.compat.v1.train.FtrlOptimizer(shared.LINEAR_RATE),
        dnn_feature_columns=deep,
        dnn_optimizer=tf.compat.v1.train.AdagradOptimizer(shared.DNN_RATE),
        dnn_hidden_units=shared.HIDDEN_UNITS,
        config=make_config(Setup(loop_steps)),
    ).train(shared.make_training_input, hooks=[ReportHook(report, loop_steps)])


# --- By hand --------------------------------------------------------------------------------------


class HandWrittenModel:
    """The same numbers with as few ops as they need: a row of an embedding is one gather."""

    def __init__(self) -> None:
        """Creates the variables and the optimizers' slots."""
        glorot = tf.initializers.GlorotUniform(seed=0)
        size = len(shared.CATEGORIES) * shared.DIMENSION + len(shared.NUMBERS)
        sizes = [size, *shared.HIDDEN_UNITS, 1]
        tables = [shared.NUM_BUCKETS, shared.DIMENSION]
        embeddings = [tf.Variable(glorot(tables)) for _ in shared.CATEGORIES]
        kernels = [tf.Variable(glorot(shape)) for shape in zip(sizes, sizes[1:], strict=False)]
        biases = [tf.Variable(tf.zeros([units])) for units in sizes[1:]]
        self.deep = [*embeddings, *kernels, *biases]
        zeros = tf.zeros([shared.NUM_BUCKETS, 1])
        self.linear = [*(tf.Variable(zeros) for _ in shared.CATEGORIES), tf.Variable(zeros[0])]
        self.embeddings, self.layers = embeddings, list(zip(kernels, biases, strict=True))
        self.deep_optimizer = tf.compat.v1.train.AdagradOptimizer(shared.DNN_RATE)
        self.linear_optimizer = tf.compat.v1.train.FtrlOptimizer(shared.LINEAR_RATE)
        self.global_step = tf.Variable(0, dtype=tf.int64)

    def compute_logits(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Logits [batch, 1]."""
        rows = [
            tf.strings.to_hash_bucket_fast(features[name], shared.NUM_BUCKETS)
            for name in shared.CATEGORIES
        ]
        net = [tf.gather(table, ids) for table, ids in zip(self.embeddings, rows, strict=True)]
        net = tf.concat([*net, *(features[name][:, tf.newaxis] for name in shared.NUMBERS)], -1)
        for kernel, bias in self.layers[:-1]:
            net = tf.nn.relu(tf.nn.bias_add(net @ kernel, bias))
        kernel, bias = self.layers[-1]
        *weights, linear_bias = self.linear
        wide = [tf.gather(weight, ids) for weight, ids in zip(weights, rows, strict=True)]
        return tf.nn.bias_add(net @ kernel, bias) + tf.add_n(wide) + linear_bias

    def run_step(self, features: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        """One update; returns the loss."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sigmoid_cross_entropy_with_logits(
                labels=tf.cast(labels, tf.float32), logits=self.compute_logits(features)
            )
            loss = tf.reduce_mean(losses)
        deep, linear = tape.gradient(loss, (self.deep, self.linear))
        self.deep_optimizer.apply_gradients(zip(deep, self.deep, strict=True))
        self.linear_optimizer.apply_gradients(zip(linear, self.linear, strict=True))
        self.global_step.assign_add(1)
        return loss


def train_by_hand(loop_steps: int, report: Report) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    model = HandWrittenModel()

    @tf.function
    def train(iterator: tf.data.Iterator) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(loop_steps):
            loss = model.run_step(*next(iterator))
        return loss

    run_loops(train, shared.make_training_input(), loop_steps, report)


def run_loops(
    train: Callable[..., tf.Tensor], data: tf.data.Dataset, loop_steps: int, report: Report
) -> None:
    """Calls `train(iterator)` until `report` returns False."""
    iterator = iter(data)
    train(iterator).numpy()
    while report(loop_steps):
        train(iterator).numpy()


# --- Keras ----------------------------------------------------------------------------------------


def make_keras_model() -> keras.Model:
    """The same layers; one optimizer for all, since Keras has one."""
    strings = {name: keras.Input([], dtype="string", name=name) for name in shared.CATEGORIES}
    numbers = {name: keras.Input([1], name=name) for name in shared.NUMBERS}
    embed: Any = functools.partial(keras.layers.Embedding, shared.NUM_BUCKETS)
    rows = [keras.layers.Hashing(shared.NUM_BUCKETS)(each) for each in strings.values()]
    net = keras.layers.Concatenate()(
        [*(embed(shared.DIMENSION)(ids) for ids in rows), *numbers.values()]
    )
    for units in shared.HIDDEN_UNITS:
        net = keras.layers.Dense(units, activation="relu")(net)
    linear = [embed(1, embeddings_initializer="zeros")(ids) for ids in rows]
    logits = keras.layers.Add()([keras.layers.Dense(1)(net), *linear])
    return keras.Model({**strings, **numbers}, logits)


def train_keras(loop_steps: int, report: Report) -> None:
    """One endless `fit`, until `report(steps of the last execution)` returns False."""
    model = make_keras_model()
    model.compile(
        optimizer=keras.optimizers.Adagrad(shared.DNN_RATE),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=loop_steps,
        jit_compile=False,
    )
    model.fit(
        shared.make_training_input(),
        steps_per_epoch=ENDLESS,
        callbacks=[ReportCallback(report, loop_steps)],
        verbose=0,
    )
