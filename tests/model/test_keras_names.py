"""Variables of Keras layers have the same names whatever else a mode builds, and as on 2.15."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1
STRATEGIES = {
    "no_strategy": {},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2},
    "central_storage_x2": {"strategy": "central_storage", "num_replicas": 2},
}


def input_fn():
    return tf.data.Dataset.from_tensors((tf.ones([4, 3]), tf.ones([4, 1]))).repeat(400)


class WithSideLoss(keras.Model):
    """In training, it builds a layer more, before the last one and of the same shape."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(4)
        self.side = keras.layers.Dense(4)
        self.out = keras.layers.Dense(4)

    def call(self, x, training=False):
        x = self.hidden(x)
        if training:
            self.add_loss(tf.reduce_mean(self.side(x) ** 2))
        return self.out(x)


def make_side_loss(features, labels, mode):
    model = WithSideLoss()
    y = model(features, training=mode == est.ModeKeys.TRAIN)
    loss = tf.reduce_mean((y - labels) ** 2)
    optimizer = V1.train.GradientDescentOptimizer(0.1)
    train_op = optimizer.minimize(
        tf.add_n([loss, *model.losses]), V1.train.get_global_step(), model.trainable_variables
    )
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=y)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 10])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_evaluation_has_the_weights_of_a_layer_after_one_that_only_training_builds(
    strategy, loop, tmp_path
):
    config = est.RunConfig(tmp_path, iterations_per_loop=loop, **strategy)
    with est.Estimator(make_side_loss, config=config) as trained:
        trained.train(input_fn)
        assert trained.train_result.loss < 1e-6
        # By the name "with_side_loss/kernel_1", it got those of `side`, and a loss of about 1.
        assert trained.evaluate(input_fn, steps=1)["loss"] < 1e-6


def make_called_often(features, labels, mode):
    """What training calls more often than other modes comes before layers without names."""
    shared = keras.Sequential([keras.Input([3]), keras.layers.Dense(3), keras.layers.Dense(3)])
    x = shared(features)
    if mode == est.ModeKeys.TRAIN:
        x += shared(tf.reverse(features, [1]))
    y = keras.layers.Dense(1)(keras.layers.Dense(2)(x))
    loss = tf.reduce_mean((y - labels) ** 2)
    optimizer = V1.train.MomentumOptimizer(0.01, 0.9)
    train_op = optimizer.minimize(loss, V1.train.get_global_step(), V1.trainable_variables())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, predictions=y)


def test_names_are_those_of_layers_and_not_of_their_calls(tmp_path):
    with est.Estimator(make_called_often, tmp_path) as trained:
        trained.train(input_fn, steps=1)
        layers = {name.partition("/")[0] for name in trained.get_variable_names()}
        assert layers == {"dense", "dense_1", "dense_2", "dense_3", "global_step"}
        assert np.isfinite(trained.evaluate(input_fn, steps=1)["loss"])


def test_ops_of_a_layer_are_in_the_scope_of_its_variables(tmp_path):
    """A hook that logs "dense_1/MatMul:0" finds it, as on 2.15."""

    def model_fn(features, mode):
        y = keras.layers.Dense(4)(features)
        y = keras.layers.Dense(1)(y)
        loss = tf.reduce_mean(y)
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    class Fetching(V1.train.SessionRunHook):
        def before_run(self, run_context):
            return V1.train.SessionRunArgs(["dense/MatMul:0", "dense_1/MatMul:0"])

        def after_run(self, run_context, run_values):
            self.shapes = [value.shape for value in run_values.results]

    hook = Fetching()
    with est.Estimator(model_fn, tmp_path) as trained:
        trained.train(lambda: input_fn().map(lambda features, _: features), [hook], steps=1)
    assert hook.shapes == [(4, 4), (4, 1)]
