"""Evaluation and prediction use each example once, however batches are divided among replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import cases

V1 = tf.compat.v1
NUM_EXAMPLES = [1, 7, 100, 101]
STRATEGIES = {
    "x1": {},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2},
    "mirrored_x3": {"strategy": "mirrored", "num_replicas": 3},
    "mirrored_x8": {"strategy": "mirrored", "num_replicas": 8},
    "central_storage_x2": {"strategy": "central_storage", "num_replicas": 2},
}
FEATURES, LABELS = cases.FEATURES[:101], cases.LABELS[:101]

_logits = FEATURES.astype(np.float64) @ cases.KERNEL
CLASSES = _logits.argmax(axis=1)
LOSSES = np.log(np.exp(_logits).sum(axis=1)) - _logits[np.arange(len(LABELS)), LABELS]


def num_replicas_of(strategy):
    """How many replicas evaluate and predict: with central storage one."""
    return 1 if strategy.startswith("central") else STRATEGIES[strategy].get("num_replicas", 1)


# --- Metrics: (labels, logits, features) -> eval_metric_ops --------------------------------------


def v1_metrics(labels, logits, features):
    metrics = V1.metrics
    is_one, says_one = tf.equal(labels, 1), tf.equal(tf.argmax(logits, -1), 1)
    counts = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    weights = tf.abs(features[:, 1])
    return {
        **{name: getattr(metrics, name)(is_one, says_one) for name in counts},
        "accuracy": metrics.accuracy(labels, tf.argmax(logits, -1)),
        "mean": metrics.mean(features[:, 0]),
        "weighted_mean": metrics.mean(features[:, 0], weights),
        "auc": metrics.auc(is_one, tf.nn.softmax(logits)[:, 1]),
        "precision": metrics.precision(is_one, says_one),
        "mean_iou": metrics.mean_iou(labels, tf.argmax(logits, -1), 3),
        "root_mean_squared_error": metrics.root_mean_squared_error(
            tf.cast(labels, tf.float32), logits[:, 0]
        ),
    }


def make_keras_metrics(library):
    def keras_metrics(labels, logits, features):
        is_one, says_one = tf.equal(labels, 1), tf.equal(tf.argmax(logits, -1), 1)
        metrics = library.metrics

        def updated(metric, *args, **kwargs):
            metric.update_state(*args, **kwargs)
            return metric

        return {
            "true_positives": updated(metrics.TruePositives(), is_one, says_one),
            "false_positives": updated(metrics.FalsePositives(), is_one, says_one),
            "true_negatives": updated(metrics.TrueNegatives(), is_one, says_one),
            "false_negatives": updated(metrics.FalseNegatives(), is_one, says_one),
            "accuracy": updated(metrics.SparseCategoricalAccuracy(), labels, logits),
            "mean": updated(metrics.Mean(), features[:, 0]),
            "weighted_mean": updated(
                metrics.Mean(), features[:, 0], sample_weight=tf.abs(features[:, 1])
            ),
            "auc": updated(metrics.AUC(), is_one, tf.nn.softmax(logits)[:, 1]),
            "precision": updated(metrics.Precision(), is_one, says_one),
            "mean_iou": updated(metrics.MeanIoU(3), labels, tf.argmax(logits, -1)),
            "root_mean_squared_error": updated(
                metrics.RootMeanSquaredError(), tf.cast(labels, tf.float32), logits[:, 0]
            ),
        }

    return keras_metrics


METRICS = {
    "v1": v1_metrics,
    "keras": make_keras_metrics(keras),
    "tf_keras": make_keras_metrics(tf_keras),
}


def numpy_metrics(num_examples):
    """What the metrics of the first examples must be, but for AUC, which approximates."""
    labels, classes = LABELS[:num_examples], CLASSES[:num_examples]
    features = FEATURES[:num_examples].astype(np.float64)
    is_one, says_one = labels == 1, classes == 1
    weights = np.abs(features[:, 1])
    hits = [np.sum((labels == c) & (classes == c)) for c in range(3)]
    unions = [np.sum((labels == c) | (classes == c)) for c in range(3)]
    ious = [hit / union for hit, union in zip(hits, unions, strict=True) if union]
    return {
        "true_positives": np.sum(is_one & says_one),
        "false_positives": np.sum(~is_one & says_one),
        "true_negatives": np.sum(~is_one & ~says_one),
        "false_negatives": np.sum(is_one & ~says_one),
        "accuracy": np.mean(labels == classes),
        "mean": features[:, 0].mean(),
        "weighted_mean": np.sum(features[:, 0] * weights) / weights.sum(),
        "precision": np.sum(is_one & says_one) / max(np.sum(says_one), 1),
        "mean_iou": np.mean(ious),
        "root_mean_squared_error": np.sqrt(
            np.mean((labels - (features @ cases.KERNEL)[:, 0]) ** 2)
        ),
    }


def model_fn(features, labels, mode, params):
    kernel = V1.get_variable("kernel", initializer=cases.KERNEL)
    logits = features["x"] @ kernel
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"id": features["id"], "logits": logits})
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if mode == est.ModeKeys.EVAL:
        metrics = {}
        if params["metrics"] is not None:
            metrics = METRICS[params["metrics"]](labels, logits, features["x"])
        loss = losses if params["loss"] == "vector" else tf.reduce_mean(losses)
        return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    # It counts the step and leaves the weights alone.
    train_op = V1.train.get_global_step().assign_add(1)
    return est.EstimatorSpec(mode, loss=tf.reduce_mean(losses), train_op=train_op)


def make_input_fn(num_examples, batch_size):
    def input_fn():
        features = {"x": FEATURES[:num_examples], "id": np.arange(num_examples)}
        return tf.data.Dataset.from_tensor_slices((features, LABELS[:num_examples])).batch(
            batch_size
        )

    return input_fn


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    """A directory with a checkpoint whose kernel is KERNEL."""
    path = str(tmp_path_factory.mktemp("model"))
    est.Estimator(model_fn, path, cases.make_config()).train(make_input_fn(8, 4), steps=1)
    return path


@pytest.fixture(scope="module")
def evaluators(model_dir):
    """Estimators by strategy, metrics and loss; their programs stay warm over the tests."""
    made = {}

    def evaluator(strategy, metrics="v1", loss="vector"):
        key = strategy, metrics, loss
        if key not in made:
            config = cases.make_config(**STRATEGIES[strategy])
            params = {"metrics": metrics, "loss": loss}
            made[key] = est.Estimator(model_fn, model_dir, config, params)
        return made[key]

    yield evaluator
    for model in made.values():
        model.close()


def check_metrics(results, num_examples):
    for name, value in numpy_metrics(num_examples).items():
        np.testing.assert_allclose(results[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.each_value
@pytest.mark.parametrize("num_examples", NUM_EXAMPLES)
@pytest.mark.parametrize("metrics", METRICS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_confusion_counts_sum_to_the_examples(strategy, metrics, num_examples, evaluators):
    results = evaluators(strategy, metrics).evaluate(make_input_fn(num_examples, 4))
    counts = ("true_positives", "false_positives", "true_negatives", "false_negatives")
    assert sum(results[name] for name in counts) == num_examples
    check_metrics(results, num_examples)


@pytest.mark.each_value
@pytest.mark.parametrize("num_examples", [7, 101])
@pytest.mark.parametrize("strategy", ["x1", "mirrored_x2", "mirrored_x3", "central_storage_x2"])
@pytest.mark.parametrize("metrics", METRICS)
def test_metrics_do_not_depend_on_batch_size_and_replicas(
    metrics, strategy, num_examples, evaluators
):
    reference = evaluators("x1", metrics).evaluate(make_input_fn(num_examples, num_examples))
    check_metrics(reference, num_examples)
    for batch_size in (1, 3, 32, num_examples):
        results = evaluators(strategy, metrics).evaluate(make_input_fn(num_examples, batch_size))
        assert results.keys() == reference.keys()
        for name, value in reference.items():
            assert results[name] == pytest.approx(value, rel=1e-6, abs=1e-6), (name, batch_size)


@pytest.mark.parametrize("metrics", METRICS)
def test_a_second_evaluation_starts_at_zero(metrics, evaluators):
    model = evaluators("mirrored_x2", metrics)
    for num_examples in (100, 7, 100, 1):
        check_metrics(model.evaluate(make_input_fn(num_examples, 4)), num_examples)


@pytest.mark.each_value
@pytest.mark.parametrize("num_examples", NUM_EXAMPLES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loss_of_rank_1_is_averaged_over_examples(strategy, num_examples, evaluators):
    for batch_size in (1, 3, 32, num_examples):
        loss = evaluators(strategy).evaluate(make_input_fn(num_examples, batch_size))["loss"]
        assert loss == pytest.approx(LOSSES[:num_examples].mean(), rel=1e-6)


@pytest.mark.each_value
@pytest.mark.parametrize("num_examples", NUM_EXAMPLES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_scalar_loss_is_averaged_over_batches(strategy, num_examples, evaluators):
    model = evaluators(strategy, metrics=None, loss="scalar")
    for batch_size in (1, 3, 32, num_examples):
        starts = range(0, num_examples, batch_size)
        batches = [LOSSES[start : min(start + batch_size, num_examples)].mean() for start in starts]
        loss = model.evaluate(make_input_fn(num_examples, batch_size))["loss"]
        assert loss == pytest.approx(np.mean(batches), rel=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_steps_are_global_batches(strategy, evaluators):
    num_replicas = num_replicas_of(strategy)
    results = evaluators(strategy).evaluate(make_input_fn(101, 3), steps=2)
    check_metrics(results, 2 * 3 * num_replicas)
    # More steps than there are batches: all examples, once.
    check_metrics(evaluators(strategy).evaluate(make_input_fn(101, 3), steps=1000), 101)


@pytest.mark.each_value
@pytest.mark.parametrize("num_examples", NUM_EXAMPLES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_prediction_gives_one_row_an_example_in_order(strategy, num_examples, evaluators):
    for batch_size in (1, 3, 32, num_examples):
        rows = list(evaluators(strategy).predict(make_input_fn(num_examples, batch_size)))
        assert [row["id"] for row in rows] == list(range(num_examples))
        np.testing.assert_allclose(
            [row["logits"] for row in rows], _logits[:num_examples], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("strategy", ["x1", "mirrored_x3"])
def test_batches_of_predictions_keep_the_inputs_batches(strategy, evaluators):
    batches = evaluators(strategy).predict(make_input_fn(101, 10), yield_single_examples=False)
    assert [len(batch["id"]) for batch in batches] == [10] * 10 + [1]


# --- TPUEstimatorSpec ----------------------------------------------------------------------------


def metric_fn(labels, logits, features):
    return v1_metrics(labels, logits, features)


def keras_metric_fn(labels, logits, features):
    return METRICS["keras"](labels, logits, features)


METRIC_FNS = {"v1": metric_fn, "keras": keras_metric_fn}


def tpu_model_fn(features, labels, mode, params):
    spec = model_fn(features, labels, mode, {**params, "metrics": "v1", "loss": "vector"})
    if mode != est.ModeKeys.EVAL:
        return spec
    kernel = next(v for v in V1.trainable_variables() if v.name == "kernel:0")
    tensors = [labels, features["x"] @ kernel, features["x"]]
    if params["tensors"] == "dict":
        tensors = dict(zip(("labels", "logits", "features"), tensors, strict=True))
    metric_fn = METRIC_FNS[params["metric_fn"]]
    return est.tpu.TPUEstimatorSpec(mode, loss=spec.loss, eval_metrics=(metric_fn, tensors))


def tpu_input_fn(params):
    return make_input_fn(101, params["batch_size"])()


@pytest.mark.each_value
@pytest.mark.parametrize("tensors", ["list", "dict"])
@pytest.mark.parametrize("metric_fn", METRIC_FNS)
@pytest.mark.parametrize("strategy", ["x1", "mirrored_x3", "central_storage_x2"])
def test_eval_metrics_of_a_tpu_spec(strategy, metric_fn, tensors, model_dir):
    num_replicas = num_replicas_of(strategy)
    config = est.tpu.RunConfig(
        **STRATEGIES[strategy], tpu_config=est.tpu.TPUConfig(iterations_per_loop=2)
    )
    with est.tpu.TPUEstimator(
        tpu_model_fn,
        model_dir,
        config,
        {"metric_fn": metric_fn, "tensors": tensors},
        eval_batch_size=24,
        predict_batch_size=24,
    ) as model:
        results = model.evaluate(tpu_input_fn)
        check_metrics(results, 101)
        assert results["loss"] == pytest.approx(LOSSES.mean(), rel=1e-6)
        # A step is the global batch, whatever the number of replicas.
        check_metrics(model.evaluate(tpu_input_fn, steps=3), 72)
        batches = list(model.predict(tpu_input_fn, yield_single_examples=False))
    assert len(batches[0]["id"]) == 24 // num_replicas
    assert np.concatenate([batch["id"] for batch in batches]).tolist() == list(range(101))
