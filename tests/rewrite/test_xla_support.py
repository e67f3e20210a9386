"""Which operations XLA, and so a TPU, cannot compile: what is said of them, and whether it is so.

What no warning names is compiled here by XLA for the CPU, the whole program of one core.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator.rewrite.xla_support import warn_of_uncompilable_ops
from tests.described_tpu import make_strategy, running_with_xla
from tests.program.test_tpu_replicas import Run, batches_of, built, plain

v1 = tf.compat.v1


def trains(build_output, optimizer=lambda: v1.train.GradientDescentOptimizer(0.1)):
    """A `model_fn` whose loss is the mean of what `build_output` makes of [8, 3] numbers."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [3], initializer=v1.ones_initializer())
        loss = tf.reduce_mean(tf.square(build_output(features * w)))
        variables, step = v1.trainable_variables(), v1.train.get_global_step()
        chosen = optimizer()
        if isinstance(chosen, v1.train.Optimizer):
            return est.EstimatorSpec(mode, loss=loss, train_op=chosen.minimize(loss, step))
        gradients = tf.gradients(loss, variables)
        chosen.apply_gradients(list(zip(gradients, variables, strict=True)))
        return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))

    return model_fn


def messages_of(caplog):
    return [r.getMessage() for r in caplog.records if "cannot compile these" in r.getMessage()]


def gamma(x):
    return x + tf.random.gamma([8, 3], 2.0)  # This line is named.


@pytest.mark.parametrize("where", ["plain", "cond", "loop", "function", "function, twice"])
def test_the_line_that_made_an_operation_without_a_kernel_is_named(where, caplog):
    called = tf.function(lambda x: once(once(x)), autograph=False)
    once = tf.function(gamma, autograph=False)
    wrapped = {
        "plain": gamma,
        "cond": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: gamma(x), lambda: x),
        "loop": lambda x: tf.while_loop(lambda x: True, gamma, [x], maximum_iterations=2)[0],
        "function": tf.function(gamma, autograph=False),
        "function, twice": called,
    }
    built(trains(wrapped[where]), make_strategy(1), batches_of(8))
    (message,) = messages_of(caplog)
    assert "RandomGamma" in message
    assert f"{__file__}:" in message
    if where == "plain":
        assert f"{__file__}:{gamma.__code__.co_firstlineno + 1})" in message


def test_strings_and_python_functions_are_named(caplog):
    def output(x):
        number = tf.strings.to_number(tf.strings.as_string(x))
        return x + tf.stop_gradient(number) + tf.numpy_function(abs, [x[0, 0]], x.dtype)

    built(trains(output), make_strategy(1), batches_of(8))
    (message,) = messages_of(caplog)
    for name in ("AsString", "StringToNumber", "PyFunc"):
        assert name in message
    assert "host_call" in message


def test_what_is_not_of_the_program_is_not_looked_at(caplog):
    with tf.Graph().as_default() as graph:
        tf.random.gamma([3], 1.0)
    warn_of_uncompilable_ops(graph)
    assert messages_of(caplog) == []


def keras_layers(library):
    """By name, functions of [8, 3] that apply a layer, or a few."""
    layers, name = library.layers, library.__name__

    def wide(x):
        return tf.tile(x[:, :, None, None], [1, 2, 6, 1])  # [8, 6, 6, 1]

    def words(x):
        return tf.cast(tf.abs(x[:, :2]) * 3, tf.int32)  # [8, 2]

    def rows(x):
        return tf.tile(x[:, None], [1, 4, 1])  # [8, 4, 3]

    made = {
        "dense": lambda x: layers.Dense(4)(layers.Dense(4, activation="relu")(x)),
        "convolution": lambda x: layers.MaxPooling2D()(layers.Conv2D(2, 3)(wide(x))),
        "separable": lambda x: layers.AveragePooling2D(2)(layers.SeparableConv2D(2, 3)(wide(x))),
        "transposed": lambda x: layers.Conv2DTranspose(2, 3)(wide(x)),
        "batch norm": lambda x: layers.BatchNormalization()(x, training=True),
        "layer norm": lambda x: layers.LayerNormalization()(x) + x,
        "dropout": lambda x: layers.Dropout(0.5, seed=1)(x, training=True),
        "noise": lambda x: layers.GaussianNoise(0.5, seed=1)(x, training=True),
        "embedding": lambda x: layers.Embedding(50, 4)(words(x)),
        "lstm": lambda x: layers.LSTM(4)(rows(x)),
        "gru": lambda x: layers.GRU(4)(rows(x)),
        "attention": lambda x: layers.MultiHeadAttention(2, 4)(rows(x), rows(x)),
    }
    return {f"{name} {layer}": function for layer, function in made.items()}


LAYERS = {**keras_layers(keras), **keras_layers(tf_keras)}


def keras_optimizers(library):
    names = ["SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Ftrl", "Lion"]
    names += ["Nadam", "Lamb"] if library is keras else ["Adafactor"]
    return {
        f"{library.__name__} {name}": lambda name=name: getattr(library.optimizers, name)(0.1)
        for name in names
    }


OPTIMIZERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "Adadelta": lambda: v1.train.AdadeltaOptimizer(0.1),
    "Adam": lambda: v1.train.AdamOptimizer(0.1),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "ProximalAdagrad": lambda: v1.train.ProximalAdagradOptimizer(0.1),
    "ProximalGradientDescent": lambda: v1.train.ProximalGradientDescentOptimizer(0.1),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.1, centered=True),
    **keras_optimizers(keras),
    **keras_optimizers(tf_keras),
}
DRAWS = ("dropout", "noise")  # XLA makes other floats of the same random bits.
IN_DEFAULT_RUN = {"keras lstm", "keras attention", "tf_keras convolution", "RMSProp", "keras Adam"}


def cases(table):
    return [
        name if name in IN_DEFAULT_RUN else pytest.param(name, marks=pytest.mark.full)
        for name in table
    ]


def check_compiles(model_fn, caplog, is_drawn=False):
    """XLA makes the steps that the CPU's kernels make, or a warning says that it cannot."""
    strategies = {"xla": make_strategy(1), "plain": tf.distribute.get_strategy()}
    losses = {}
    for name, strategy in strategies.items():
        program = built(model_fn, strategy, batches_of(8))
        assert messages_of(caplog) == []
        running = running_with_xla if name == "xla" else plain
        with running(program.graph) as (session, place):
            losses[name] = [Run(program, session, place).steps(count)[0] for count in (1, 3)]
    assert np.isfinite(losses["xla"]).all()
    if not is_drawn:
        np.testing.assert_allclose(losses["xla"], losses["plain"], rtol=1e-3)


@pytest.mark.parametrize("layer", cases(LAYERS))
def test_xla_compiles_each_layer_that_no_warning_names(layer, caplog):
    check_compiles(trains(LAYERS[layer]), caplog, is_drawn=layer.endswith(DRAWS))


@pytest.mark.parametrize("optimizer", cases(OPTIMIZERS))
def test_xla_compiles_each_optimizer_that_no_warning_names(optimizer, caplog):
    check_compiles(trains(lambda x: x - 3.0, OPTIMIZERS[optimizer]), caplog)
