"""Every optimizer of Keras 3 and tf-keras, compiled into a model: 20 steps are those of `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator.keras import load_weights, model_to_estimator
from tests.conformance.keras_optimizers import ROWS, Case, make_optimizer

NUM_STEPS, BATCH_SIZE = 20, 4
_RANDOM = np.random.default_rng(1)
X = _RANDOM.normal(size=(NUM_STEPS * BATCH_SIZE, 3)).astype(np.float32)
Y = (X.sum(1, keepdims=True) > 0).astype(np.float32)
CLASS_WEIGHT = {0: 1.0, 1: 3.0}
# They keep Python state, which their own tf.function reads once; eagerly they do as here.
WRONG_IN_A_FUNCTION = {("keras", "ScheduleFreeAdamW"), ("tf_keras", "Nadam")}
DEFAULT = {("keras", "AdamW"), ("keras", "LossScaleOptimizer"), ("tf_keras", "Nadam")}


def make_model(library, optimizer, run_eagerly=False):
    inputs = library.layers.Input([3], name="x")
    hidden = library.layers.Dense(4, activation="tanh", name="hidden")(inputs)
    model = library.Model(inputs, library.layers.Dense(1, name="out")(hidden), name="net")
    random = np.random.default_rng(2)
    model.set_weights([random.normal(size=weight.shape) for weight in model.get_weights()])
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    return model


def batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH_SIZE)


def check_trains_as_fit(make, input_fn, model_dir, **fit_arguments):
    fitted, model = make(), make()
    fitted.fit(batches(), epochs=1, shuffle=False, verbose=0, **fit_arguments)
    config = est.RunConfig(iterations_per_loop=6)
    with model_to_estimator(model, model_dir=model_dir, config=config) as trained:
        trained.train(input_fn)
        assert trained.train_result.global_step == NUM_STEPS
    load_weights(model, model_dir)
    for ours, theirs in zip(model.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("library", "name"),
    [pytest.param(*row, marks=[] if row in DEFAULT else [pytest.mark.full]) for row in ROWS],
)
def test_twenty_steps_are_those_of_fit(library, name, tmp_path):
    module = keras if library == "keras" else tf_keras

    def make():
        optimizer = make_optimizer(Case(library, name, "plain"))
        return make_model(module, optimizer, (library, name) in WRONG_IN_A_FUNCTION)

    check_trains_as_fit(make, batches, str(tmp_path))


def test_class_weights_are_weights_of_examples(tmp_path):
    def make():
        return make_model(keras, keras.optimizers.SGD(0.1, name="sgd"))

    def input_fn():
        def weigh(x, y):
            weights = tf.where(y[:, 0] > 0, CLASS_WEIGHT[1], CLASS_WEIGHT[0])
            return {"features": x, "sample_weights": weights}, y

        return batches().map(weigh)

    check_trains_as_fit(make, input_fn, str(tmp_path), class_weight=CLASS_WEIGHT)
