import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from input_pipelines import verses
from models import transformer
from tests.toy import scalars

V1 = tf.compat.v1
SMALL = {"size": 32, "num_heads": 2}
PARAMS = {**transformer.DEFAULTS, **SMALL}
# Of the 886 test verses; three seeds have 0.828 to 0.854. A logistic regression on counts of words
# has 0.82, the most common book 0.32.
LOWEST_ACCURACY = 0.79


def make_classifier(model_dir, loop_steps, **options):
    params = {"train_steps": 200, "summary_dir": f"{model_dir}/host", **SMALL}
    config = est.tpu.RunConfig(
        model_dir=str(model_dir),
        tf_random_seed=1,
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=loop_steps),
        **options,
    )
    return est.tpu.TPUEstimator(
        transformer.model_fn,
        config=config,
        params=params,
        train_batch_size=64,
        eval_batch_size=200,
        predict_batch_size=200,
    )


@pytest.mark.slow
def test_200_steps_from_tfrecords_tell_the_books_apart(tmp_path):
    path = str(tmp_path / "train.tfrecord")
    verses.write_examples(verses.read_examples("train"), path)
    with make_classifier(tmp_path, loop_steps=100) as classifier:
        train_input_fn = verses.make_tfrecord_input_fn(path, training=True, seed=1)
        classifier.train(train_input_fn, max_steps=200)
        metrics = classifier.evaluate(verses.make_input_fn("test"))
        predictions = list(classifier.predict(verses.make_input_fn("test")))
    assert metrics["accuracy"] > LOWEST_ACCURACY
    labels = [label for _, label in verses.read_examples("test")]
    hits = [p["classes"] == label for p, label in zip(predictions, labels, strict=True)]
    assert np.mean(hits) == pytest.approx(metrics["accuracy"])
    rates = scalars(tmp_path / "host", "learning_rate")
    assert rates == pytest.approx({0: 3e-3 / 50, 100: 3e-3 * 2 / 3})


def test_replicas_train_it_too(tmp_path):
    cluster = {"strategy": "mirrored", "num_replicas": 2}
    with make_classifier(tmp_path, loop_steps=2, **cluster) as classifier:
        result = classifier.train(verses.make_input_fn("train", training=True, seed=1), steps=2)
    assert result.train_result.global_step == 2
    assert result.train_result.loss == pytest.approx(np.log(4), abs=0.7)


def run_logits(tokens, params=PARAMS):
    """The logits of fresh weights, the same in each call."""
    with tf.Graph().as_default(), V1.Session() as session:
        V1.set_random_seed(1)
        logits = transformer.build_logits(tf.constant(tokens), params, is_training=False)
        session.run(V1.global_variables_initializer())
        return session.run(logits)


def test_padding_does_not_change_the_logits():
    tokens = np.array([[5, 6, 7, 8], [9, 10, 0, 0]], np.int32)
    padded = np.pad(tokens, [(0, 0), (0, 20)])
    np.testing.assert_allclose(run_logits(padded), run_logits(tokens), rtol=1e-4, atol=1e-6)


def test_the_order_of_words_changes_the_logits():
    first, second = run_logits(np.array([[5, 6, 7, 8], [8, 7, 6, 5]], np.int32))
    assert np.abs(first - second).max() > 1e-4


def test_a_text_without_words_has_logits():
    assert np.isfinite(run_logits(np.zeros([1, 4], np.int32))).all()


@pytest.mark.parametrize(
    ("params", "length", "message"),
    [
        ({"size": 6, "num_heads": 4}, 8, r'num_heads"\]` \(4\) .* \(6\), .* from \[1, 2, 3, 6\]'),
        ({"num_heads": 0}, 8, r'`params\["num_heads"\]` \(0\) must divide'),
        ({}, 129, r"\(129\) must be known and at most 128\. Cut"),
        ({}, None, r'`features\["tokens"\]` \(None\) must be known'),
    ],
)
def test_sizes_that_do_not_fit_are_refused(params, length, message):
    with tf.Graph().as_default():
        features = {"tokens": V1.placeholder(tf.int32, [2, length])}
        with pytest.raises(ValueError, match=message):
            transformer.model_fn(features, None, est.ModeKeys.PREDICT, params)


def test_lower_layers_have_lower_rates():
    params = {"num_layers": 2, "layer_decay": 0.5}
    names = ["logits/kernel", "norm/scale", "layer_1/hidden/bias", "layer_0/outputs/kernel"]
    names += ["embedding/words"]
    factors = [transformer.find_rate_factor(name, params) for name in names]
    assert factors == [1.0, 1.0, 0.5, 0.25, 0.125]


@pytest.mark.parametrize("mode", [est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT])
def test_every_mode_has_the_same_variables(mode):
    with tf.Graph().as_default():
        labels = None if mode == est.ModeKeys.PREDICT else tf.zeros([2], tf.int32)
        transformer.model_fn({"tokens": tf.zeros([2, 8], tf.int32)}, labels, mode, SMALL)
        sizes = [int(np.prod(v.shape)) for v in V1.trainable_variables()]
    a_layer = (3 + 1) * 32 * 32 + 2 * 4 * 32 * 32 + (3 + 1 + 4 + 1) * 32 + 2 * 2 * 32
    assert sum(sizes) == (4000 + 128) * 32 + 2 * a_layer + 2 * 32 + 32 * 4 + 4
