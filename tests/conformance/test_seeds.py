"""One seed is one run; without one, and in each epoch, chance is another."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases

V1 = tf.compat.v1
NUM_STEPS = 6
EPOCH = 24


def v1_logits(features):
    with V1.variable_scope("hidden"):
        kernel = V1.get_variable("kernel", [4, 5])
    hidden = tf.nn.dropout(features @ kernel, 0.4)
    with V1.variable_scope("logits"):
        kernel = V1.get_variable("kernel", [5, 3], initializer=V1.random_normal_initializer())
    return hidden @ kernel + tf.random.uniform([3])


def make_keras_logits(layers):
    def logits(features):
        hidden = layers.Dense(5, kernel_initializer="he_uniform")(features)
        return layers.Dense(3)(layers.Dropout(0.4)(hidden, training=True))

    return logits


def keras_random_logits(features):
    """Keras's own random functions, with its seed generators."""
    noise = keras.random.normal(tf.shape(features), seed=keras.random.SeedGenerator())
    return keras.layers.Dense(3)(features + noise)


LOGITS = {
    "v1": v1_logits,
    "keras": make_keras_logits(keras.layers),
    "keras_random": keras_random_logits,
    "tf_keras": make_keras_logits(tf_keras.layers),
}
REPLICAS = ["no_strategy", "mirrored_x2", "central_storage_x2"]


def model_fn(features, labels, mode, params):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=LOGITS[params["logits"]](features)
    )
    loss = tf.reduce_mean(losses)
    train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def shuffled_input_fn(input_context):
    examples = tf.data.Dataset.from_tensor_slices((cases.FEATURES, cases.LABELS))
    batch_size = input_context.get_per_replica_batch_size(cases.BATCH_SIZE)
    return examples.shuffle(100).repeat().batch(batch_size, drop_remainder=True)


def train(model_dir, logits, input_fn, **config):
    """The trained weights, by name."""
    model = est.Estimator(model_fn, str(model_dir), cases.make_config(**config), {"logits": logits})
    model.train(input_fn, max_steps=NUM_STEPS)
    names = [name for name in model.get_variable_names() if "kernel" in name]
    return {name: model.get_variable_value(name) for name in names}


@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", REPLICAS)
@pytest.mark.parametrize("logits", LOGITS)
def test_one_seed_gives_equal_weights(logits, strategy, loop, tmp_path):
    config = {"iterations_per_loop": loop, "tf_random_seed": 5, **cases.STRATEGIES[strategy]}
    first = train(tmp_path / "first", logits, shuffled_input_fn, **config)
    second = train(tmp_path / "second", logits, shuffled_input_fn, **config)
    other = train(tmp_path / "other", logits, shuffled_input_fn, **{**config, "tf_random_seed": 6})
    assert first.keys() == second.keys() == other.keys()
    for name, value in first.items():
        # Two replicas' gradients are added in any order, and of two numbers that does not matter.
        np.testing.assert_array_equal(value, second[name], err_msg=name)
        assert np.abs(value - other[name]).max() > 1e-3


@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("logits", LOGITS)
def test_without_a_seed_weights_differ(logits, loop, tmp_path):
    first = train(tmp_path / "first", logits, cases.input_fn, iterations_per_loop=loop)
    second = train(tmp_path / "second", logits, cases.input_fn, iterations_per_loop=loop)
    for name, value in first.items():
        assert np.abs(value - second[name]).max() > 1e-3


def test_a_seed_leaves_the_users_own_chance_as_it_was(tmp_path):
    np.random.seed(1)
    random.seed(1)
    keras.utils.set_random_seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist()
    train(tmp_path, "keras", cases.input_fn, tf_random_seed=5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states


MASKS = {
    "v1": lambda ones: tf.nn.dropout(ones, 0.5),
    "v1_op_seed": lambda ones: tf.nn.dropout(ones, 0.5, seed=3),
    "keras": lambda ones: keras.layers.Dropout(0.5)(ones, training=True),
    "keras_op_seed": lambda ones: keras.layers.Dropout(0.5, seed=3)(ones, training=True),
    "tf_keras": lambda ones: tf_keras.layers.Dropout(0.5)(ones, training=True),
}


@pytest.mark.parametrize("loop", [1, 4, 100])
@pytest.mark.parametrize("mask", MASKS)
def test_each_step_draws_anew(mask, loop, tmp_path):
    def draw_model_fn(features, labels, mode):
        step = V1.train.get_global_step()
        drawn = V1.get_variable("drawn", [NUM_STEPS, 64], initializer=V1.zeros_initializer())
        row = tf.IndexedSlices(MASKS[mask](tf.ones([1, 64])), tf.reshape(step, [1]))
        with tf.control_dependencies([drawn.scatter_update(row)]):
            return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=step.assign_add(1).op)

    config = cases.make_config(tf_random_seed=5, iterations_per_loop=loop)
    model = est.Estimator(draw_model_fn, str(tmp_path), config)
    model.train(cases.input_fn, max_steps=NUM_STEPS)
    drawn = model.get_variable_value("drawn")
    assert set(np.unique(drawn)) == {0, 2}
    assert len({tuple(row) for row in drawn}) == NUM_STEPS


class OrderOfIds:
    """An input of ids, shuffled in each epoch, that keeps the order in which they were taken."""

    def __init__(self, epochs, seed=None):
        self.ids = []
        self._epochs, self._seed = epochs, seed

    def __call__(self):
        ids = tf.data.Dataset.range(EPOCH).shuffle(EPOCH, seed=self._seed).repeat(self._epochs)
        return ids.map(self._keep).batch(4, drop_remainder=True)

    def _keep(self, number):
        def keep(value):
            self.ids.append(int(value))
            return value

        number = tf.numpy_function(keep, [number], tf.int64)
        return tf.ensure_shape(number, [])

    def by_epoch(self):
        assert len(self.ids) == self._epochs * EPOCH
        return [self.ids[start : start + EPOCH] for start in range(0, len(self.ids), EPOCH)]


def ids_model_fn(features, mode):
    weight = V1.get_variable("weight", [], initializer=V1.zeros_initializer())
    loss = weight * tf.reduce_mean(tf.cast(features, tf.float32))
    train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def order_of_epochs(model_dir, epochs=2, seed=None, **config):
    order = OrderOfIds(epochs, seed)
    est.Estimator(ids_model_fn, str(model_dir), cases.make_config(**config)).train(order)
    return order.by_epoch()


@pytest.mark.parametrize("strategy", REPLICAS)
@pytest.mark.parametrize("loop", [1, 5])
@pytest.mark.parametrize(("graph_seed", "op_seed"), [(None, None), (5, None), (5, 7), (None, 7)])
def test_each_epoch_shuffles_anew(graph_seed, op_seed, loop, strategy, tmp_path):
    first, second = order_of_epochs(
        tmp_path,
        2,
        op_seed,
        tf_random_seed=graph_seed,
        iterations_per_loop=loop,
        **cases.STRATEGIES[strategy],
    )
    assert sorted(first) == sorted(second) == list(range(EPOCH))
    assert first != second
    assert first != sorted(first)


@pytest.mark.parametrize("loop", [1, 5])
def test_one_seed_gives_one_order(loop, tmp_path):
    order = order_of_epochs(tmp_path / "loop", 3, tf_random_seed=5, iterations_per_loop=loop)
    assert order_of_epochs(tmp_path / "step", 3, tf_random_seed=5) == order
    assert order_of_epochs(tmp_path / "other", 3, tf_random_seed=6) != order
