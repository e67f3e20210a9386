import glob

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from models import mnist_cnn, mnist_mlp

MODELS = {"mnist_cnn": mnist_cnn, "mnist_mlp": mnist_mlp}
NUM_PARAMETERS = {"mnist_cnn": 454_922, "mnist_mlp": 79_510}
PARAMS = {"learning_rate": 0.002, "decay_steps": 10, "decay_rate": 0.8}
MODES = [est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT]

with np.load("input_pipelines/mnist_5k/mnist_5k.npz") as arrays:
    IMAGES = (arrays["train_images"][::40, ..., np.newaxis] / 255.0 - 0.5).astype(np.float32)
    LABELS = arrays["train_labels"][::40].astype(np.int32)


@pytest.fixture(params=sorted(MODELS))
def name(request):
    return request.param


@pytest.fixture
def model_fn(name):
    return MODELS[name].model_fn


def build(model_fn, mode):
    """Builds the model on all 100 digits, in the default graph."""
    labels = None if mode == est.ModeKeys.PREDICT else tf.constant(LABELS)
    return model_fn({"image": tf.constant(IMAGES)}, labels, mode, PARAMS)


def make_classifier(model_fn, model_dir):
    config = est.tpu.RunConfig(
        model_dir=str(model_dir),
        tf_random_seed=1,
        save_summary_steps=10,
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=10),
    )
    return est.tpu.TPUEstimator(
        model_fn, config=config, params=PARAMS, train_batch_size=50, eval_batch_size=50
    )


def input_fn(params, mode):
    digits = tf.data.Dataset.from_tensor_slices(({"image": IMAGES}, LABELS))
    if mode == est.ModeKeys.TRAIN:
        digits = digits.repeat()
    return digits.batch(params["batch_size"])


def read_scalar(value):
    """A scalar of an event file, as either version of tf.summary writes it."""
    return float(tf.make_ndarray(value.tensor)) if value.HasField("tensor") else value.simple_value


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_the_same_variables(name, model_fn, mode):
    with tf.Graph().as_default():
        build(model_fn, mode)
        variables = {v.name: v.shape.as_list() for v in tf.compat.v1.trainable_variables()}
    assert sum(np.prod(shape) for shape in variables.values()) == NUM_PARAMETERS[name]
    assert variables["logits/kernel:0"][-1] == 10
    assert variables["logits/bias:0"] == [10]


def test_predictions_are_classes_probabilities_and_logits(model_fn):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        predictions = build(model_fn, est.ModeKeys.PREDICT).predictions
        session.run(tf.compat.v1.global_variables_initializer())
        values = session.run(predictions)
    assert {key: (value.shape, value.dtype) for key, value in values.items()} == {
        "classes": ((100,), np.int32),
        "probabilities": ((100, 10), np.float32),
        "logits": ((100, 10), np.float32),
    }
    np.testing.assert_allclose(values["probabilities"].sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(values["classes"], values["logits"].argmax(axis=1))


def test_the_number_of_examples_may_vary(model_fn):
    with tf.Graph().as_default():
        images = tf.compat.v1.placeholder(tf.float32, [None, 28, 28, 1])
        spec = model_fn({"image": images}, None, est.ModeKeys.PREDICT, PARAMS)
        assert spec.predictions["logits"].shape.as_list() == [None, 10]


def test_only_training_drops_units_of_the_cnn():
    def run_twice(is_training):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            logits = mnist_cnn.build_logits(tf.constant(IMAGES[:5]), is_training)
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(logits), session.run(logits)

    np.testing.assert_array_equal(*run_twice(is_training=False))
    first, second = run_twice(is_training=True)
    assert np.abs(first - second).max() > 0


def test_training_lowers_the_loss(model_fn, tmp_path):
    with make_classifier(model_fn, tmp_path) as classifier:
        classifier.train(input_fn, max_steps=1)
        before = classifier.evaluate(input_fn)
        classifier.train(input_fn, max_steps=60)
        after = classifier.evaluate(input_fn)
    assert after["global_step"] == 60
    assert after["loss"] < before["loss"] / 3
    assert after["accuracy"] > 0.9


def test_the_learning_rate_decays_by_its_rate_every_so_many_steps(tmp_path):
    with make_classifier(mnist_mlp.model_fn, tmp_path) as classifier:
        classifier.train(input_fn, max_steps=40)
    rates = {}
    for path in glob.glob(str(tmp_path / "events*")):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.tag == "learning_rate":
                    rates[event.step] = read_scalar(value)
    assert {20, 30, 40} <= set(rates)
    assert rates[30] / rates[20] == pytest.approx(PARAMS["decay_rate"], rel=1e-5)
    assert rates[40] / rates[30] == pytest.approx(PARAMS["decay_rate"], rel=1e-5)
