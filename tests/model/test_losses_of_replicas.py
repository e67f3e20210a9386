"""Losses that a `model_fn` finds in the graph's collections: on replicas, each finds its own."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.layers import core as tensorflow_layers
from tf_keras.src.legacy_tf_layers import base as tf_keras_base
from tf_keras.src.legacy_tf_layers import core as tf_keras_layers

import estimator as est
from tests.conformance import cases

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")

V1 = tf.compat.v1
BATCH_SIZE, NUM_STEPS, RATE, WEIGHT = 4, 3, 0.1, 0.2
_random = np.random.RandomState(3)
X = _random.rand(BATCH_SIZE * NUM_STEPS, 1).astype(np.float32) + 1
Y = _random.rand(BATCH_SIZE * NUM_STEPS, 1).astype(np.float32)


def regularize(kernel):
    return WEIGHT * tf.reduce_sum(kernel)


def by_get_variable(x):
    return x @ V1.get_variable("w", [1, 1], regularizer=regularize)


def by_layer_of(layers):
    def apply(x):
        return layers.dense(x, 1, use_bias=False, kernel_regularizer=regularize, name="w")

    return apply


def by_layer_with_a_regular_output(x):
    # The layer divides what its regularizer returns by the size of the batch.
    options = {"use_bias": False, "activity_regularizer": regularize, "name": "w"}
    return tf_keras_layers.dense(x, 1, **options)


def by_layer_of_its_own(x):
    class Layer(tf_keras_base.Layer):
        def build(self, shape):
            self.w = self.add_weight("w", [1, 1], initializer=V1.ones_initializer())
            self.add_loss(lambda: regularize(self.w))
            super().build(shape)

        def call(self, x):
            return x @ self.w

    return Layer(name="layer").apply(x)


def by_layer_with_a_getter(x):
    def get(getter, *args, **kwargs):
        return getter(*args, **kwargs) * 1.0

    with V1.variable_scope("getter", custom_getter=get):
        return by_layer_of(tf_keras_layers)(x)


def by_extended_collection(x):
    w = V1.get_variable("w", [1, 1])
    V1.get_collection_ref("my_losses").extend([regularize(w)])
    return x @ w


def by_collection(x):
    w = V1.get_variable("w", [1, 1])
    V1.add_to_collection("my_losses", regularize(w))
    return x @ w


# From the layer to the gradient of its regularization: of the weight, or of the mean output.
LAYERS = {
    "get_variable": (by_get_variable, lambda x: WEIGHT),
    "tf_keras": (by_layer_of(tf_keras_layers), lambda x: WEIGHT),
    "tensorflow": (by_layer_of(tensorflow_layers), lambda x: WEIGHT),
    "output": (by_layer_with_a_regular_output, lambda x: WEIGHT * x.mean()),
    "own layer": (by_layer_of_its_own, lambda x: WEIGHT),
    "getter": (by_layer_with_a_getter, lambda x: WEIGHT),
    "collection": (by_collection, lambda x: WEIGHT),
    "extended": (by_extended_collection, lambda x: WEIGHT),
}


def model_fn(features, labels, mode, params):
    with V1.variable_scope("model", initializer=V1.ones_initializer()):
        y = LAYERS[params["layer"]][0](features)
    V1.losses.mean_squared_error(labels, y)
    loss = tf.add_n([V1.losses.get_total_loss(), *V1.get_collection("my_losses")])
    optimizer = V1.train.GradientDescentOptimizer(RATE)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def trained(regularization):
    """The weight after all steps, and the last step's loss: every loss is linear in the weight."""
    w = 1.0
    for x, y in zip(np.split(X, NUM_STEPS), np.split(Y, NUM_STEPS), strict=True):
        loss = np.mean((w * x - y) ** 2) + w * regularization(x)
        w -= RATE * (np.mean(2 * (w * x - y) * x) + regularization(x))
    return w, loss


def input_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(BATCH_SIZE)
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)


@pytest.mark.parametrize(
    ("strategy", "loop"),
    [
        ("no_strategy", NUM_STEPS),
        ("mirrored_x2", 1),
        ("mirrored_x2", NUM_STEPS),
        ("central_storage_x2", NUM_STEPS),
    ],
)
@pytest.mark.parametrize("layer", LAYERS)
def test_each_counts_once(layer, strategy, loop, tmp_path):
    config = est.RunConfig(
        str(tmp_path),
        iterations_per_loop=loop,
        log_step_count_steps=1,
        **cases.STRATEGIES[strategy],
    )
    model = est.Estimator(model_fn, config=config, params={"layer": layer})
    model.train(input_fn)
    (name,) = {n for n in model.get_variable_names() if n.startswith("model/")}
    weight, loss = trained(LAYERS[layer][1])
    assert model.get_variable_value(name) == pytest.approx(weight, rel=1e-5)
    assert model.train_result.loss == pytest.approx(loss, rel=1e-5)


def test_a_layer_that_is_used_twice_counts_once(tmp_path):
    def twice(features, labels, mode):
        for _ in range(2):
            y = tf_keras_layers.dense(
                features, 1, kernel_regularizer=regularize, name="w", reuse=V1.AUTO_REUSE
            )
        assert len(V1.losses.get_regularization_losses()) == 1
        loss = tf.reduce_mean((y - labels) ** 2) + V1.losses.get_regularization_loss()
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(str(tmp_path), **cases.STRATEGIES["mirrored_x2"])
    est.Estimator(twice, config=config).train(input_fn, steps=1)


def test_a_layer_without_a_loss_adds_none(tmp_path):
    def without(features, labels, mode):
        y = tf_keras_layers.dense(features, 1, kernel_regularizer=lambda kernel: None)
        assert V1.losses.get_regularization_losses() == []
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.reduce_mean(y - labels), train_op=train_op)

    config = est.RunConfig(str(tmp_path), **cases.STRATEGIES["mirrored_x2"])
    est.Estimator(without, config=config).train(input_fn, steps=1)


def test_regularization_losses_are_tensors_on_each_replica(tmp_path):
    def model_fn(features, labels, mode):
        y = by_layer_of(tf_keras_layers)(features)
        losses = V1.losses.get_regularization_losses()
        assert losses == V1.losses.get_regularization_losses()  # The same, when read again.
        assert all(isinstance(loss, tf.Tensor) for loss in losses)
        with tf.control_dependencies(losses):
            loss = tf.reduce_mean((y - labels) ** 2)
        train_op = tf.group(V1.train.get_global_step().assign_add(1), *losses)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(str(tmp_path), **cases.STRATEGIES["mirrored_x2"])
    est.Estimator(model_fn, config=config).train(input_fn, steps=1)


def test_what_only_the_first_replica_makes_is_found_by_all(tmp_path):
    """TensorFlow makes summaries on the first replica alone; a hook wants some on each."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [1, 1])
        loss = tf.reduce_mean((features @ w - labels) ** 2)
        V1.summary.scalar("my_loss", loss)
        hook = V1.train.SummarySaverHook(1, output_dir=tmp_path, summary_op=V1.summary.merge_all())
        step = V1.train.get_global_step()
        train_op = V1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    config = est.RunConfig(str(tmp_path), **cases.STRATEGIES["mirrored_x2"])
    model = est.Estimator(model_fn, config=config)
    model.train(input_fn, steps=2)
    assert model.get_variable_value("global_step") == 2


@pytest.mark.parametrize("zero_debias", [False, True])
@pytest.mark.parametrize("loop", [1, NUM_STEPS])
@pytest.mark.parametrize("strategy", ["no_strategy", "mirrored_x2", "central_storage_x2"])
def test_moving_averages_of_losses_are_those_of_the_whole_batch(
    strategy, loop, zero_debias, tmp_path
):
    def model_fn(features, labels, mode):
        with tf.name_scope("tower"):
            loss = tf.reduce_mean(features * labels, name="loss")
        averages = V1.train.ExponentialMovingAverage(0.5, zero_debias=zero_debias, name="avg")
        with tf.control_dependencies([averages.apply([loss])]):
            train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(str(tmp_path), iterations_per_loop=loop, **cases.STRATEGIES[strategy])
    model = est.Estimator(model_fn, config=config)
    model.train(input_fn)
    average = 0.0
    for loss in np.mean(np.split(X * Y, NUM_STEPS), axis=(1, 2)):
        average = (average + loss) / 2
    if zero_debias:
        average /= 1 - 0.5**NUM_STEPS
    assert model.get_variable_value("tower/loss/avg") == pytest.approx(average, rel=1e-5)
