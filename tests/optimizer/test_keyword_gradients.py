"""Keras's optimizers take their gradients by position or by name, as Keras itself has them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.forked import Program

CALLS = {
    "keras apply": lambda g, v: keras.optimizers.SGD(0.1).apply(grads=g, trainable_variables=v),
    "keras apply_gradients": lambda g, v: keras.optimizers.SGD(0.1).apply_gradients(
        grads_and_vars=list(zip(g, v, strict=True))
    ),
    "tf_keras": lambda g, v: tf_keras.optimizers.SGD(0.1).apply_gradients(
        grads_and_vars=zip(g, v, strict=True)
    ),
    "tf_keras legacy": lambda g, v: tf_keras.optimizers.legacy.SGD(0.1).apply_gradients(
        grads_and_vars=zip(g, v, strict=True)
    ),
    # Who reduces them himself says so.
    "tf_keras reduced": lambda g, v: reduced_by_tf_keras(tf_keras.optimizers.SGD(0.1), g, v),
    "tf_keras legacy reduced": lambda g, v: tf_keras.optimizers.legacy.SGD(0.1).apply_gradients(
        zip(mean_over_replicas(g), v, strict=True), experimental_aggregate_gradients=False
    ),
}


def reduced_by_tf_keras(optimizer, gradients, variables):
    pairs = optimizer.aggregate_gradients(list(zip(gradients, variables, strict=True)))
    return optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)


def mean_over_replicas(gradients):
    # An all-reduce looks for variables behind its input, and fails if it finds another replica's.
    stopped = [tf.stop_gradient(gradient) for gradient in gradients]
    return tf.distribute.get_replica_context().all_reduce("MEAN", stopped)


def input_fn():
    x = np.float32([[1], [2], [3], [4]])
    return tf.data.Dataset.from_tensor_slices((x, x)).batch(2)


@pytest.mark.each_value
@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("call", CALLS)
def test_gradients_may_be_given_by_name(call, num_replicas, tmp_path):
    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("w", [], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features * weight - labels))
        applied = CALLS[call](tf.gradients(loss, [weight]), [weight])
        done = [applied] if isinstance(applied, tf.Operation) else []  # Of a legacy optimizer.
        step = tf.compat.v1.train.get_global_step()
        train_op = tf.group(tf.compat.v1.assign_add(step, 1), *done)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(strategy="mirrored", num_replicas=num_replicas)
    trained = est.Estimator(model_fn, str(tmp_path), config).train(input_fn, steps=1)
    # The gradient of the mean over the step's batches: of 1 and 2, or of 1 to 4.
    squares = [1, 4, 9, 16][: 2 * num_replicas]
    expected = 0.1 * 2 * np.mean(squares)
    np.testing.assert_allclose(trained.get_variable_value("w"), expected, rtol=1e-6)


FIRST_IMPORT = """
import sys
import numpy as np, tensorflow as tf
import estimator as est

assert "tf_keras" not in sys.modules

def model_fn(features, labels, mode):
    import tf_keras
    optimizer = tf_keras.optimizers.SGD(0.1)
    weight = tf.compat.v1.get_variable("w", [])
    loss = tf.reduce_mean(features * weight)
    optimizer.apply_gradients([(tf.gradients(loss, weight)[0], weight)])
    step = tf.compat.v1.train.get_global_step()
    return est.EstimatorSpec(mode, loss=loss, train_op=tf.compat.v1.assign_add(step, 1))

def input_fn():
    return tf.data.Dataset.from_tensors(np.ones(2, np.float32)).repeat()

config = est.RunConfig(strategy="mirrored", num_replicas=2)
est.Estimator(model_fn, sys.argv[1], config).train(input_fn, steps=1)
"""


def test_a_model_fn_that_imports_tf_keras_first_is_told_where_to(tmp_path):
    path = tmp_path / "first_import.py"
    path.write_text(FIRST_IMPORT)
    with Program(str(path), tmp_path / "model") as program:
        assert program.status() == 1
        assert "Import it at the top of the program" in program.err.splitlines()[-1]
