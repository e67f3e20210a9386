"""Optimizers by name take the steps of the Keras optimizers that 2.15 used, which tf-keras has."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from estimator import RegressionHead
from estimator.canned.named_optimizers import NAMED, make_named

V1 = tf.compat.v1
START = np.float32([[1, 2], [3, 4], [5, 6]])
LEGACY = {name: getattr(tf_keras.optimizers.legacy, name) for name in NAMED if name != "RMSProp"}
LEGACY["RMSProp"] = tf_keras.optimizers.legacy.RMSprop
DENSE = [np.float32([[0.1, -2], [3, 0], [1, 0.5]]) * scale for scale in (1, -0.5, 2)]
# Rows and their gradients; a row may be there twice.
SPARSE = [([2, 0], [[1, -1], [0.5, 2]]), ([1, 1], [[1, 1], [-3, 0.5]]), ([2, 2], [[1, 0], [1, 0]])]


def gradients(kind):
    if kind == "dense":
        return [tf.constant(values) for values in DENSE]
    return [tf.IndexedSlices(tf.constant(rows, tf.float32), ids) for ids, rows in SPARSE]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", NAMED)
def test_steps_are_those_of_keras(name, kind):
    legacy, theirs = LEGACY[name](0.1), tf.Variable(START)
    if name == "Adagrad":  # As in 2.15.
        legacy = LEGACY[name](0.1, initial_accumulator_value=0.1)
    for gradient in gradients(kind):
        legacy.apply_gradients([(gradient, theirs)])

    with tf.Graph().as_default(), V1.Session() as session:
        ours = V1.get_variable("ours", initializer=START)
        step = V1.train.create_global_step()
        optimizer = make_named(name, 0.1, RegressionHead(), before=[])
        updates = [
            optimizer.apply_gradients([(gradient, ours)], step) for gradient in gradients(kind)
        ]
        session.run(V1.global_variables_initializer())
        for update in updates:
            session.run(update)
        found = session.run(ours)
    np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-5)
    assert not np.allclose(found, START)
