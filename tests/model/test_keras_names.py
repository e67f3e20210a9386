"""Variables of Keras layers have the same names whatever else a mode builds, and as on 2.15."""

import threading

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


def build_called_often(features, is_training):
    """What training calls once more."""
    shared = keras.Sequential([keras.Input([3]), keras.layers.Dense(3), keras.layers.Dense(3)])
    x = shared(features)
    return x + shared(tf.reverse(features, [1])) if is_training else x


def build_added(features, is_training):
    """What training adds one more layer to: at each `add`, Keras calls all layers again."""
    grown = keras.Sequential([keras.Input([3])])
    grown.add(keras.layers.Dense(3))
    if is_training:
        grown.add(keras.layers.Activation("tanh"))
    grown.add(keras.layers.Dense(3))
    return grown(features)


@pytest.mark.parametrize("build", [build_called_often, build_added])
def test_names_are_those_of_layers_and_not_of_their_calls(build, tmp_path):
    def model_fn(features, labels, mode):
        x = build(features, mode == est.ModeKeys.TRAIN)
        y = keras.layers.Dense(1)(keras.layers.Dense(2)(x))
        loss = tf.reduce_mean((y - labels) ** 2)
        optimizer = V1.train.MomentumOptimizer(0.01, 0.9)
        train_op = optimizer.minimize(loss, V1.train.get_global_step(), V1.trainable_variables())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with est.Estimator(model_fn, tmp_path) as trained:
        trained.train(input_fn, steps=1)
        layers = {name.partition("/")[0] for name in trained.get_variable_names()}
        assert layers == {"dense", "dense_1", "dense_2", "dense_3", "global_step"}
        assert np.isfinite(trained.evaluate(input_fn, steps=1)["loss"])


def test_a_network_of_keras_has_the_variables_that_it_had_on_2_15(tmp_path):
    """`applications.MobileNet` has unnamed layers of its own, depthwise ones and a Dropout."""

    def model_fn(features, labels, mode):
        net = keras.applications.MobileNet((32, 32, 3), 0.25, weights=None, classes=2)
        loss = tf.reduce_mean(net(tf.ones([1, 32, 32, 3])))
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with est.Estimator(model_fn, tmp_path) as trained:
        trained.train(input_fn, steps=1)
        names = set(trained.get_variable_names())
    # As listed by TensorFlow 2.15.1, with the global step.
    norms = ["conv1_bn", *(f"conv_{kind}_{i}_bn" for i in range(1, 14) for kind in ("dw", "pw"))]
    parts = ("gamma", "beta", "moving_mean", "moving_variance")
    assert names == {
        *("global_step", "conv1/kernel", "conv_preds/kernel", "conv_preds/bias"),
        *(f"{norm}/{part}" for norm in norms for part in parts),
        *(f"conv_dw_{i}/depthwise_kernel" for i in range(1, 14)),
        *(f"conv_pw_{i}/kernel" for i in range(1, 14)),
        "seed_generator/seed_generator_state",  # Of Keras 3 alone; it may be missing.
    }


def test_no_weights_are_exchanged_if_training_alone_has_a_layer_of_the_same_name(tmp_path):
    """The names are fc, fc_1 and fc_2: those of the heads are not for what was added before."""

    def model_fn(features, labels, mode):
        is_training = mode == est.ModeKeys.TRAIN
        model = keras.Sequential([keras.Input([3])])
        model.add(keras.layers.Dense(3, name="fc"))
        if not is_training:
            model.add(keras.layers.Softmax())

        def head(value):
            start = keras.initializers.Constant(value)
            return keras.layers.Dense(1, name="fc", bias_initializer=start)

        main, side = head(1.0), head(2.0)
        x = model(features)
        loss = tf.reduce_sum(main(x)) + (tf.reduce_sum(side(x)) if is_training else 0.0)
        return est.EstimatorSpec(
            mode,
            loss=loss,
            train_op=V1.train.get_global_step().assign_add(1),
            predictions=tf.reshape(main.bias.value, [1]),
        )

    with est.Estimator(model_fn, tmp_path) as trained:
        trained.train(input_fn, steps=1)
        assert list(trained.predict(lambda: input_fn().take(1))) == [1.0]


def test_another_thread_has_the_names_of_keras(tmp_path):
    """An Estimator that builds concerns its own graph alone."""
    names = []

    def build_elsewhere():
        with tf.Graph().as_default():
            model = WithSideLoss()
            model(tf.ones([1, 3]), training=True)
            names.append([weight.value.name for weight in model.weights])

    def build_in_another_thread():
        thread = threading.Thread(target=build_elsewhere)
        thread.start()
        thread.join()

    def model_fn(features, labels, mode):
        build_in_another_thread()
        return make_side_loss(features, labels, mode)

    build_in_another_thread()
    with est.Estimator(model_fn, tmp_path) as trained:
        trained.train(input_fn, steps=1)
    assert names[0] == names[1]


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
