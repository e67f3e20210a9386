"""Heads in a user's own `model_fn`: strategies, loops, optimizers, evaluation and export."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
WORDS = ["ant", "bee", "cat"]
NUM_EXAMPLES, BATCH_SIZE = 24, 4
STRATEGIES = {"none": {}, "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2}}

_random = np.random.RandomState(3)
FEATURES = {
    "x": _random.randn(NUM_EXAMPLES, 4).astype(np.float32),
    "w": _random.uniform(0, 2, [NUM_EXAMPLES, 1]).astype(np.float32),
}
LABELS = {
    "binary": _random.randint(2, size=[NUM_EXAMPLES, 1]),
    "classes": np.array(WORDS)[_random.randint(3, size=[NUM_EXAMPLES, 1])],
    "labels": _random.randint(2, size=[NUM_EXAMPLES, 2]),
    "numbers": _random.randn(NUM_EXAMPLES, 2).astype(np.float32),
    "counts": _random.randint(5, size=[NUM_EXAMPLES, 1]),
    "shares": _random.uniform(size=[NUM_EXAMPLES]).astype(np.float32),
}


def make_head(kind, loss_reduction):
    given = {"loss_reduction": loss_reduction, "weight_column": "w"}
    if kind == "one":
        return est.LogisticRegressionHead(**given)
    return est.MultiHead(
        [
            est.BinaryClassHead(name="binary", thresholds=[0.4], **given),
            est.MultiClassHead(3, name="classes", label_vocabulary=WORDS, **given),
            est.MultiLabelHead(2, name="labels", **given),
            est.RegressionHead(2, name="numbers", **given),
            est.PoissonRegressionHead(name="counts", **given),
            est.LogisticRegressionHead(name="shares", **given),
        ],
        head_weights=[1.0, 2.0, 0.5, 1.0, 0.1, 1.0],
    )


OPTIMIZERS = {
    "v1": lambda: V1.train.MomentumOptimizer(0.05, 0.9),
    "cross_shard": lambda: est.CrossShardOptimizer(V1.train.MomentumOptimizer(0.05, 0.9)),
    "keras": lambda: tf.keras.optimizers.SGD(0.05, 0.9),
    "tf_keras": lambda: tf_keras.optimizers.SGD(0.05, 0.9),
    "tf_keras_legacy": lambda: tf_keras.optimizers.legacy.SGD(0.05, 0.9),
}


def model_fn(features, labels, mode, params):
    kind = params.get("head", "all")
    head = make_head(kind, params.get("loss_reduction", "sum_over_batch_size"))
    if kind == "one" and labels is not None:
        labels = labels["shares"]
    start = np.full([4, head.logits_dimension], 0.1, np.float32)
    kernel = V1.get_variable("kernel", initializer=start)
    return head.create_estimator_spec(
        features=features,
        mode=mode,
        logits=features["x"] @ kernel,
        labels=labels,
        optimizer=OPTIMIZERS[params.get("optimizer", "v1")]() if mode == "train" else None,
        regularization_losses=[0.1 * tf.reduce_sum(tf.square(kernel))],
    )


def input_fn(params, input_context=None):
    size = params.get("batch_size", BATCH_SIZE)
    if input_context is not None and "batch_size" not in params:
        size = input_context.get_per_replica_batch_size(BATCH_SIZE)
    return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(size)


def make_estimator(path, params=None, **config):
    quiet = est.RunConfig(save_summary_steps=None, log_step_count_steps=None, **config)
    return est.Estimator(model_fn, path, quiet, params or {})


def trained(path, steps=6, params=None, **config):
    with make_estimator(path, params, **config) as model:
        model.train(input_fn, steps=steps)
        assert model.train_result.global_step == steps
        return model.get_variable_value("kernel"), model.train_result.loss


@pytest.fixture(scope="module")
def model_dirs(tmp_path_factory):
    """Where the references are trained, by loss reduction; tests train elsewhere."""
    return {key: tmp_path_factory.mktemp(key) for key in ("sum", "sum_over_batch_size")}


@pytest.fixture(scope="module")
def reference(model_dirs):
    """The kernel and the last loss after 6 steps on one replica, by loss reduction."""
    return {
        reduction: trained(path, params={"loss_reduction": reduction})
        for reduction, path in model_dirs.items()
    }


@pytest.fixture(scope="module")
def kernel_of_one_head(tmp_path_factory):
    """The kernel after 6 steps on one replica."""
    kernel, _ = trained(tmp_path_factory.mktemp("one"), params={"head": "one"})
    assert np.abs(kernel - 0.1).max() > 0.01  # It was trained.
    return kernel


@pytest.fixture
def trained_dir(model_dirs, reference):
    """The model_dir of a model after 6 steps."""
    del reference
    return model_dirs["sum_over_batch_size"]


@pytest.mark.parametrize(
    ("strategy", "loop", "loss_reduction"),
    [
        ("none", 100, "sum_over_batch_size"),
        pytest.param("none", 100, "sum", marks=pytest.mark.full),
        ("mirrored_x2", 1, "sum_over_batch_size"),
        ("mirrored_x2", 1, "sum"),
    ],
)
def test_loops_and_replicas_do_not_change_the_weights(
    strategy, loop, loss_reduction, reference, tmp_path
):
    params = {"loss_reduction": loss_reduction}
    strategy = STRATEGIES[strategy]
    kernel, loss = trained(tmp_path, params=params, iterations_per_loop=loop, **strategy)
    expected, expected_loss = reference[loss_reduction]
    np.testing.assert_allclose(kernel, expected, rtol=1e-4, atol=1e-5)
    if loss_reduction != "sum":
        assert loss == pytest.approx(expected_loss, rel=1e-4)


@pytest.mark.parametrize(
    ("optimizer", "strategy", "loop"),
    [
        ("cross_shard", "mirrored_x2", 100),
        ("keras", "none", 1),
        ("keras", "mirrored_x2", 100),
        ("tf_keras", "mirrored_x2", 1),
        ("tf_keras_legacy", "none", 100),
    ],
)
def test_any_optimizer_trains_to_the_same_weights(
    optimizer, strategy, loop, kernel_of_one_head, tmp_path
):
    params = {"optimizer": optimizer, "head": "one"}
    kernel, _ = trained(tmp_path, params=params, iterations_per_loop=loop, **STRATEGIES[strategy])
    np.testing.assert_allclose(kernel, kernel_of_one_head, rtol=1e-4, atol=1e-5)


def expected_means(path):
    """Weighted means over all examples that metrics of the trained kernel must have."""
    with make_estimator(path) as model:
        kernel = model.get_variable_value("kernel").astype(np.float64)
    logits, weights = FEATURES["x"] @ kernel, FEATURES["w"][:, 0]

    def mean(values):
        return np.sum(values * weights) / np.sum(weights)

    is_one = LABELS["binary"][:, 0] == 1
    says_one = logits[:, 0] > 0
    return {
        "accuracy/binary": mean(is_one == says_one),
        "accuracy_baseline/binary": max(mean(is_one), 1 - mean(is_one)),
        "accuracy/positive_threshold_0.4/binary": mean(
            is_one == (1 / (1 + np.exp(-logits[:, 0])) > 0.4)
        ),
        "precision/binary": np.sum(weights[is_one & says_one]) / np.sum(weights[says_one]),
        "recall/binary": np.sum(weights[is_one & says_one]) / np.sum(weights[is_one]),
        "accuracy/classes": mean(
            np.array(WORDS)[logits[:, 1:4].argmax(1)] == LABELS["classes"][:, 0]
        ),
        "average_loss/numbers": mean(np.square(logits[:, 6:8] - LABELS["numbers"]).mean(1)),
        "prediction/mean/counts": mean(np.exp(logits[:, 8])),
        "label/mean/shares": mean(LABELS["shares"]),
        "regularization_loss/binary_classes_labels_numbers_counts_shares": 0.1
        * np.sum(np.square(kernel)),
    }


def test_metrics_are_exact_over_replicas_and_batches(trained_dir):
    expected = expected_means(trained_dir)
    results = []
    # 5 does not divide 24, and 2 replicas do not divide 5 batches.
    for batch_size, strategy in ((24, "none"), (5, "mirrored_x2")):
        config = STRATEGIES[strategy]
        with make_estimator(trained_dir, {"batch_size": batch_size}, **config) as model:
            results.append(model.evaluate(input_fn))
    for result in results:
        for key, value in expected.items():
            assert result[key] == pytest.approx(value, rel=1e-5), key
        for key, value in results[0].items():
            if "loss" not in key.split("/")[0] or key.startswith("average_loss"):
                assert result[key] == pytest.approx(value, rel=1e-5), key


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_metrics_count_on_all_replicas(library, monkeypatch, caplog, tmp_path):
    if library == "tf_keras":  # As with TF_USE_LEGACY_KERAS=1.
        monkeypatch.setattr(tf.keras, "metrics", tf_keras.metrics)

    def binary_model_fn(features, labels, mode):
        weight = V1.get_variable("weight", initializer=np.ones([4, 1], np.float32))
        head = est.BinaryClassHead(weight_column="w", thresholds=[0.4])
        step = V1.train.get_global_step()
        return head.create_estimator_spec(
            features,
            mode,
            features["x"] @ weight,
            labels["binary"],
            train_op_fn=lambda loss: step.assign_add(1),
        )

    def batches():
        return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(5)

    config = est.RunConfig(**STRATEGIES["mirrored_x2"])
    with est.Estimator(binary_model_fn, tmp_path, config) as model:
        model.train(batches, steps=1)
        result = model.evaluate(batches)
    share = np.sum(FEATURES["w"] * LABELS["binary"]) / np.sum(FEATURES["w"])
    assert result["label/mean"] == pytest.approx(share, rel=1e-5)
    assert result["accuracy_baseline"] == pytest.approx(max(share, 1 - share), rel=1e-5)
    assert "on 1 replica" not in caplog.text


def test_a_tpu_estimator_trains_evaluates_and_predicts_with_a_head(reference, tmp_path):
    config = est.tpu.RunConfig(est.tpu.TPUConfig(iterations_per_loop=3))
    with est.tpu.TPUEstimator(
        model_fn,
        tmp_path,
        config,
        {"optimizer": "cross_shard"},
        use_tpu=False,
        train_batch_size=BATCH_SIZE,
        eval_batch_size=BATCH_SIZE,
        predict_batch_size=BATCH_SIZE,
    ) as model:
        model.train(input_fn, steps=6)
        kernel = model.get_variable_value("kernel")
        np.testing.assert_allclose(
            kernel, reference["sum_over_batch_size"][0], rtol=1e-4, atol=1e-5
        )
        result = model.evaluate(input_fn, steps=6)
        for key, value in expected_means(tmp_path).items():
            assert result[key] == pytest.approx(value, rel=1e-5), key
        first = next(iter(model.predict(input_fn)))
        word = WORDS[(FEATURES["x"][0] @ kernel)[1:4].argmax()]
        assert first[("classes", "classes")] == word.encode()


def test_exported_signatures_are_those_of_the_heads(trained_dir, tmp_path):
    features = {
        "x": tf.io.FixedLenFeature([4], tf.float32),
        "w": tf.io.FixedLenFeature([1], tf.float32),
    }
    receiver_fn = est.export.build_parsing_serving_input_receiver_fn(features)
    with make_estimator(trained_dir) as model:
        path = model.export_saved_model(str(tmp_path / "export"), receiver_fn)
    signatures = tf.saved_model.load(path.decode()).signatures
    assert {"serving_default", "binary", "binary/classification", "classes/predict", "predict"} <= (
        set(signatures)
    )
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, 2.0, 3.0, 4.0])
    example.features.feature["w"].float_list.value.append(1.0)
    outputs = signatures["classes/classification"](tf.constant([example.SerializeToString()]))
    assert outputs["classes"].numpy().tolist() == [[word.encode() for word in WORDS]]
    assert float(tf.reduce_sum(outputs["scores"])) == pytest.approx(1)


class MeanHead(est.Head):
    """A user-defined head: the absolute error."""

    name = None
    logits_dimension = 1
    loss_reduction = "sum_over_batch_size"

    def loss(self, labels, logits, features=None, mode=None, regularization_losses=None):
        return tf.reduce_mean(tf.abs(labels - logits))

    def predictions(self, logits, keys=None):
        return {"value": logits}

    def metrics(self, regularization_losses=None):
        return {"error": tf.keras.metrics.MeanAbsoluteError()}

    def update_metrics(
        self, eval_metrics, features, logits, labels, mode=None, regularization_losses=None
    ):
        eval_metrics["error"].update_state(labels, logits)
        return eval_metrics


def test_a_user_defined_head_needs_only_the_documented_methods(tmp_path):
    def own_model_fn(features, labels, mode):
        weight = V1.get_variable("weight", initializer=np.zeros([4, 1], np.float32))
        return MeanHead().create_estimator_spec(
            features,
            mode,
            features["x"] @ weight,
            labels["numbers"][:, :1] if labels else None,
            train_op_fn=lambda loss: V1.train.GradientDescentOptimizer(0.1).minimize(
                loss, V1.train.get_global_step()
            ),
        )

    def batches():
        return tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).batch(8)

    config = est.RunConfig(**STRATEGIES["mirrored_x2"])
    with est.Estimator(own_model_fn, tmp_path, config) as model:
        before = np.abs(LABELS["numbers"][:, 0]).mean()
        model.train(lambda: batches().repeat(), steps=20)
        assert model.evaluate(batches)["error"] < before
        assert next(iter(model.predict(batches)))["value"].shape == (1,)
