"""Keras optimizers that divide gradients by a scale, for which the loss has to be scaled."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases

V1 = tf.compat.v1
OPTIMIZERS = {
    "plain": lambda: keras.optimizers.SGD(0.1),
    "dynamic": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=1024.0
    ),
    "factor": lambda: keras.optimizers.SGD(0.1, loss_scale_factor=8.0),
}


def input_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(4)
    x = np.arange(32, dtype=np.float32).reshape(16, 2) / 32
    return tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(batch_size).repeat()


def trained(tmp_path, kind, *, scaled_by_program=False, by_parts=False, strategy, **wrapped):
    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.square(keras.layers.Dense(1)(features) - labels))
        optimizer = OPTIMIZERS[kind]()
        to_minimize = optimizer.scale_loss(loss) if scaled_by_program else loss
        step = V1.train.get_global_step()
        wrapper = est.CrossShardOptimizer(optimizer, **wrapped)
        if by_parts:
            train_op = wrapper.apply_gradients(wrapper.compute_gradients(to_minimize), step)
        else:
            train_op = wrapper.minimize(to_minimize, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(
        str(tmp_path / kind), tf_random_seed=1, iterations_per_loop=3, **cases.STRATEGIES[strategy]
    )
    model = est.Estimator(model_fn, config=config)
    model.train(input_fn, max_steps=4)
    return model.get_variable_value("dense/kernel")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scaled_by_program": True},
        {"by_parts": True},
        {"clip_norm": 0.1},
        {"clip_norm": 0.1, "scaled_by_program": True},
        {"accumulate_steps": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("kind", "strategy"),
    [("dynamic", "no_strategy"), ("dynamic", "mirrored_x2"), ("factor", "no_strategy")],
)
def test_the_scale_of_a_loss_changes_no_weights(kind, strategy, options, tmp_path):
    expected = trained(
        tmp_path, "plain", strategy=strategy, **{**options, "scaled_by_program": False}
    )
    actual = trained(tmp_path, kind, strategy=strategy, **options)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
