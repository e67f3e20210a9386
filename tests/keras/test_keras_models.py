"""Models with something special: an Estimator trains and evaluates them as Keras does."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from estimator.keras import load_weights, model_to_estimator

_RANDOM = np.random.default_rng(1)
X = _RANDOM.normal(size=(32, 3)).astype(np.float32)
Y = (X @ np.float32([[1], [-2], [0.5]])).astype(np.float32)
IDS = _RANDOM.integers(10, 15, size=(32, 1))
TEXTS = np.array([["a b"], ["b"], ["c a"], ["a"]] * 8, object)
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


class Watched(keras.layers.Layer):
    """Has a metric of its own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.mean = keras.metrics.Mean(name="inside")

    def call(self, x):
        self.mean.update_state(keras.ops.mean(x))
        return 2 * x


def stack(*layers, dtype=None, **options):
    last = keras.layers.Dense(1, kernel_constraint="unit_norm", name="y")
    inputs = keras.Input([3 if dtype is None else 1], dtype=dtype, name="x")
    model = keras.Sequential([inputs, *layers, last], name="stack")
    model.compile(keras.optimizers.SGD(0.1, name="sgd"), "mse", **options)
    return model


def constrained():
    return stack()


def with_a_lambda():
    return stack(keras.layers.Lambda(lambda x: 3 * x, name="triple"))


def watched():
    return stack(Watched(name="watched"))


def of_texts():
    layer = keras.layers.TextVectorization(output_mode="multi_hot", name="texts")
    layer.adapt(TEXTS[:, 0])
    return stack(layer, dtype="string")


def of_text_ids():
    layer = keras.layers.TextVectorization(
        vocabulary=["a", "b"], output_sequence_length=2, name="texts"
    )
    embedded = keras.layers.Embedding(4, 2, name="embedding")
    return stack(layer, embedded, keras.layers.Flatten(name="flat"), dtype="string")


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
    constrained: LINE,
    with_a_lambda: LINE,
    watched: LINE,
    of_texts: ({"x": TEXTS}, Y),
    of_text_ids: ({"x": TEXTS}, Y),
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
        predicted = [row["y"] for row in trained.predict(input_fn)]
    theirs = expected.predict(batches.map(lambda x, y: x), verbose=0)
    theirs = theirs["y"] if isinstance(theirs, dict) else theirs
    np.testing.assert_allclose(predicted, theirs, rtol=1e-4, atol=1e-6)
    load_weights(model, str(tmp_path))
    for ours, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    theirs = expected.evaluate(batches, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, theirs, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["mirrored", "central_storage"])
def test_constraints_hold_on_replicas(strategy, tmp_path):
    def batches(size):
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)

    expected, model = make(constrained), make(constrained)
    expected.fit(batches(8), epochs=1, shuffle=False, verbose=0)
    config = est.RunConfig(str(tmp_path), strategy=strategy, num_replicas=2, iterations_per_loop=3)
    with model_to_estimator(model, config=config) as trained:
        trained.train(lambda: batches(4))
    load_weights(model, str(tmp_path))
    np.testing.assert_allclose(model.get_weights()[0], expected.get_weights()[0], rtol=1e-5)


def minimize(optimizer, loss, step, variables):
    return optimizer.minimize(loss, step, var_list=variables)


def apply_by_hand(optimizer, loss, step, variables):
    grads_and_vars = optimizer.compute_gradients(loss, variables)
    return optimizer.apply_gradients(grads_and_vars, step)


def apply_bare(optimizer, loss, step, variables):
    variables = tf.compat.v1.trainable_variables() if variables is None else variables
    optimizer.apply_gradients(zip(tf.gradients(loss, variables), variables, strict=True))
    return tf.compat.v1.assign_add(step, 1)


def variables_of_layer(layer):
    return layer.trainable_variables


def variables_of_wrapped(layer):
    return tf.compat.v1.trainable_variables()


def no_variables(layer):
    return None


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("list_variables", [variables_of_layer, variables_of_wrapped, no_variables])
@pytest.mark.parametrize(
    ("make_optimizer", "update"),
    [
        (lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1), minimize),
        (lambda: est.CrossShardOptimizer(keras.optimizers.SGD(0.1)), minimize),
        (lambda: est.CrossShardOptimizer(keras.optimizers.SGD(0.1)), apply_by_hand),
        (lambda: keras.optimizers.SGD(0.1), apply_bare),
    ],
    ids=["v1", "keras", "by_hand", "bare"],
)
def test_constraints_hold_in_a_model_fn(
    make_optimizer, update, list_variables, num_replicas, tmp_path
):
    def model_fn(features, labels, mode):
        layer = keras.layers.Dense(1, kernel_constraint="unit_norm", name="y")
        loss = tf.reduce_mean(tf.square(layer(features) - labels))
        step = tf.compat.v1.train.get_global_step()
        train_op = update(make_optimizer(), loss, step, list_variables(layer))
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    strategy = "mirrored" if num_replicas > 1 else None
    config = est.RunConfig(str(tmp_path), strategy=strategy, num_replicas=num_replicas)
    with est.Estimator(model_fn, config=config) as trained:
        trained.train(lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(8))
        kernel = trained.get_variable_value("y/kernel")
    assert np.linalg.norm(kernel) == pytest.approx(1, rel=1e-5)


def distance(y_true, y_pred):
    return keras.ops.mean(keras.ops.abs(y_true - y_pred), axis=-1)


def test_metrics_may_hold_custom_objects(tmp_path):
    model = line("sgd", metrics=[keras.metrics.MeanMetricWrapper(distance, name="far")])
    expected = model.evaluate(X, Y, batch_size=BATCH_SIZE, verbose=0, return_dict=True)
    custom = {"distance": distance}
    with model_to_estimator(model, custom_objects=custom, model_dir=str(tmp_path)) as trained:
        result = trained.evaluate(
            lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH_SIZE)
        )
    assert result["far"] == pytest.approx(expected["far"], rel=1e-5)


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


@pytest.mark.parametrize("strategy", [None, "mirrored"])
@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_an_evaluation_needs_no_variable_of_the_optimizer(library, strategy, tmp_path):
    """A converted model of 2.15 has saved them by other names, or in no collection, not at all."""
    model = library.Sequential([library.Input([2]), library.layers.Dense(1, name="line")])
    model.compile(library.optimizers.Adam(0.1), "mse")

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((np.eye(4, 2), np.ones([4, 1]))).batch(2)

    config = est.RunConfig(strategy=strategy, num_replicas=2 if strategy else None)
    with model_to_estimator(model, model_dir=str(tmp_path), config=config) as trained:
        trained.train(input_fn)
        weights = {f"line/{n}": trained.get_variable_value(f"line/{n}") for n in ("kernel", "bias")}
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            step = tf.compat.v1.train.get_or_create_global_step()
            saved = [step, *(tf.Variable(value, name=name) for name, value in weights.items())]
            session.run(tf.compat.v1.global_variables_initializer())
            path = tf.compat.v1.train.Saver(saved).save(session, str(tmp_path / "weights"))
        loss = trained.evaluate(input_fn, checkpoint_path=path)["loss"]
        assert loss == trained.evaluate(input_fn)["loss"]
