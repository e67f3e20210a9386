import numpy as np
import pytest
import tensorflow as tf

from models.layerwise_adamw import LayerwiseAdamW

V1 = tf.compat.v1
START = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2)
GRADIENT = np.array([[0.5, -1.0], [0.0, 0.0], [2.0, 1.0]], np.float32)


def adamw(weights, gradient, num_steps, rate, decay):
    """The paper's algorithm 2, in float64."""
    weights, m, v = weights.astype(np.float64), 0.0, 0.0
    for t in range(1, num_steps + 1):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        corrected = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        weights = weights * (1 - rate * decay) - corrected * m / (np.sqrt(v) + 1e-8)
    return weights


def train(build_loss, start, num_steps, **settings):
    with tf.Graph().as_default(), V1.Session() as session:
        with V1.variable_scope("layer_0"):
            weights = V1.get_variable("weights", initializer=start, use_resource=True)
        optimizer = LayerwiseAdamW(0.1, **settings)
        train_op = optimizer.minimize(build_loss(weights))
        session.run(V1.global_variables_initializer())
        for _ in range(num_steps):
            session.run(train_op)
        return session.run(weights)


def dense_loss(weights):
    return tf.reduce_sum(weights * GRADIENT)


def make_sparse_loss(index_dtype):
    """The same gradient, in the form that an embedding has, with one row twice."""

    def sparse_loss(weights):
        rows = tf.gather(weights, tf.constant([0, 2, 2], index_dtype))
        halves = [GRADIENT[0], GRADIENT[2] / 2, GRADIENT[2] / 2]
        return tf.reduce_sum(rows * tf.stack(halves))

    return sparse_loss


LOSSES = {
    "dense": dense_loss,
    "int32": make_sparse_loss("int32"),
    "int64": make_sparse_loss("int64"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_matrices_and_embeddings_follow_the_paper(loss):
    expected = adamw(START, GRADIENT, 3, rate=0.1, decay=0.2)
    np.testing.assert_allclose(train(loss, START, 3, weight_decay=0.2), expected, rtol=1e-5)


def test_vectors_do_not_decay():
    expected = adamw(START[0], GRADIENT[0], 3, rate=0.1, decay=0.0)
    got = train(lambda w: tf.reduce_sum(w * GRADIENT[0]), START[0], 3, weight_decay=0.2)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_factor_of_a_variable_multiplies_its_rate():
    expected = adamw(START, GRADIENT, 3, rate=0.05, decay=0.2)
    factors = {"layer_0/weights": 0.5}
    got = train(dense_loss, START, 3, weight_decay=0.2, find_factor=factors.__getitem__)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
