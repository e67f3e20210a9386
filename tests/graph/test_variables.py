"""Variables that a model_fn makes in other ways than `get_variable` and layers."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import numbers

STRATEGIES = [
    {},
    {"strategy": "mirrored", "num_replicas": 2},
    {"strategy": "central_storage", "num_replicas": 2},
]


@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_variable_may_start_from_a_tensor_an_array_or_a_function(
    tmp_path, strategy, iterations_per_loop
):
    def model_fn(features, mode):
        variables = [
            tf.Variable([1.0, 2.0], name="list"),
            tf.Variable(np.float32([3.0, 4.0]), name="array"),
            tf.Variable(lambda: tf.constant([5.0, 6.0]), name="function"),
            tf.Variable(tf.constant([6.0]) + 1.0, name="tensor"),
        ]
        loss = tf.add_n([tf.reduce_sum(variable) for variable in variables])
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, **strategy)
    with est.Estimator(model_fn, str(tmp_path), config) as trained:
        trained.train(numbers(), steps=5)
        assert trained.train_result.loss == 28.0
        values = {name: trained.get_variable_value(name).tolist() for name in NAMES}
    assert values == NAMES


NAMES = {"list": [1, 2], "array": [3, 4], "function": [5, 6], "tensor": [7]}
