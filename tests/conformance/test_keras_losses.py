"""Losses of Keras 3 on replicas: as those of one device with the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est

_RANDOM = np.random.default_rng(0)
FEATURES = _RANDOM.normal(size=(48, 3)).astype(np.float32)
LABELS = FEATURES @ np.float32([[1], [-2], [0.5]]) + 1
BATCH_SIZE = 12
NUM_STEPS = 4


def by_a_loss_class(features, labels):
    output = keras.layers.Dense(1, kernel_initializer="zeros")(features)
    return keras.losses.MeanSquaredError()(labels, output)


def by_a_function(features, labels):
    output = keras.layers.Dense(1, kernel_initializer="zeros")(features)
    return tf.reduce_mean(keras.losses.mean_squared_error(labels, output))


def by_a_weighted_loss_class(features, labels):
    output = keras.layers.Dense(1, kernel_initializer="zeros")(features)
    return keras.losses.Huber(delta=0.7)(labels, output, sample_weight=tf.abs(features[:, :1]))


def by_a_compiled_model(features, labels):
    """Two outputs, loss weights and a regularizer, which the model adds to its loss."""
    inputs = keras.Input([3])
    outputs = {
        name: keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2", name=name)(
            inputs
        )
        for name in ("a", "b")
    }
    model = keras.Model(inputs, outputs)
    losses = {"a": keras.losses.MeanSquaredError(), "b": keras.losses.LogCosh()}
    model.compile(loss=losses, loss_weights={"a": 1.0, "b": 0.5})
    predictions = model(features)
    return model.compute_loss(features, {"a": labels, "b": -labels}, predictions)


LOSSES = [by_a_loss_class, by_a_function, by_a_weighted_loss_class, by_a_compiled_model]


def make_model_fn(make_loss, is_cross_shard):
    def model_fn(features, labels, mode):
        loss = make_loss(features, labels)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        if is_cross_shard:
            optimizer = est.CrossShardOptimizer(keras.optimizers.SGD(0.1))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def train(model_dir, make_loss, is_cross_shard, config, batch_size):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(batch_size)

    model_fn = make_model_fn(make_loss, is_cross_shard)
    with est.Estimator(model_fn, str(model_dir), config) as trained:
        trained.train(input_fn)
        names = [
            name for name in trained.get_variable_names() if "kernel" in name or "bias" in name
        ]
        weights = {name: trained.get_variable_value(name) for name in names}
        loss = trained.train_result.loss
        evaluated = trained.evaluate(input_fn)["loss"]
        assert trained.train_result.global_step == NUM_STEPS
    return weights, loss, evaluated


@pytest.mark.parametrize("make_loss", LOSSES, ids=lambda make: make.__name__)
def test_two_replicas_have_the_loss_and_the_weights_of_one(make_loss, tmp_path):
    index = LOSSES.index(make_loss)
    is_cross_shard, strategy = index % 2 == 0, ("mirrored", "central_storage")[index // 2]
    one, loss, evaluated = train(
        tmp_path / "one", make_loss, is_cross_shard, est.RunConfig(), BATCH_SIZE
    )
    config = est.RunConfig(strategy=strategy, num_replicas=2, iterations_per_loop=3)
    two, loss_of_two, evaluated_on_two = train(
        tmp_path / "two", make_loss, is_cross_shard, config, BATCH_SIZE // 2
    )
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(evaluated_on_two, evaluated, rtol=1e-5)
    np.testing.assert_allclose(loss_of_two, loss, rtol=1e-5)
