"""What `model_to_estimator` says of models and inputs that do not fit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.keras import load_weights, model_to_estimator


class OwnStep(keras.Model):
    def call(self, inputs):
        return inputs

    def train_step(self, data):
        return {}


def make_model(*layers, has_input=True, is_compiled=True):
    start = [keras.Input([2], name="x")] if has_input else []
    model = keras.Sequential([*start, *layers, keras.layers.Dense(1)], name="mine")
    if is_compiled:
        model.compile("sgd", "mse")
    return model


def own_step():
    model = OwnStep(name="mine")
    model.compile("sgd", "mse")
    model(np.zeros([1, 2]))
    return model


class OwnCompile(keras.Sequential):
    def compile(self, optimizer, alpha=1.0):
        super().compile(optimizer, "mse")


class OwnFunctional(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 2.0 * super().compute_loss(x, y, y_pred, sample_weight)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return keras.Model.from_config(config)

    def __init__(self, units, **kwargs):
        inputs = keras.Input([2])
        super().__init__(inputs, keras.layers.Dense(units)(inputs), **kwargs)


def own_compile():
    model = OwnCompile([keras.Input([2]), keras.layers.Dense(1)], name="mine")
    model.compile("sgd", alpha=3.0)
    return model


def own_class():
    model = OwnFunctional(1, name="mine")
    model.compile("sgd", "mse")
    return model


def frozen():
    model = make_model()
    model.trainable = False
    model.compile("sgd", "mse")
    return model


def undecayed():
    model = make_model()
    optimizer = keras.optimizers.AdamW(0.1, name="mine")
    optimizer.exclude_from_weight_decay(var_list=model.trainable_variables[1:])
    model.compile(optimizer, "mse")
    return model


class Growing(keras.Model):
    """Has layers of which its configuration says nothing."""

    def __init__(self, units=(1,), **kwargs):
        super().__init__(**kwargs)
        self.all = [keras.layers.Dense(size) for size in units]

    def call(self, inputs):
        for layer in self.all:
            inputs = layer(inputs)
        return inputs

    def get_config(self):
        return {"name": self.name}


def growing():
    model = Growing((3, 1), name="mine")
    model.compile("sgd", "mse")
    model(np.zeros([1, 2]))
    return model


def stateful(wrap=lambda layer: layer):
    inputs = keras.Input(batch_shape=[4, 3, 2])
    outputs = wrap(keras.layers.LSTM(2, stateful=True, name="memory"))(inputs)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: None, ValueError, "exactly one of `keras_model`"),
        (lambda: "a path", TypeError, "must be a model of Keras 3"),
        (lambda: make_model(is_compiled=False), ValueError, "'mine'.*not compiled"),
        (lambda: make_model(has_input=False), ValueError, "'mine'.*not built"),
        (own_step, ValueError, "`train_step` of its own"),
        (own_compile, ValueError, "`compile` of its own"),
        (own_class, ValueError, "OwnFunctional cannot be copied"),
        (frozen, ValueError, "'mine'.*no weights to train"),
        (undecayed, ValueError, r"'mine'.*excludes variables.*var_names=\[\.\.\.\]"),
        (stateful, ValueError, "'memory'.*stateful"),
        (lambda: stateful(keras.layers.Bidirectional), ValueError, "memory.*stateful"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        model_to_estimator(make())


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="exactly one of.*'path'"):
        model_to_estimator(make_model(), "path")
    with pytest.raises(ValueError, match="checkpoint_format.*load_weights"):
        model_to_estimator(make_model(), checkpoint_format="checkpoint")


def input_fn(**features):
    rows = {name: np.zeros([4, 2], np.float32) for name in features}
    return lambda: tf.data.Dataset.from_tensor_slices((rows, np.zeros([4, 1]))).batch(2)


def test_features_and_names_that_the_model_does_not_have_are_named(tmp_path):
    inputs = keras.Input([2], name="x")
    model = keras.Model(inputs, keras.layers.Dense(1, name="y")(inputs))
    model.compile("sgd", "mse")
    told = pytest.raises(ValueError, match=r"lack \['x'\].*gives \['z'\]")
    with model_to_estimator(model, model_dir=str(tmp_path)) as trained, told:
        trained.train(input_fn(z=1))
    renamed = model_to_estimator(
        model, model_dir=str(tmp_path), metric_names_map={"nothing": "other"}
    )
    with renamed, pytest.raises(ValueError, match=r"renames \['nothing'\]"):
        renamed.evaluate(input_fn(x=1))
    with trained, pytest.raises(ValueError, match=r"labels are \['z'\].*outputs.* are \['y'\]"):
        trained.train(lambda: input_fn(x=1)().map(lambda x, y: (x, {"z": y})))
    told = pytest.raises(ValueError, match=r"`export_outputs` has \['z'\], .* outputs are \['y'\]")
    outputs = {"z": est.export.PredictOutput}
    exported = model_to_estimator(model, model_dir=str(tmp_path), export_outputs=outputs)
    with exported, told:
        list(exported.predict(input_fn(x=1)))
    model.compile("sgd", "mse", metrics=["mae", "mse"])
    names = {"mae": "error", "mse": "error"}
    same = model_to_estimator(model, model_dir=str(tmp_path), metric_names_map=names)
    with same, pytest.raises(ValueError, match="two metrics one name"):
        same.evaluate(input_fn(x=1))


def test_a_copy_with_other_weights_is_refused(tmp_path):
    message = "The copy of `keras_model` has 2 weights, and the model 4. Its `get_config` must"
    with (
        model_to_estimator(growing(), model_dir=str(tmp_path)) as trained,
        pytest.raises(ValueError, match=message),
    ):
        trained.train(lambda: input_fn(x=1)().map(lambda x, y: (x["x"], y)))


def test_weights_of_another_model_are_refused(tmp_path):
    with model_to_estimator(make_model(), model_dir=str(tmp_path)) as trained:
        trained.train(input_fn(x=1), steps=1)
    other = make_model(keras.layers.Dense(3))
    message = "`model` .'mine'. does not have the weights of the checkpoint in `model_dir` .*Pass a"
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_weights(other, str(tmp_path))


def test_a_directory_without_a_trained_model_gives_no_weights(tmp_path):
    with pytest.raises(ValueError, match="holds no checkpoint"):
        load_weights(make_model(), str(tmp_path))
    with pytest.raises(TypeError, match="must be a Keras model"):
        load_weights("model", str(tmp_path))
