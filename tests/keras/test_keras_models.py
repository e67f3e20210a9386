"""Models with something special: an Estimator trains and evaluates them as Keras does."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from estimator.keras import load_weights, model_to_estimator

_RANDOM = np.random.default_rng(1)
X = _RANDOM.normal(size=(32, 3)).astype(np.float32)
Y = (X @ np.float32([[1], [-2], [0.5]])).astype(np.float32)
IDS = _RANDOM.integers(10, 15, size=(32, 1))
BATCH_SIZE, NUM_STEPS = 8, 4


def line(optimizer, **options):
    inputs = keras.Input([3], name="x")
    hidden = keras.layers.Dense(4, activation="tanh", name="hidden")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, name="y")(hidden), name="line")
    model.compile(optimizer, "mse", **options)
    return model


def scaled_loss():
    return line(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, name="sgd")))


def loss_scale_factor():
    return line(keras.optimizers.SGD(0.1, loss_scale_factor=8.0, name="sgd"))


def without_weight_decay():
    optimizer = keras.optimizers.AdamW(0.05, weight_decay=0.3, name="adamw")
    optimizer.exclude_from_weight_decay(var_names=["bias", "y/"])
    return line(optimizer)


class OwnLoss(keras.Model):
    """Functional, with a loss that differs between training and evaluation."""

    def __init__(self, factor=3.0, **kwargs):
        inputs = keras.Input([3], name="x")
        super().__init__(inputs, keras.layers.Dense(1, name="y")(inputs), **kwargs)
        self.factor = factor

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        return self.factor * loss if training else loss

    def get_config(self):
        return {"factor": self.factor, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def own_loss():
    model = OwnLoss(2.0, name="own")
    model.compile(keras.optimizers.SGD(0.05, name="sgd"), "mse")
    return model


class PartlyFrozen(keras.layers.Layer):
    """Has a layer that is frozen after it was made."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.frozen = keras.layers.Dense(4, name="frozen")
        self.trained = keras.layers.Dense(4, name="trained")

    def build(self, input_shape):
        self.frozen.build(input_shape)
        self.trained.build([None, 4])

    def call(self, inputs):
        return self.trained(self.frozen(inputs))


def partly_frozen():
    inputs = keras.Input([3], name="x")
    layer = PartlyFrozen(name="partly")
    last = keras.layers.Dense(1, name="y")
    model = keras.Model(inputs, last(layer(inputs)), name="frozen")
    layer.frozen.trainable = False
    last.bias.trainable = False
    model.compile(keras.optimizers.SGD(0.1, name="sgd"), "mse")
    return model


def shared_by_nested_models():
    inputs, shared = keras.Input([3], name="x"), keras.layers.Dense(3, name="shared")
    inner_inputs = keras.Input([3], name="inside")
    inner = keras.Model(inner_inputs, shared(inner_inputs), name="inner")
    outputs = keras.layers.Dense(1, name="y")(inner(shared(inputs)))
    model = keras.Model(inputs, outputs, name="outer")
    model.compile(keras.optimizers.SGD(0.1, name="sgd"), "mse")
    return model


def by_keys():
    given = {"u": keras.Input([3], name="a"), "v": keras.Input([1], name="b", dtype="int64")}
    lookup = keras.layers.IntegerLookup(name="lookup", output_mode="one_hot")
    lookup.adapt(np.arange(10, 15))
    joined = keras.layers.Concatenate(name="joined")([given["u"], lookup(given["v"])])
    outputs = {
        "y": keras.layers.Dense(1, name="first")(joined),
        "z": keras.layers.Dense(1, name="second")(joined),
    }
    model = keras.Model(given, outputs, name="keys")
    model.compile(keras.optimizers.SGD(0.1, name="sgd"), {"y": "mse"})
    return model


LINE = ({"x": X}, Y)
MODELS = {
    scaled_loss: LINE,
    loss_scale_factor: LINE,
    without_weight_decay: LINE,
    own_loss: LINE,
    partly_frozen: LINE,
    shared_by_nested_models: LINE,
    by_keys: ({"u": X, "v": IDS, "more": X}, {"y": Y}),
}


def make(make_model):
    keras.utils.set_random_seed(5)
    return make_model()


@pytest.mark.parametrize("make_model", MODELS, ids=lambda make_model: make_model.__name__)
def test_a_special_model_is_trained_and_evaluated_as_by_keras(make_model, tmp_path):
    features, labels = MODELS[make_model]

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH_SIZE)

    expected = make(make_model)
    names = [name for name in features if name != "more"]
    batches = input_fn().map(lambda x, y: ({name: x[name] for name in names}, y))
    expected.fit(batches, epochs=1, shuffle=False, verbose=0)
    model = make(make_model)
    with model_to_estimator(model, model_dir=str(tmp_path)) as trained:
        trained.train(input_fn)
        loss = trained.evaluate(input_fn)["loss"]
        assert trained.train_result.global_step == NUM_STEPS
    load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    theirs = expected.evaluate(batches, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, theirs, rtol=1e-5)


def late_model(library):
    """Its layers are frozen, but the last, which is made when the model is first called."""

    class Late(library.Model):
        def __init__(self):
            super().__init__()
            self.norm = library.layers.BatchNormalization()
            self.hidden = library.Sequential([library.layers.Dense(3)])
            self.last = None

        def call(self, inputs, training=False):
            if self.last is None:
                self.last = library.layers.Dense(1)
            return self.last(self.hidden(self.norm(inputs, training=training)))

        def get_config(self):
            return {}

    model = Late()
    model(np.zeros([1, 2], np.float32))
    random = np.random.default_rng(3)
    model.set_weights([random.uniform(1, 2, np.shape(weight)) for weight in model.get_weights()])
    model.norm.trainable = model.hidden.layers[0].trainable = False
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("library", [keras, tf_keras])
def test_frozen_layers_stay_frozen_beside_one_that_is_made_in_a_call(library, tmp_path):
    def input_fn():
        x = np.random.default_rng(4).normal(size=(12, 2)).astype(np.float32)
        return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(3)

    model, fitted = late_model(library), late_model(library)
    before = model.get_weights()
    fitted.fit(input_fn(), shuffle=False, verbose=0)
    with model_to_estimator(model, model_dir=str(tmp_path)) as trained:
        trained.train(input_fn)
    load_weights(model, str(tmp_path))
    for value, expected in zip(model.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    moved = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert sum(moved) == 2


def test_two_models_in_one_directory_each_start_from_their_own_weights(tmp_path):
    models = [line(keras.optimizers.SGD(0.1, name="sgd")) for _ in range(2)]

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(len(X))

    estimators = [model_to_estimator(model, model_dir=str(tmp_path)) for model in models]
    for i in (0, 1, 0):
        estimators[i].close()
        expected = models[i].evaluate(X, Y, verbose=0)
        np.testing.assert_allclose(estimators[i].evaluate(input_fn)["loss"], expected, rtol=1e-5)
    for trained in estimators:
        trained.close()


def test_options_that_have_no_effect_are_told(caplog):
    model_to_estimator(line("sgd", jit_compile=True, steps_per_execution=7))
    assert "`jit_compile=True`" in caplog.text
    assert "Set `iterations_per_loop` of the RunConfig." in caplog.text
