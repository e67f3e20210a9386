"""Optimizers without methods for resource variables, on several replicas."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.contract.test_own_optimizers import OPTIMIZERS

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def _without_resource_variables():
    v1.disable_resource_variables()
    yield
    v1.enable_resource_variables()


@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_replicas_train_as_one(tmp_path, case, loop):
    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [2, 1], initializer=v1.ones_initializer())
        table = v1.get_variable("table", [3, 1], initializer=v1.zeros_initializer())
        y = tf.matmul(features["x"], w) + tf.gather(table, features["id"])
        loss = tf.reduce_mean(tf.square(y - 2))
        train_op = OPTIMIZERS[case]().minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        batch = {"x": np.float32([[0, 1], [1, 2]]), "id": np.int64([0, 2])}
        return tf.data.Dataset.from_tensors(batch).repeat()

    def weights(**config):
        config = est.RunConfig(iterations_per_loop=loop, **config)
        path = str(tmp_path / str(config.num_replicas))
        with est.Estimator(model_fn, path, config) as model:
            model.train(input_fn, steps=6)
            return [model.get_variable_value(name).ravel().tolist() for name in ("w", "table")]

    one, two = weights(), weights(strategy="mirrored", num_replicas=2)
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, abs=1e-6)
