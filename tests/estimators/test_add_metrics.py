"""`add_metrics`: the evaluation of the new estimator has the metrics of both."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", [{}, {"strategy": "mirrored", "num_replicas": 2}], ids=str
)


def with_labels(count):
    """An input_fn of 0, 1, ... in batches of 2, each with ten times itself as its label."""
    return lambda: tf.data.Dataset.range(count).map(lambda x: (x, 10 * x)).batch(2)


@STRATEGIES
def test_metric_fn_may_take_features_labels_predictions_and_config(tmp_path, strategy):
    def metric_fn(features, labels, predictions, config):
        assert config.model_dir == str(tmp_path)
        return {
            "mean_label": v1.metrics.mean(labels),
            "mean_prediction": v1.metrics.mean(predictions),
            "max": v1.metrics.mean(2 * features),
        }

    original = est.Estimator(Model(), str(tmp_path), est.RunConfig(**strategy))
    original.train(numbers(), steps=2)
    w = original.get_variable_value("w")
    results = est.add_metrics(original, metric_fn).evaluate(with_labels(8))
    assert results["mean"] == pytest.approx(3.5)
    assert results["mean_label"] == pytest.approx(35)
    assert results["max"] == pytest.approx(7)
    assert results["mean_prediction"] == pytest.approx(3.5 * w, rel=1e-6)
    assert "mean_label" not in original.evaluate(with_labels(8))


def test_the_new_estimator_trains_and_predicts_the_same_model_in_the_same_directory(tmp_path):
    def model_fn(features, labels, mode, params):
        assert params == {"rate": 3}
        return Model()(features, labels, mode)

    def input_fn(params):
        return numbers(params["rate"])()

    def metric_fn(labels):
        raise AssertionError("Only an evaluation has metrics.")

    original = est.Estimator(model_fn, str(tmp_path), params={"rate": 3})
    more = est.add_metrics(original, metric_fn)
    more.train(input_fn)
    assert (
        original.latest_checkpoint() == more.latest_checkpoint() == str(tmp_path / "model.ckpt-3")
    )
    assert list(more.predict(numbers(3))) == list(original.predict(numbers(3)))


def test_a_metric_of_the_same_name_stands_for_that_of_the_model(tmp_path):
    original = est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=1)
    more = est.add_metrics(original, lambda features: {"mean": v1.metrics.mean(-features)})
    assert more.evaluate(numbers(3))["mean"] == -1
    again = est.add_metrics(more, lambda features: {"again": v1.metrics.mean(features)})
    results = again.evaluate(numbers(3))
    assert (results["mean"], results["again"]) == (-1, 1)


def test_a_keras_metric_will_do(tmp_path):
    def metric_fn(labels, **others):
        assert not others
        metric = tf.keras.metrics.Mean()
        metric.update_state(labels)
        return {"keras": metric}

    original = est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=1)
    assert est.add_metrics(original, metric_fn).evaluate(with_labels(5))["keras"] == 20


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize("names", [None, "by name", "by position"])
def test_a_tpu_estimator_keeps_its_batch_sizes_and_its_own_metrics(tmp_path, strategy, names):
    def model_fn(features, labels, mode, params):
        spec = Model()(features["x"], labels, mode)
        tensors = {"by name": {"x": features["x"]}, "by position": [features["x"]]}.get(names)
        return est.tpu.TPUEstimatorSpec(
            mode,
            predictions={"x": spec.predictions},
            loss=spec.loss,
            train_op=spec.train_op,
            eval_metrics=tensors and (lambda x: {"mean": v1.metrics.mean(x)}, tensors),
        )

    def input_fn(params):
        data = tf.data.Dataset.range(12).map(lambda x: ({"x": x}, (x, 2 * x)))
        return data.batch(params["batch_size"], drop_remainder=True)

    def metric_fn(features, labels, predictions, config):
        assert predictions.keys() == {"x"}
        assert config.iterations_per_loop == 1
        count = tf.size(features["x"])
        return {
            "batch_size": v1.metrics.mean(count),
            "second_label": v1.metrics.mean(labels[1]),
        }

    config = est.tpu.RunConfig(tpu_config=est.tpu.TPUConfig(iterations_per_loop=1), **strategy)
    original = est.tpu.TPUEstimator(
        model_fn, str(tmp_path), config, train_batch_size=2, eval_batch_size=4
    )
    more = est.add_metrics(original, metric_fn)
    assert isinstance(more, est.tpu.TPUEstimator)
    more.train(input_fn)
    assert more.train_result.global_step == 6
    results = more.evaluate(input_fn)
    assert results["batch_size"] == 4 / (2 if strategy else 1)
    assert results["second_label"] == 11
    assert results.get("mean") == (5.5 if names else None)


def test_sparse_features_reach_the_metric_fn_of_a_tpu_estimator(tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features.values, labels, mode)
        return est.tpu.TPUEstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    def input_fn():
        rows = tf.data.Dataset.from_tensors(tf.sparse.from_dense([0.0, 3.0, 0.0, 5.0]))
        return rows.batch(1)

    def metric_fn(features, labels):
        assert labels is None
        return {"sum": v1.metrics.mean(tf.sparse.reduce_sum(features))}

    original = est.tpu.TPUEstimator(model_fn, str(tmp_path))
    more = est.add_metrics(original, metric_fn).train(input_fn)
    assert more.evaluate(input_fn)["sum"] == 8


@pytest.mark.parametrize("kind", [est.Estimator, est.tpu.TPUEstimator])
def test_the_new_estimator_starts_from_the_same_old_model(tmp_path, kind):
    old = kind(Model(), str(tmp_path / "old")).train(numbers(start=8), steps=1)
    assert old.get_variable_value("w") == 2
    new = kind(Model(), str(tmp_path / "new"), warm_start_from=old.model_dir)
    more = est.add_metrics(new, lambda features: {}).train(numbers(start=2), steps=1)
    assert more.get_variable_value("w") == 2  # 0.5 if it had started at zero.


# --- What it stands on ---------------------------------------------------------------------------


def test_the_model_fn_of_an_estimator_has_its_params(tmp_path):
    def model_fn(features, mode, params):
        return est.EstimatorSpec(mode, predictions=features * params["factor"])

    model = est.Estimator(model_fn, str(tmp_path), params={"factor": 3})
    with tf.Graph().as_default(), v1.Session() as session:
        x = tf.constant([1.0, 2.0])
        spec = model.model_fn(x, None, est.ModeKeys.PREDICT, model.config)
        assert session.run(spec.predictions).tolist() == [3, 6]
        with pytest.raises(ValueError, match="`model_fn` does not take `labels`"):
            model.model_fn(x, x, est.ModeKeys.PREDICT, model.config)


def test_the_model_fn_of_a_tpu_estimator_has_the_batch_size_of_the_mode(tmp_path):
    def model_fn(features, labels, mode, params):
        return est.EstimatorSpec(mode, predictions=features * params["batch_size"])

    model = est.tpu.TPUEstimator(model_fn, str(tmp_path), train_batch_size=8, predict_batch_size=5)
    with tf.Graph().as_default(), v1.Session() as session:
        spec = model.model_fn(tf.constant([1.0]), None, est.ModeKeys.PREDICT, model.config)
        np.testing.assert_array_equal(session.run(spec.predictions), [5])
