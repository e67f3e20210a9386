"""Models of tf-keras: `model_to_estimator` against their own `fit`, and in a `model_fn`."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

import estimator as est
from estimator.keras import load_weights, model_to_estimator
from tests.keras.sequential import make_sequential

_RANDOM = np.random.default_rng(0)
X = _RANDOM.normal(size=(80, 4)).astype(np.float32)
Y = (X.sum(1, keepdims=True) > 0).astype(np.float32)
WEIGHTS = _RANDOM.uniform(0.5, 2, size=80).astype(np.float32)
BATCH_SIZE, NUM_STEPS = 8, 10


class AddsLoss(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(0.1 * tf.reduce_mean(inputs**2))
        return inputs


class Subclassed(keras.Model):
    """Neither functional nor sequential."""

    def __init__(self, units=5, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.hidden = keras.layers.Dense(units, activation="tanh", name="hidden")
        self.head = keras.layers.Dense(1, name="head")

    def call(self, inputs):
        return self.head(self.hidden(inputs))

    def get_config(self):
        return {"units": self.units, "name": self.name}


def make_functional():
    a, b = keras.Input([2], name="a"), keras.Input([2], name="b")
    parts = [keras.layers.Dense(3, name=f"from_{x.name}")(x) for x in (a, b)]
    joined = AddsLoss(name="adds")(keras.layers.Concatenate(name="joined")(parts))
    p = keras.layers.Dense(1, activation="sigmoid", name="p")(joined)
    q = keras.layers.Dense(1, name="q")(joined)
    model = keras.Model([a, b], [p, q], name="two")
    rates = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
    optimizer = keras.optimizers.AdamW(rates, clipnorm=0.5, name="adamw")
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(
        optimizer,
        loss=["binary_crossentropy", "mae"],
        loss_weights=[1.0, 0.3],
        metrics=[["accuracy"], ["mae"]],
    )
    return model


def make_subclassed():
    model = Subclassed(name="own")
    model(X[:1])
    weighted = [keras.metrics.MeanSquaredError(name="weighted")]
    optimizer = keras.optimizers.legacy.Adam(0.02, name="adam")
    model.compile(optimizer, "mse", metrics=["mae"], weighted_metrics=weighted)
    return model


def make_with_old_optimizer():
    model = keras.Sequential([keras.layers.Dense(1, activation="sigmoid", name="p")], name="old")
    model.build([None, 4])
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    model.compile(optimizer, "binary_crossentropy", metrics=["mae"])
    return model


TWO = {"a": X[:, :2], "b": X[:, 2:]}, {"p": Y, "q": X[:, :1]}
# What makes the model, its data, the weights of examples, a strategy of two replicas.
CASES = [
    (functools.partial(make_sequential, keras), (X, Y), None, None, 4),
    (make_functional, TWO, None, None, 1),
    (make_functional, TWO, None, "mirrored", 4),
    (make_subclassed, (X, Y), WEIGHTS, "central_storage", 4),
    (make_with_old_optimizer, (X, Y), None, None, 4),
    (make_with_old_optimizer, (X, Y), None, "mirrored", 1),
]


def assert_metrics(results, expected):
    results = {name: float(value) for name, value in results.items() if name != "global_step"}
    assert results == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("make", "data", "weights", "strategy", "loop_steps"), CASES)
def test_training_gives_the_weights_and_metrics_of_fit(
    make, data, weights, strategy, loop_steps, tmp_path
):
    fitted, model = make(), make()
    # Not by tf-keras's seed, which holds for the whole process.
    random = np.random.default_rng(3)
    weights_before = [random.uniform(0.1, 0.6, weight.shape) for weight in model.get_weights()]
    fitted.set_weights(weights_before)
    model.set_weights(weights_before)
    given = data if weights is None else (*data, weights)
    batches = tf.data.Dataset.from_tensor_slices(given).batch(BATCH_SIZE)
    start = fitted.evaluate(batches, verbose=0, return_dict=True)
    fitted.fit(batches, epochs=1, shuffle=False, verbose=0)
    end = fitted.evaluate(batches, verbose=0, return_dict=True)

    num_replicas = 1 if strategy is None else 2
    config = est.RunConfig(iterations_per_loop=loop_steps)
    if strategy is not None:
        config = config.replace(strategy=strategy, num_replicas=num_replicas)
    features, labels = data
    if weights is not None:
        features = {"features": features, "sample_weights": weights}

    def read(batch_size):
        return lambda: tf.data.Dataset.from_tensor_slices((features, labels)).batch(batch_size)

    with model_to_estimator(model, model_dir=str(tmp_path), config=config) as trained:
        assert_metrics(trained.evaluate(read(BATCH_SIZE)), start)
        trained.train(read(BATCH_SIZE // num_replicas), max_steps=6)
        trained.train(read(BATCH_SIZE // num_replicas), max_steps=NUM_STEPS)
        assert_metrics(trained.evaluate(read(BATCH_SIZE)), end)
        predicted = next(iter(trained.predict(read(BATCH_SIZE))))
    load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    # The model that was made eagerly still works eagerly.
    outputs = model.predict(batches, verbose=0)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    for ours, theirs in zip(predicted.values(), outputs, strict=True):
        np.testing.assert_allclose(ours, theirs[0], rtol=1e-4, atol=1e-6)


def make_recurrent():
    kept = {
        "kernel_constraint": keras.constraints.MaxNorm(0.5),
        "recurrent_constraint": "unit_norm",
    }
    cells = [keras.layers.GRUCell(3, **kept), keras.layers.LSTMCell(3, **kept)]
    layers = [
        keras.layers.SimpleRNN(3, **kept),
        keras.layers.Bidirectional(keras.layers.LSTM(2, **kept)),
        keras.Sequential([keras.layers.GRU(3, **kept)]),
        keras.layers.RNN(cells),
    ]
    sequence = keras.Input([4], name="sequence")
    steps = keras.layers.Reshape([4, 1])(sequence)
    joined = keras.layers.Concatenate()([layer(steps) for layer in layers])
    model = keras.Model(sequence, keras.layers.Dense(1)(joined))
    model.compile(keras.optimizers.SGD(0.5, use_ema=True, ema_overwrite_frequency=2), "mse")
    return model


@pytest.mark.parametrize("iterations_per_loop", [1, 2])
def test_constraints_and_averages_of_recurrent_layers_follow_the_updates(
    iterations_per_loop, tmp_path
):
    model = make_recurrent()
    random = np.random.default_rng(3)
    model.set_weights([random.uniform(-0.6, 0.6, w.shape) for w in model.get_weights()])
    config = est.RunConfig(str(tmp_path), iterations_per_loop=iterations_per_loop)

    def read():
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)

    model_to_estimator(model, config=config).train(read)
    for batch in read():
        model.train_on_batch(*batch)  # At its end, `fit` replaces the weights by their averages.
    fitted = model.get_weights()
    load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), fitted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


class AddsMetric(keras.layers.Layer):
    def call(self, inputs):
        self.add_metric(tf.reduce_mean(inputs), name="mean")
        return inputs


class OwnLoss(keras.Model):
    def compute_loss(self, *args, **kwargs):
        return super().compute_loss(*args, **kwargs)


def with_op(inputs):
    return keras.Model(inputs, keras.layers.Dense(1)(inputs) + 1.0, name="ops")


def with_metric(inputs):
    return keras.Model(inputs, AddsMetric(name="adds")(keras.layers.Dense(1)(inputs)), name="old")


def with_own_loss(inputs):
    return OwnLoss(inputs, keras.layers.Dense(1)(inputs), name="old")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (with_op, "'ops'.*applies an op of TensorFlow.*Lambda layer"),
        (with_metric, "'adds'.*adds metrics.*Pass them to `compile`"),
        (with_own_loss, "`compute_loss` of its own.*Write a `model_fn`"),
    ],
)
def test_what_cannot_be_copied_is_refused(make, words):
    model = make(keras.Input([2]))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=words):
        model_to_estimator(model)


@pytest.mark.parametrize("name", ["directory", "model.h5", "model.keras"])
def test_a_saved_model_is_loaded(tmp_path, name):
    """Keras 3 can load none of them."""
    model = make_sequential(keras)
    model.save(tmp_path / name, save_format="tf" if name == "directory" else None)
    with model_to_estimator(
        keras_model_path=str(tmp_path / name), model_dir=str(tmp_path / "estimator")
    ) as loaded:
        rows = list(loaded.predict(lambda: tf.data.Dataset.from_tensor_slices(X).batch(8)))
    found = np.stack([next(iter(row.values())) for row in rows])
    np.testing.assert_allclose(found, model.predict(X, verbose=0), rtol=1e-5, atol=1e-6)


class Penalized(keras.layers.Layer):
    """Adds a loss that does not depend on its inputs."""

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=[shape[-1]], initializer="ones")

    def call(self, inputs):
        self.add_loss(0.1 * tf.reduce_sum(self.kernel**2))
        return inputs * self.kernel


@pytest.mark.parametrize("is_functional", [True, False])
def test_a_loss_of_weights_alone_counts_once(tmp_path, is_functional):
    layers = [Penalized(name="penalized"), keras.layers.Dense(1, name="dense")]
    if is_functional:
        inputs = keras.Input([2])
        model = keras.Model(inputs, layers[1](layers[0](inputs)), name="penalized")
    else:
        model = keras.Sequential([keras.layers.InputLayer([2]), *layers], name="penalized")
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([[1], [2]])
    objects = {"Penalized": Penalized}
    with model_to_estimator(model, custom_objects=objects, model_dir=str(tmp_path)) as trained:
        trained.train(lambda: (tf.constant(x), tf.constant(y)), steps=1)
        found = [trained.get_variable_value(f"{name}/kernel") for name in ("penalized", "dense")]
    model.train_on_batch(x, y)
    for ours, theirs in zip(found, [layer.kernel for layer in layers], strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5)


def test_inputs_of_a_model_that_was_made_in_a_graph_have_their_names(tmp_path):
    with tf.Graph().as_default():  # As after `tf.compat.v1.disable_v2_behavior()`.
        inputs = [keras.Input([2], name=name) for name in ("a", "b")]
        outputs = keras.layers.Dense(1, kernel_initializer="ones", name="y")(
            keras.layers.concatenate(inputs)
        )
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.legacy.SGD(0.25), "mse")
        trained = model_to_estimator(model, model_dir=str(tmp_path))
    features = {"b": [[2.0, 4.0]], "a": [[1.0, 0.0]]}
    trained.train(lambda: tf.data.Dataset.from_tensors((features, [[5.0]])), steps=1)
    np.testing.assert_allclose(
        trained.get_variable_value("y/kernel"), [[0.0], [1.0], [-1.0], [-3.0]], rtol=1e-5
    )


@pytest.mark.parametrize("is_in_graph", [True, False])
def test_a_metric_object_that_tf_keras_has_renamed_has_one_prefix(is_in_graph, tmp_path):
    """tf-keras renames it where it is compiled in a graph, and otherwise in `evaluate`."""
    with tf.Graph().as_default() if is_in_graph else contextlib.nullcontext():
        x = keras.Input([4], name="x")
        outputs = [keras.layers.Dense(1, "sigmoid", name=name)(x) for name in ("p", "q")]
        model = keras.Model(x, outputs)
        model.compile("sgd", "mse", metrics={"p": [keras.metrics.AUC(name="area")], "q": "AUC"})
        if not is_in_graph:
            model.evaluate(X, [Y, Y], verbose=0)
        converted = model_to_estimator(model, model_dir=str(tmp_path))
    results = converted.evaluate(lambda: tf.data.Dataset.from_tensors((X, (Y, Y))))
    assert set(results) == {"global_step", "loss", "p_area", "p_loss", "q_AUC", "q_loss"}


def two_weighted(**arguments):
    model = keras.Sequential([keras.layers.InputLayer([4]), keras.layers.Dense(1, "sigmoid")])
    model.compile("sgd", "mse", metrics=["mae", "AUC"], weighted_metrics=["mae"])
    with model_to_estimator(model, **arguments) as converted:
        return converted.evaluate(lambda: tf.data.Dataset.from_tensors((X, Y)))


@pytest.mark.parametrize("names", [("mae", "AUC", "mae_1"), ("mae", "auc", "weighted_mae")])
def test_metrics_can_be_renamed_by_their_names_in_tf_kerass_evaluate(names, tmp_path):
    keras.backend.clear_session()
    new = dict(zip(names, ("error", "area", "weighted"), strict=True))
    results = two_weighted(metric_names_map=new, model_dir=str(tmp_path))
    assert set(results) == {"error", "area", "weighted", "loss", "global_step"}


def test_two_new_names_of_one_metric_are_an_error(tmp_path):
    keras.backend.clear_session()
    new = {"AUC": "one", "auc": "two"}
    with pytest.raises(ValueError, match="`metric_names_map` .* renames one metric twice"):
        two_weighted(metric_names_map=new, model_dir=str(tmp_path))


def test_an_optimizer_that_scales_the_loss_is_refused():
    model = keras.Sequential([keras.layers.InputLayer([2]), keras.layers.Dense(1)], name="old")
    model.compile(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
    with pytest.raises(ValueError, match="'old'.*scales the loss.*mixed_bfloat16"):
        model_to_estimator(model)


def test_a_functional_model_may_have_an_op_of_tensorflow_between_its_layers(tmp_path):
    def model_fn(features, labels, mode):
        inputs = keras.Input([2])
        dense = keras.layers.Dense(1, kernel_initializer="ones", name="dense")
        model = keras.Model(inputs, dense(tf.reshape(inputs, [-1, 2]) * 0.5))
        loss = tf.reduce_mean(tf.square(model(features)))
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    kernels = []
    for loop in (1, 3):
        config = est.RunConfig(f"{tmp_path}/{loop}", iterations_per_loop=loop)
        model = est.Estimator(model_fn, config=config)
        model.train(lambda: tf.data.Dataset.from_tensors([[1.0, 2.0]]).repeat(), steps=6)
        kernels.append(model.get_variable_value("dense/kernel"))
    assert kernels[0].min() < 1.0
    np.testing.assert_allclose(*kernels, rtol=1e-6)
