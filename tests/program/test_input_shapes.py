"""What is known of the shapes of a batch is the same in a loop as without one."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

v1 = tf.compat.v1
EXAMPLES = np.arange(24, dtype=np.float32).reshape(12, 2)


def batches():
    """Batches whose shape TensorFlow does not know."""
    examples = tf.data.Dataset.from_tensor_slices(EXAMPLES)
    unknown = examples.map(lambda x: tf.numpy_function(np.copy, [x], tf.float32))
    return unknown.batch(4).repeat()


def iterator():
    taken = v1.data.make_one_shot_iterator(batches()).get_next()
    taken.set_shape([4, 2])
    return taken, taken[:, 0]


def initialized_iterator():
    made = v1.data.make_initializable_iterator(batches())
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, made.initializer)
    doubled = made.get_next() * 2
    doubled.set_shape([4, 2])
    return doubled, tf.reduce_sum(doubled, 1)


def queue():
    parts = v1.train.slice_input_producer([tf.constant(EXAMPLES)], shuffle=False)
    return v1.train.batch(parts, 4), tf.zeros([4])


def queue_of_any_shape():
    parts = v1.train.slice_input_producer([tf.constant(EXAMPLES)], shuffle=False)
    return v1.train.batch(parts, 4, dynamic_pad=True), tf.zeros([4])


def python_function():
    taken = v1.data.make_one_shot_iterator(batches()).get_next()
    made = v1.py_func(np.copy, [taken], tf.float32)
    made.set_shape([None, 2])
    return made, made[:, 0]


def placeholder():
    given = v1.placeholder_with_default(EXAMPLES[:4], [None, 2])
    return given, given[:, 0]


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", [{}, {"strategy": "mirrored", "num_replicas": 2}])
@pytest.mark.parametrize(
    "input_fn",
    [iterator, initialized_iterator, queue, queue_of_any_shape, python_function, placeholder],
)
def test_shapes_are_those_that_the_program_has_set(input_fn, strategy, tmp_path):
    shapes, weights = [], []

    def model_fn(features, labels, mode):
        shapes.append((features.shape.as_list(), labels.shape.as_list()))
        weight = v1.get_variable("weight", [features.shape[1]], initializer=v1.ones_initializer())
        loss = tf.reduce_mean((tf.linalg.matvec(features, weight) - labels) ** 2)
        optimizer = est.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1e-4))
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    for iterations_per_loop in (1, 3):
        config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
        path = str(tmp_path / f"{iterations_per_loop}")
        with est.Estimator(model_fn, path, config) as trained:
            trained.train(input_fn, steps=6)
            weights.append(trained.get_variable_value("weight"))
    assert shapes[: len(shapes) // 2] == shapes[len(shapes) // 2 :]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)
