"""`model_to_estimator` against what Keras's own `fit`, `evaluate` and `predict` do."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.keras import load_weights, model_to_estimator
from tests.keras.sequential import make_sequential

_RANDOM = np.random.default_rng(0)
X = _RANDOM.normal(size=(80, 4)).astype(np.float32)
Y = (X.sum(1, keepdims=True) > 0).astype(np.float32)
WEIGHTS = _RANDOM.uniform(0.5, 2, size=80).astype(np.float32)
BATCH_SIZE, NUM_STEPS = 8, 10


class AddsLoss(keras.layers.Layer):
    """Counts its calls in training, and adds to the loss."""

    def build(self, input_shape):
        del input_shape
        self.count = self.add_weight(shape=[], initializer="zeros", trainable=False, name="count")

    def call(self, inputs, training=False):
        if training:
            self.count.assign_add(1.0)
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


class Subclassed(keras.Model):
    """Neither functional nor sequential; it has a metric of its own."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.hidden = keras.layers.Dense(units, activation="tanh", name="hidden")
        self.head = keras.layers.Dense(1, activation="sigmoid", name="head")

    def call(self, inputs):
        return self.head(self.hidden(inputs))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def mean_distance(y_true, y_pred):
    """A loss that Keras cannot serialize by a name."""
    return tf.reduce_mean(tf.abs(y_true - y_pred), -1)


def make_functional():
    a, b = keras.Input([2], name="a"), keras.Input([2], name="b")
    parts = [keras.layers.Dense(3, name=f"from_{x.name}")(x) for x in (a, b)]
    joined = AddsLoss(name="adds")(keras.layers.Concatenate(name="joined")(parts))
    p = keras.layers.Dense(1, activation="sigmoid", name="p")(joined)
    q = keras.layers.Dense(1, name="q")(joined)
    model = keras.Model([a, b], [p, q], name="two")
    rates = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
    model.compile(
        keras.optimizers.AdamW(rates, clipnorm=0.5, name="adamw"),
        loss=["binary_crossentropy", mean_distance],
        loss_weights=[1.0, 0.3],
        metrics={"p": ["accuracy"], "q": [keras.metrics.MeanAbsoluteError(name="mae")]},
    )
    return model


def make_subclassed():
    model = Subclassed(5, name="own")
    model(X[:1])
    model.compile(
        keras.optimizers.Adam(0.02, name="adam"),
        "mse",
        metrics=["mae"],
        weighted_metrics=[keras.metrics.MeanSquaredError(name="weighted")],
    )
    return model


def two_of(x, y):
    return {"a": x[:, :2], "b": x[:, 2:]}, {"p": y, "q": x[:, :1]}


# Model: what makes it, its data, and the weights of examples.
MODELS = {
    "sequential": (functools.partial(make_sequential, keras), lambda: (X, Y), None),
    "functional": (make_functional, lambda: two_of(X, Y), None),
    "subclassed": (make_subclassed, lambda: (X, Y), WEIGHTS),
}
# Batch norm on replicas is of each replica's batch.
CASES = [
    pytest.param("sequential", None, 1, marks=pytest.mark.full),
    ("sequential", "one_device", 4),
    pytest.param("functional", None, 4, marks=pytest.mark.full),
    ("functional", "mirrored", 100),
    ("subclassed", "central_storage", 4),
    ("subclassed", None, 1),
]


def make(kind):
    keras.utils.set_random_seed(3)
    return MODELS[kind][0]()


def make_input_fn(kind, batch_size=BATCH_SIZE):
    _, data, weights = MODELS[kind]
    x, y = data()
    if weights is not None:
        x = {"features": x, "sample_weights": weights}
    return lambda: tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)


@functools.cache
def fitted_by_keras(kind):
    """What Keras says of a model before and after `fit`."""
    _, data, weights = MODELS[kind]
    model = make(kind)
    given = data() if weights is None else (*data(), weights)
    batches = tf.data.Dataset.from_tensor_slices(given).batch(BATCH_SIZE)
    start = model.evaluate(batches, verbose=0, return_dict=True)
    predicted = model.predict(batches, verbose=0)
    model.fit(batches, epochs=1, shuffle=False, verbose=0)
    return {
        "start": start,
        "predicted": predicted,
        "weights": model.get_weights(),
        "metrics": model.evaluate(batches, verbose=0, return_dict=True),
    }


def assert_metrics(results, expected):
    results = {name: float(value) for name, value in results.items() if name != "global_step"}
    # Keras's loss is the mean over examples; so is ours, as all batches are of one size.
    assert results == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("kind", "strategy", "loop_steps"), CASES)
def test_training_gives_the_weights_and_metrics_of_fit(kind, strategy, loop_steps, tmp_path):
    fitted = fitted_by_keras(kind)
    num_replicas = 2 if strategy in ("mirrored", "central_storage") else 1
    config = est.RunConfig(iterations_per_loop=loop_steps)
    if strategy is not None:
        config = config.replace(strategy=strategy, num_replicas=num_replicas)
    model = make(kind)
    before = model.get_weights()
    with model_to_estimator(model, model_dir=str(tmp_path), config=config) as trained:
        assert_metrics(trained.evaluate(make_input_fn(kind)), fitted["start"])
        input_fn = make_input_fn(kind, BATCH_SIZE // num_replicas)
        trained.train(input_fn, max_steps=6)
        trained.train(input_fn, max_steps=NUM_STEPS)
        assert trained.train_result.global_step == NUM_STEPS
        assert_metrics(trained.evaluate(make_input_fn(kind)), fitted["metrics"])
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), fitted["weights"], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["sequential", "subclassed"])
def test_a_frozen_layer_stays_as_it_is(kind, tmp_path):
    model = make(kind)
    frozen = model.layers[0]
    frozen.trainable = False
    model.compile("sgd", "mse")
    before = frozen.get_weights()
    with model_to_estimator(model, model_dir=str(tmp_path)) as trained:
        trained.train(make_input_fn(kind), steps=2)
    last = model.layers[-1].get_weights()
    load_weights(model, str(tmp_path))
    for now, then in zip(frozen.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert np.any(model.layers[-1].get_weights()[0] != last[0])


def test_another_model_in_its_directory_leaves_the_weights_readable(tmp_path):
    model = make("sequential")
    with model_to_estimator(model, model_dir=str(tmp_path)) as trained:
        trained.train(make_input_fn("sequential"), steps=2)
    other = model_to_estimator(make("subclassed"), model_dir=str(tmp_path))
    with other, pytest.raises(ValueError, match="another model's"):
        other.train(make_input_fn("subclassed"), steps=2)
    load_weights(model, str(tmp_path))


@pytest.mark.parametrize("kind", MODELS)
def test_predictions_and_the_export_are_those_of_predict(kind, tmp_path):
    expected = tf.nest.flatten(fitted_by_keras(kind)["predicted"])
    with model_to_estimator(make(kind), model_dir=str(tmp_path / "model")) as trained:
        rows = list(trained.predict(make_input_fn(kind)))
        trained.train(make_input_fn(kind), steps=1)
        serving = receive_two if kind == "functional" else receive_one
        path = trained.export_saved_model(str(tmp_path / "export"), serving).decode()
        after = list(trained.predict(make_input_fn(kind)))
    names = {"sequential": ["last"], "functional": ["p", "q"], "subclassed": ["output_1"]}[kind]
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose([row[name] for row in rows], value, rtol=1e-5, atol=1e-6)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    x = two_of(X, Y)[0] if kind == "functional" else {"x": X}
    served = serve(**{name: tf.constant(value) for name, value in x.items()})
    for name in names:
        expected = [row[name] for row in after]
        np.testing.assert_allclose(served[name], expected, rtol=1e-5, atol=1e-6)


def receive_one():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4])
    return est.export.TensorServingInputReceiver(x, {"x": x})


def receive_two():
    given = {name: tf.compat.v1.placeholder(tf.float32, [None, 2]) for name in ("a", "b")}
    return est.export.ServingInputReceiver(given, given)


def test_metrics_and_outputs_get_other_names(tmp_path):
    with model_to_estimator(
        make("functional"),
        model_dir=str(tmp_path),
        metric_names_map={"q_mae": "distance"},
        export_outputs={"q": est.export.PredictOutput},
    ) as trained:
        trained.train(make_input_fn("functional"), steps=1)
        results = trained.evaluate(make_input_fn("functional"))
        assert {"distance", "p_accuracy"} < set(results)
        assert "q_mae" not in results
        path = trained.export_saved_model(str(tmp_path / "export"), receive_two).decode()
    loaded = tf.saved_model.load(path)
    assert set(loaded.signatures) >= {"serving_default", "q"}


def test_a_saved_model_is_loaded_with_its_custom_objects(tmp_path):
    model = make("subclassed")
    model.save(tmp_path / "own.keras")
    objects = {"Subclassed": Subclassed}
    path, model_dir = str(tmp_path / "own.keras"), str(tmp_path / "model")
    with model_to_estimator(
        keras_model_path=path, custom_objects=objects, model_dir=model_dir
    ) as trained:
        rows = [row["output_1"] for row in trained.predict(make_input_fn("subclassed"))]
    np.testing.assert_allclose(rows, model.predict(X, verbose=0), rtol=1e-5, atol=1e-6)
