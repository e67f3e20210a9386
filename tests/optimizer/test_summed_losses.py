"""Losses that are sums, on several replicas: a step adds up the replicas' gradients."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
X = np.linspace(0, 1, 24, dtype=np.float32)[:, np.newaxis]
RATE = 0.01
REDUCTIONS = {True: "sum", False: "sum_over_batch_size"}
V1_REDUCTIONS = {True: V1.losses.Reduction.SUM, False: V1.losses.Reduction.SUM_OVER_BATCH_SIZE}
LOSSES = {
    "v1": lambda is_sum: functools.partial(
        V1.losses.mean_squared_error, reduction=V1_REDUCTIONS[is_sum]
    ),
    "keras": lambda is_sum: tf.keras.losses.MeanSquaredError(reduction=REDUCTIONS[is_sum]),
    "tf_keras": lambda is_sum: tf_keras.losses.MeanSquaredError(reduction=REDUCTIONS[is_sum]),
}
OPTIMIZERS = {
    "v1": V1.train.GradientDescentOptimizer,
    "keras": tf.keras.optimizers.SGD,
    "tf_keras": tf_keras.optimizers.SGD,
}


def make_model_fn(losses, optimizer):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", [1, 1], initializer=V1.zeros_initializer())
        for library, is_sum in losses:
            loss = LOSSES[library](is_sum)(labels, features @ w)
        opt, step = OPTIMIZERS[optimizer](RATE), V1.train.get_global_step()
        if optimizer == "v1":
            train_op = opt.minimize(loss, step)
        else:
            opt.build([w])
            opt.apply_gradients([(tf.gradients(loss, w)[0], w)])
            train_op = step.assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def trained(is_sum):
    """The weight after steps of six examples."""
    w = 0.0
    for x in X.reshape(4, 6):
        gradients = 2 * (w - 2) * x * x
        w -= RATE * (gradients.sum() if is_sum else gradients.mean())
    return w


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("library", LOSSES)
def test_gradients_of_a_sum_are_added_up(library, optimizer, tmp_path):
    config = est.RunConfig(str(tmp_path), strategy="mirrored", num_replicas=2)
    model = est.Estimator(make_model_fn([(library, True)], optimizer), config=config)
    model.train(lambda: tf.data.Dataset.from_tensor_slices((X, 2 * X)).batch(3))
    assert model.get_variable_value("w") == pytest.approx(trained(is_sum=True), rel=1e-5)


@pytest.mark.parametrize(
    ("second", "is_sum"),
    # tf-keras refuses a mean over the batch under a strategy.
    [("v1", False), ("keras", False), ("v1", True), ("keras", True), ("tf_keras", True)],
)
def test_the_loss_that_was_made_last_counts(second, is_sum, tmp_path):
    losses = [("v1", not is_sum), (second, is_sum)]
    setup = {"strategy": "mirrored", "num_replicas": 2, "iterations_per_loop": 2}
    model = est.Estimator(make_model_fn(losses, "v1"), config=est.RunConfig(str(tmp_path), **setup))
    model.train(lambda: tf.data.Dataset.from_tensor_slices((X, 2 * X)).batch(3))
    assert model.get_variable_value("w") == pytest.approx(trained(is_sum), rel=1e-5)
