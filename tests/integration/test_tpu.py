"""A TPUEstimator on a TPU of two cores, from the first step to predictions.

The TPU is described and not there, and CPUs run what its cores would (`tests/described_tpu.py`).
All else is the library as it is: inputs, loops, checkpoints, event files, metrics.
"""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests import toy
from tests.described_tpu import DescribedTPU, open_session

v1 = tf.compat.v1
W = np.array([1.0, -2.0, 0.5], np.float32)
BATCH = 16


@pytest.fixture
def on_cpus(monkeypatch):
    monkeypatch.setattr(tf.compat.v1, "Session", open_session)
    monkeypatch.setattr("estimator.session.train.start_tpu", lambda strategy: "")
    monkeypatch.setattr("estimator.session.warm.start_tpu", lambda strategy: "")


def data(count, seed=0):
    x = np.random.default_rng(seed).normal(size=[count, 3]).astype(np.float32)
    return x, (x @ W > 0).astype(np.int64)


def train_input(params):
    both = tf.data.Dataset.from_tensor_slices(data(256))
    both = both.shuffle(256, seed=1).repeat()
    return both.batch(params["batch_size"], drop_remainder=True)


def eval_input(count):
    return lambda params: tf.data.Dataset.from_tensor_slices(data(count, 1)).batch(
        params["batch_size"]
    )


def metric_fn(labels, logits):
    return {
        "accuracy": v1.metrics.accuracy(labels, tf.cast(logits > 0, tf.int64)),
        "rows": v1.metrics.true_positives(tf.ones_like(labels), tf.ones_like(labels)),
    }


def model_fn(features, labels, mode, params):
    """As programs for TPUs are written: a wrapped optimizer, `host_call`, `eval_metrics`."""
    w = v1.get_variable("w", [3], initializer=v1.zeros_initializer())
    logits = tf.linalg.matvec(features, w)
    predictions = {"x": features, "probability": tf.sigmoid(logits)}
    if mode == est.ModeKeys.PREDICT:
        return est.tpu.TPUEstimatorSpec(mode, predictions=predictions)
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == est.ModeKeys.EVAL:  # One an example: it does not depend on the batch size.
        loss = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
    v1.summary.scalar("my_loss", tf.reduce_mean(loss))
    optimizer = est.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(0.05))
    step = v1.train.get_global_step()
    return est.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, step) if mode == est.ModeKeys.TRAIN else None,
        eval_metrics=(metric_fn, [labels, logits]),
    )


def make(model_dir, num_cores=2, iterations_per_loop=10):
    return est.tpu.TPUEstimator(
        model_fn,
        str(model_dir),
        est.tpu.RunConfig(
            cluster=DescribedTPU(num_cores) if num_cores else None,
            tpu_config=est.tpu.TPUConfig(iterations_per_loop=iterations_per_loop),
            save_checkpoints_steps=25,
            save_summary_steps=20,
            tf_random_seed=1,
        ),
        use_tpu=bool(num_cores),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
    )


def test_train_evaluate_and_predict_are_those_of_one_cpu(tmp_path, on_cpus):
    results = {}
    for num_cores in (0, 2):
        with make(tmp_path / str(num_cores), num_cores) as model:
            model.train(train_input, max_steps=60)
            evaluated = model.evaluate(eval_input(1009))
            predicted = list(model.predict(eval_input(7)))
            results[num_cores] = model.get_variable_value("w"), evaluated, predicted
            assert toy.checkpoint_steps(model.model_dir) == [25, 50, 60]
            summaries = [e[0] for e in toy.events(model.model_dir) if e[1] == "my_loss"]
            assert summaries == [20, 40, 60]
    (w, evaluated, rows), (expected_w, expected, expected_rows) = results[2], results[0]
    np.testing.assert_allclose(w, expected_w, rtol=1e-5)
    assert evaluated["rows"] == 1009
    for name, value in expected.items():
        np.testing.assert_allclose(evaluated[name], value, rtol=1e-5, err_msg=name)
    assert evaluated["accuracy"] > 0.9
    assert len(rows) == 7
    for row, expected_row in zip(rows, expected_rows, strict=True):
        np.testing.assert_allclose(row["probability"], expected_row["probability"], rtol=1e-4)


@pytest.mark.parametrize("iterations_per_loop", [1, 100])
def test_a_resumed_run_is_the_unbroken_one(iterations_per_loop, tmp_path, on_cpus):
    with make(tmp_path / "unbroken", 2, iterations_per_loop) as unbroken:
        unbroken.train(train_input, max_steps=40)
    for max_steps in (15, 40):
        with make(tmp_path / "resumed", 2, iterations_per_loop) as resumed:
            resumed.train(train_input, max_steps=max_steps)
    for name in unbroken.get_variable_names():
        np.testing.assert_array_equal(
            resumed.get_variable_value(name), unbroken.get_variable_value(name), err_msg=name
        )


def test_what_a_tpu_trained_goes_on_without_one(tmp_path, on_cpus):
    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=20)
        expected = on_tpu.evaluate(eval_input(100))
    with make(tmp_path, 0) as without:
        assert without.evaluate(eval_input(100))["loss"] == pytest.approx(expected["loss"], 1e-5)
        without.train(train_input, max_steps=30)
        assert without.train_result.global_step == 30
    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=40)
        assert on_tpu.train_result.global_step == 40


def test_evaluation_on_the_host_takes_other_specs(tmp_path, on_cpus):
    def plain_spec(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec if mode == est.ModeKeys.TRAIN else spec.as_estimator_spec()

    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=20)
        expected = on_tpu.evaluate(eval_input(100))
        config = on_tpu.config
    with est.tpu.TPUEstimator(
        plain_spec,
        str(tmp_path),
        config.replace(strategy=None),
        use_tpu=True,
        eval_on_tpu=False,
        eval_batch_size=BATCH,
    ) as model:
        results = model.evaluate(eval_input(100))
    assert results["rows"] == 100
    assert results["loss"] == pytest.approx(expected["loss"], 1e-5)


def test_training_ends_with_the_input(tmp_path, on_cpus):
    def short_input(params):
        return train_input(params).take(9)  # Of two cores: 4 steps, and a batch for one of them.

    with make(tmp_path, 2) as model:
        model.train(short_input)
        assert model.train_result.global_step == 4
        assert model.train_result.reason == "end of input"
