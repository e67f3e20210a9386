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


@pytest.mark.each_value
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


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("logits", LOGITS)
def test_without_a_seed_weights_differ(logits, loop, tmp_path):
    first = train(tmp_path / "first", logits, cases.input_fn, iterations_per_loop=loop)
    second = train(tmp_path / "second", logits, cases.input_fn, iterations_per_loop=loop)
    for name, value in first.items():
        assert np.abs(value - second[name]).max() > 1e-3


@pytest.mark.parametrize("strategy", ["one_device", "mirrored_x2"])
def test_a_seed_leaves_the_users_own_chance_as_it_was(strategy, tmp_path):
    def get_states():
        return random.getstate(), np.random.get_state()[1].tolist(), V1.get_seed(0)

    # It sets none itself: a seed would stay for the tests that follow in this process.
    states = get_states()
    config = {"tf_random_seed": 5, **cases.STRATEGIES[strategy]}
    train(tmp_path, "keras", cases.input_fn, **config)
    assert get_states() == states


MASKS = {
    "v1": lambda ones: tf.nn.dropout(ones, 0.5),
    "v1_op_seed": lambda ones: tf.nn.dropout(ones, 0.5, seed=3),
    "keras": lambda ones: keras.layers.Dropout(0.5)(ones, training=True),
    "keras_op_seed": lambda ones: keras.layers.Dropout(0.5, seed=3)(ones, training=True),
    "tf_keras": lambda ones: tf_keras.layers.Dropout(0.5)(ones, training=True),
}


@pytest.mark.each_value
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


# --- TensorFlow's own random ops, which belong to their step --------------------------------------

WIDTH = 512


def fill(value):
    return tf.fill([1, WIDTH], tf.cast(value, tf.float32))


def draw_in_loop(shape):
    """Each turn of a loop in a loop draws two numbers; four turns of four."""

    def outer(row, drawn):
        def inner(column, drawn):
            return column + 1, tf.concat([drawn, tf.random.uniform([1, shape[1] // 16])], axis=1)

        grown = tf.TensorShape([1, None])
        _, drawn = tf.while_loop(
            lambda column, _: column < 4, inner, [0, drawn], shape_invariants=[None, grown]
        )
        return row + 1, drawn

    start = [tf.constant(0), tf.zeros([1, 0])]
    invariants = [tf.TensorShape([]), tf.TensorShape([1, None])]
    _, drawn = tf.while_loop(lambda row, _: row < 4, outer, start, shape_invariants=invariants)
    return tf.reshape(drawn, shape)


def draw_in_branch(shape):
    is_odd = tf.equal(V1.train.get_global_step() % 2, 1)
    return tf.cond(is_odd, lambda: tf.random.uniform(shape), lambda: tf.random.uniform(shape))


# What draws, and the mean and the standard deviation of what is drawn.
DRAWS = {
    "dropout": (lambda shape: tf.nn.dropout(tf.ones(shape), 0.5), 1, 1),
    "dropout_v1": (lambda shape: V1.nn.dropout(tf.ones(shape), keep_prob=0.5), 1, 1),
    "uniform": (tf.random.uniform, 1 / 2, 12**-0.5),
    "uniform_dynamic": (lambda shape: tf.random.uniform(tf.shape(tf.ones(shape))), 1 / 2, 12**-0.5),
    "uniform_int": (lambda shape: tf.random.uniform(shape, 0, 4, tf.int64), 1.5, 1.25**0.5),
    "normal": (lambda shape: tf.random.normal(shape, 2, 3), 2, 3),
    "truncated_normal": (tf.random.truncated_normal, 0, 0.88),
    "categorical": (
        lambda shape: tf.random.categorical(tf.math.log([[0.75, 0.25]]), shape[1]),
        0.25,
        0.1875**0.5,
    ),
    "shuffle": (lambda shape: tf.random.shuffle(tf.range(WIDTH))[None], WIDTH / 2, 147.8),
    "gamma": (lambda shape: tf.random.gamma(shape[:1], tf.fill(shape[1:], 4.0), 2.0), 2, 1),
    "poisson": (lambda shape: tf.random.poisson(shape[:1], tf.fill(shape[1:], 4.0)), 4, 2),
    "in_branch": (draw_in_branch, 1 / 2, 12**-0.5),
    "in_loop": (draw_in_loop, 1 / 2, 12**-0.5),
}


def make_draws_model_fn(draw, drawn):
    """A `model_fn` that leaves what it draws in a list: an array a step, [replicas, WIDTH]."""

    def keep(value):
        drawn.append(value)
        return np.int64(0)

    def model_fn(features, labels, mode):
        value = tf.cast(draw([1, WIDTH]), tf.float32)
        step = V1.train.get_global_step()
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=tf.reduce_mean(value) * 0.0,
            train_op=step.assign_add(1).op,
            host_call=(lambda value: tf.numpy_function(keep, [value], tf.int64), [value]),
        )

    return model_fn


def run_draws(model_dir, draw, *stops, **config):
    """What runs up to each of these steps draw: [steps, replicas, WIDTH]."""
    drawn = []
    config = {"tf_random_seed": 5, **config}
    for stop in stops:
        model_fn = make_draws_model_fn(draw, drawn)
        model = est.Estimator(model_fn, str(model_dir), cases.make_config(**config))
        model.train(cases.input_fn, max_steps=stop)
    return np.stack(drawn)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 2, 100])
@pytest.mark.parametrize("name", DRAWS)
def test_neither_a_restart_nor_the_loop_changes_what_is_drawn(name, loop, tmp_path):
    draw, mean, deviation = DRAWS[name]
    whole = run_draws(tmp_path / "whole", draw, NUM_STEPS)
    assert whole.shape == (NUM_STEPS, 1, WIDTH)
    np.testing.assert_allclose(whole.mean(), mean, atol=0.06 * deviation)
    np.testing.assert_allclose(whole.std(), deviation, rtol=0.06)
    # Two steps have nothing in common.
    assert np.abs(np.corrcoef(whole[:, 0]) - np.eye(NUM_STEPS)).max() < 0.2
    parts = run_draws(tmp_path / "parts", draw, 1, 4, NUM_STEPS, iterations_per_loop=loop)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ["mirrored_x2", "central_storage_x2"])
@pytest.mark.parametrize("name", ["dropout", "shuffle", "categorical", "in_branch", "in_loop"])
def test_each_replica_draws_its_own(name, strategy, tmp_path):
    draw = DRAWS[name][0]
    config = cases.STRATEGIES[strategy]
    whole = run_draws(tmp_path / "whole", draw, NUM_STEPS, **config)
    assert whole.shape == (NUM_STEPS, 2, WIDTH)
    drawn = whole.reshape([2 * NUM_STEPS, WIDTH])
    assert np.abs(np.corrcoef(drawn) - np.eye(2 * NUM_STEPS)).max() < 0.2
    parts = run_draws(tmp_path / "parts", draw, 2, NUM_STEPS, iterations_per_loop=3, **config)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize(("strategy", "loop"), [("mirrored_x2", 1), ("central_storage_x2", 3)])
def test_each_replica_draws_its_own_in_a_function(strategy, loop, tmp_path):
    @tf.function
    def draw(shape):
        return tf.nn.dropout(tf.ones(shape), 0.5)

    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    drawn = run_draws(tmp_path, draw, NUM_STEPS, **config).reshape([2 * NUM_STEPS, WIDTH])
    assert np.abs(np.corrcoef(drawn) - np.eye(2 * NUM_STEPS)).max() < 0.2


@pytest.mark.parametrize("loop", [1, 3])
def test_each_turn_of_a_loop_and_each_body_draws_its_own(loop, tmp_path):
    def draw(shape):
        shape = [1, WIDTH // 4]
        parts = [draw_in_branch(shape), draw_in_branch(shape), draw_in_loop(shape)]
        return tf.concat([*parts, tf.random.uniform(shape)], axis=1)

    drawn = run_draws(tmp_path, draw, NUM_STEPS, iterations_per_loop=loop)
    assert len(np.unique(drawn)) > 0.999 * NUM_STEPS * WIDTH


@pytest.mark.parametrize("loop", [1, 3])
def test_an_op_seed_names_a_stream(loop, tmp_path):
    def draw(shape):
        seeds = [3, 3, 4, None]
        parts = [tf.random.uniform([1, WIDTH // 4], seed=seed) for seed in seeds]
        return tf.concat(parts, axis=1)

    run = run_draws(tmp_path / "run", draw, NUM_STEPS, iterations_per_loop=loop)
    first, again, other, none = np.split(run, 4, axis=2)
    np.testing.assert_array_equal(first, again)
    drawn = np.stack([first.ravel(), other.ravel(), none.ravel()])
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.2
    # It is one of those of the graph's seed.
    seed = run_draws(tmp_path / "seed", draw, NUM_STEPS, tf_random_seed=6)
    assert np.intersect1d(run, seed).size < 3


@pytest.mark.parametrize("loop", [1, 3])
def test_an_op_seed_alone_is_enough_for_a_restart(loop, tmp_path):
    def draw(shape):
        return tf.random.uniform(shape, seed=3)

    config = {"tf_random_seed": None, "iterations_per_loop": loop}
    whole = run_draws(tmp_path / "whole", draw, NUM_STEPS, **config)
    parts = run_draws(tmp_path / "parts", draw, 2, NUM_STEPS, **config)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("loop", [1, 3])
def test_without_any_seed_a_restart_draws_anew(loop, tmp_path):
    draw = DRAWS["uniform"][0]
    config = {"tf_random_seed": None, "iterations_per_loop": loop}
    drawn = run_draws(tmp_path, draw, 2, NUM_STEPS, **config)[:, 0]
    assert np.abs(np.corrcoef(drawn) - np.eye(NUM_STEPS)).max() < 0.2


@tf.function
def draw_in_function():
    return tf.random.uniform([])


UNREACHED = {
    "function": lambda shape: fill(draw_in_function()),
    "vectorized_map": lambda shape: tf.vectorized_map(
        lambda _: tf.random.uniform([]), tf.range(WIDTH)
    )[None],
    "raw": lambda shape: tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32, seed=1, seed2=2),
}


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("name", UNREACHED)
def test_what_keeps_a_place_of_its_own_draws_anew_at_each_step(name, loop, tmp_path):
    drawn = run_draws(tmp_path, UNREACHED[name], NUM_STEPS, iterations_per_loop=loop)[:, 0]
    assert len(np.unique(drawn)) > (0.99 * drawn.size if name != "function" else NUM_STEPS - 1)


@pytest.mark.parametrize("loop", [1, 3])
def test_a_shuffle_has_no_gradient_and_gamma_has_one(loop, tmp_path):
    gradients = []

    def draw(shape):
        x = tf.ones([8])
        gradients.append(tf.gradients(tf.random.shuffle(x), x))
        alpha = tf.fill([WIDTH], 4.0)
        return tf.gradients(tf.random.gamma([1], alpha), alpha)[0][None]

    drawn = run_draws(tmp_path, draw, NUM_STEPS, iterations_per_loop=loop)
    assert gradients == [[None]]
    # The mean of a gamma is its alpha.
    np.testing.assert_allclose(drawn.mean(), 1, atol=0.05)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("strategy", REPLICAS)
def test_initial_values_are_those_of_a_graph_without_steps(strategy, loop, tmp_path):
    def make_initial_values():
        with tf.init_scope():
            around = tf.constant(3.0)
        noise = tf.random.normal([8], seed=6)
        return {
            "tensor": tf.random.normal([8], stddev=0.3, seed=1) * 2.0,
            "used_twice": noise * (noise + around),
            "shuffled": tf.random.shuffle(tf.range(8.0), seed=2),
            "gamma": tf.random.gamma([2], tf.ones([4]), seed=3),
            "initializer": V1.truncated_normal_initializer(seed=4),
            "callable": lambda: tf.random.uniform([8], seed=5),
        }

    def draw(shape):
        for name, value in make_initial_values().items():
            if name == "initializer":
                V1.get_variable(name, [8], initializer=value)
            else:
                tf.Variable(value, name=name)
        return tf.nn.dropout(tf.ones(shape), 0.5)

    config = {"iterations_per_loop": loop, **cases.STRATEGIES[strategy]}
    run_draws(tmp_path, draw, 2, **config)
    reader = tf.train.load_checkpoint(str(tmp_path))
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(5)
        values = make_initial_values()
        values["initializer"] = values["initializer"]([8], tf.float32)
        values["callable"] = values["callable"]()
        for name, value in session.run(values).items():
            np.testing.assert_array_equal(reader.get_tensor(name).ravel(), value.ravel(), name)


def test_an_evaluation_draws_anew_for_each_batch(tmp_path):
    drawn = []

    def keep(value):
        drawn.append(value)
        return np.float32(0)

    def model_fn(features, labels, mode):
        weight = V1.get_variable("weight", [], initializer=V1.zeros_initializer())
        kept = tf.numpy_function(keep, [tf.random.uniform([64])], tf.float32)
        loss = weight + tf.ensure_shape(kept, [])
        train_op = V1.train.get_global_step().assign_add(1).op
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = est.Estimator(model_fn, str(tmp_path), cases.make_config(tf_random_seed=5))
    model.train(cases.input_fn, max_steps=1)
    drawn.clear()
    model.evaluate(cases.input_fn, steps=3)
    assert len({tuple(row) for row in drawn}) == 3


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


@pytest.mark.each_value
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
