"""Ready-made models beside the reference: baselines, user-defined optimizers, export."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.canned import model_cases
from tests.toy import events

V1 = tf.compat.v1


def number_input_fn():
    data = {"x": model_cases.FEATURES["x"]}, model_cases.LABELS["two"]
    return tf.data.Dataset.from_tensor_slices(data).batch(8).repeat()


def once(label):
    data = {"x": model_cases.FEATURES["x"]}, model_cases.LABELS[label]
    return lambda: tf.data.Dataset.from_tensor_slices(data).batch(8)


def test_a_baseline_takes_the_steps_of_2_15(tmp_path):
    with est.BaselineClassifier(str(tmp_path)) as model:
        model.train(number_input_fn, steps=2)
    found = model_cases.read_variables(str(tmp_path), 2)
    # What tf.estimator 2.15.1 has after these two steps.
    expected = {
        "baseline/bias": [-0.18605211],
        "global_step": 2,
        "training/Ftrl/baseline/bias/accumulator": [0.1625],
        "training/Ftrl/baseline/bias/linear": [0.25],
        "training/Ftrl/beta": 0.0,
        "training/Ftrl/decay": 0.0,
        "training/Ftrl/l1_regularization_strength": 0.0,
        "training/Ftrl/l2_regularization_strength": 0.0,
        "training/Ftrl/learning_rate": 0.3,
        "training/Ftrl/learning_rate_power": -0.5,
    }
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6, err_msg=key)


@pytest.mark.parametrize(("name", "rate"), [("SGD", 0.01), ("Adam", 0.001), ("RMSProp", 0.001)])
def test_the_rate_of_a_named_optimizer_is_that_of_2_15(name, rate, tmp_path):
    """tf.estimator asked for no rate, so that it was Keras's; for other models it asked for one."""
    columns = [tf.feature_column.numeric_column("x")]
    x = np.float32([[1], [2]])
    with est.DNNRegressor([2], columns, str(tmp_path), optimizer=name) as model:
        model.train(lambda: tf.data.Dataset.from_tensors(({"x": x}, x)), steps=1)
        found = model.get_variable_value(f"training/{name.replace('P', 'p')}/learning_rate")
    np.testing.assert_allclose(found, rate, rtol=1e-6)


def test_baselines_learn_the_mean_and_the_shares(tmp_path):
    with est.BaselineRegressor(str(tmp_path / "number"), optimizer="SGD") as model:
        model.train(lambda: once("number")().repeat(), steps=40)
        result = model.evaluate(once("number"))
        assert result["prediction/mean"] == pytest.approx(result["label/mean"], abs=0.3)
    head = est.MultiClassHead(5)
    with est.BaselineEstimator(head, str(tmp_path / "five"), optimizer="Adagrad") as model:
        model.train(lambda: once("five")().repeat(), steps=40)
        shares = next(iter(model.predict(once("five"))))["probabilities"]
    expected = np.bincount(model_cases.LABELS["five"][:, 0], minlength=5) / 40
    np.testing.assert_allclose(shares, expected, atol=0.08)


class FastAdam(V1.train.AdamOptimizer):
    """An optimizer whose class can be passed."""

    def __init__(self, learning_rate=0.1):
        super().__init__(learning_rate)


OPTIMIZERS = {
    "v1": lambda: V1.train.AdamOptimizer(0.1),
    "class": lambda: FastAdam,
    "keras rate": lambda: tf.keras.optimizers.Adam(0.1),
    "tf-keras": lambda: tf_keras.optimizers.Adam(0.1),
    "cross shard keras": lambda: est.CrossShardOptimizer(tf.keras.optimizers.Adam(0.1)),
    "keras": lambda: tf.keras.optimizers.Adam(
        tf.keras.optimizers.schedules.ExponentialDecay(0.1, 100, 0.9)
    ),
    "function": lambda: lambda: est.CrossShardOptimizer(V1.train.AdamOptimizer(0.1)),
}


# In the default run: a class, a Keras optimizer, and one that a CrossShardOptimizer wraps.
DEFAULT_OPTIMIZERS = ("class", "keras", "cross shard keras")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in DEFAULT_OPTIMIZERS else [pytest.mark.full])
        for name in OPTIMIZERS
    ],
)
def test_a_user_defined_optimizer_trains_a_model_twice(name, tmp_path):
    columns = [tf.feature_column.numeric_column("x", [2])]
    config = est.RunConfig(
        strategy="mirrored", num_replicas=2, iterations_per_loop=5, tf_random_seed=1
    )
    with est.DNNLinearCombinedClassifier(
        str(tmp_path),
        linear_feature_columns=columns,
        dnn_feature_columns=columns,
        dnn_hidden_units=[4],
        dnn_optimizer=OPTIMIZERS[name](),
        config=config,
    ) as model:
        for _ in range(2):
            model.train(number_input_fn, steps=15)
        assert model.train_result.global_step == 30
        assert model.evaluate(once("two"))["accuracy"] > 0.75


def test_a_classifier_exports_what_classifies_examples(tmp_path):
    columns = [tf.feature_column.numeric_column("x", [2])]
    receiver_fn = est.export.build_parsing_serving_input_receiver_fn(
        tf.feature_column.make_parse_example_spec(columns)
    )
    with est.LinearClassifier(
        columns, str(tmp_path / "model"), label_vocabulary=["no", "yes"]
    ) as model:
        labels = np.array(["no", "yes"])[model_cases.LABELS["two"]]
        data = {"x": model_cases.FEATURES["x"]}, labels
        model.train(lambda: tf.data.Dataset.from_tensor_slices(data).batch(8).repeat(), steps=40)
        path = model.export_saved_model(str(tmp_path / "export"), receiver_fn)
    signatures = tf.saved_model.load(path.decode()).signatures
    assert set(signatures) == {"serving_default", "classification", "regression", "predict"}
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([2.0, -2.0])
    outputs = signatures["serving_default"](tf.constant([example.SerializeToString()]))
    assert outputs["classes"].numpy().tolist() == [[b"no", b"yes"]]
    assert outputs["scores"][0, 1] > 0.5


def predicted(make, features, model_dir):
    """The logits of a model after a step, and its variables."""
    labels = np.arange(len(next(iter(features.values()))))[:, np.newaxis] % 2

    def batch():
        return tf.data.Dataset.from_tensors((features, labels))

    with make(model_dir=str(model_dir)) as model:
        model.train(batch, steps=1)
        rows = model.predict(batch)
        logits = [float(row["logits"][0]) for row in rows]
        return logits, {n: model.get_variable_value(n) for n in model.get_variable_names()}


@pytest.mark.parametrize(
    ("activation", "function"),
    [(None, lambda x: x), ("tanh", np.tanh), (tf.nn.relu, lambda x: np.maximum(x, 0))],
    ids=["none", "name", "function"],
)
def test_an_activation_may_be_a_name_or_none(activation, function, tmp_path):
    features = {"x": model_cases.FEATURES["x"][:8]}

    def make(**settings):
        column = tf.feature_column.numeric_column("x", [2])
        return est.DNNClassifier([3], column, activation_fn=activation, **settings)

    logits, found = predicted(make, features, tmp_path)
    bias = found["dnn/hiddenlayer_0/bias"]
    hidden = function(features["x"] @ found["dnn/hiddenlayer_0/kernel"] + bias)
    expected = hidden @ found["dnn/logits/kernel"] + found["dnn/logits/bias"]
    np.testing.assert_allclose(logits, expected[:, 0], rtol=1e-5, atol=1e-6)


def test_a_crossed_column_takes_integers(tmp_path):
    features = {"a": [[1], [2], [3]], "b": [["x"], ["x"], ["y"]]}
    column = tf.feature_column.crossed_column(["a", "b"], 50)

    def make(**settings):
        return est.LinearClassifier(column, **settings)

    logits, found = predicted(make, features, tmp_path)
    ids = tf.sparse.cross_hashed([tf.constant(v) for v in features.values()], 50).values
    weights, bias = (found[f"linear/linear_model/{n}"] for n in ("a_X_b/weights", "bias_weights"))
    assert len(set(ids.numpy())) == 3
    np.testing.assert_allclose(logits, weights[ids.numpy(), 0] + bias, rtol=1e-5)


@pytest.mark.parametrize("kind", ["Linear", "DNN", "DNNLinearCombined", "Baseline"])
def test_v1_forms_sum_losses_and_all_but_baselines_take_a_partitioner(kind):
    for suffix in ("Classifier", "Regressor", "Estimator"):
        parameters = inspect.signature(getattr(est.compat.v1, kind + suffix)).parameters
        if suffix != "Estimator":
            assert parameters["loss_reduction"].default == V1.losses.Reduction.SUM
        names = list(parameters)
        if kind == "Linear":
            assert names.index("partitioner") == names.index("config") + 1
        elif kind == "Baseline":
            assert not [name for name in names if "partitioner" in name]
        else:
            assert names.index("input_layer_partitioner") == names.index("config") - 1


def test_logit_fns_make_the_logits_of_a_user_defined_model_fn(tmp_path):
    columns = [tf.feature_column.numeric_column("x", [2])]
    dnn = est.compat.v1.experimental.dnn_logit_fn_builder(
        3, [4], columns, tf.nn.relu, None, None, True
    )
    linear = est.compat.v1.experimental.linear_logit_fn_builder(3, columns)

    def model_fn(features, labels, mode):
        with V1.variable_scope("deep"):
            deep = est.experimental.call_logit_fn(dnn, features, mode, None, None)
        with V1.variable_scope("wide"):
            wide = est.experimental.call_logit_fn(linear, features, mode, None, None)
        return est.MultiClassHead(3).create_estimator_spec(
            features,
            mode,
            deep + wide,
            labels,
            optimizer=V1.train.AdamOptimizer(0.1) if mode == "train" else None,
            update_ops=V1.get_collection(V1.GraphKeys.UPDATE_OPS),
        )

    run = est.RunConfig(iterations_per_loop=10, tf_random_seed=1)
    with est.Estimator(model_fn, str(tmp_path), run) as model:
        model.train(number_input_fn, steps=20)
        assert model.evaluate(once("two"))["accuracy"] > 0.75
        assert np.any(model.get_variable_value("deep/hiddenlayer_0/batchnorm_0/moving_mean") != 0)
        assert "wide/linear_model/x/weights" in model.get_variable_names()


def test_a_weighted_column_weighs_its_gradients(tmp_path):
    ids = tf.feature_column.categorical_column_with_identity("id", 6)
    weighted = tf.feature_column.weighted_categorical_column(ids, "weight")
    features = {key: model_cases.FEATURES[key][:8] for key in ("id", "weight")}
    labels = model_cases.LABELS["two"][:8]
    with est.LinearClassifier(
        [weighted], str(tmp_path), optimizer=V1.train.GradientDescentOptimizer(1.0)
    ) as model:
        model.train(lambda: tf.data.Dataset.from_tensors((features, labels)), steps=1)
        found = model.get_variable_value("linear/linear_model/id_weighted_by_weight/weights")
    # From zero weights, the loss of an example has the derivative 1/2 - label by its logit.
    steps = features["weight"] * (labels - 0.5) / len(labels)
    expected = np.bincount(features["id"][:, 0], steps[:, 0], minlength=6)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5, atol=1e-7)


def test_columns_share_an_embedding_that_is_trained_and_warm_started(tmp_path):
    first, second = (
        tf.feature_column.categorical_column_with_identity(key, 6) for key in ("id", "other")
    )
    with tf.Graph().as_default():  # TensorFlow makes shared embeddings in graphs alone.
        shared = tf.feature_column.shared_embeddings([first, second], 2)
    weighted = tf.feature_column.weighted_categorical_column(first, "weight")
    features = {key: model_cases.FEATURES[key] for key in ("id", "weight")}
    features["other"] = features["id"][::-1]

    def batches(num_epochs=1):
        data = tf.data.Dataset.from_tensor_slices((features, model_cases.LABELS["two"]))
        return data.repeat(num_epochs).batch(8)

    config = est.RunConfig(iterations_per_loop=3, strategy="mirrored", num_replicas=2)
    with est.DNNLinearCombinedClassifier(
        str(tmp_path / "both"),
        linear_feature_columns=[weighted],
        dnn_feature_columns=[*shared, tf.feature_column.embedding_column(weighted, 2)],
        dnn_hidden_units=[3],
        config=config,
    ) as model:
        model.train(lambda: batches(3), steps=6)
        before = model_cases.read_variables(str(tmp_path / "both"), 0)
        found = model.get_variable_value("id_other_shared_embedding")
        assert np.any(found != before["id_other_shared_embedding"])
        expected = [row["logits"] for row in model.predict(batches)]
    tags = {tag for _, tag, _ in events(str(tmp_path / "both"))}
    assert {"dnn/logits/activation", "bias", "linear/activation"} <= tags
    # Another model starts where this one is.
    with est.DNNLinearCombinedClassifier(
        str(tmp_path / "warm"),
        linear_feature_columns=[weighted],
        linear_optimizer=lambda: V1.train.GradientDescentOptimizer(0.0),
        dnn_feature_columns=[*shared, tf.feature_column.embedding_column(weighted, 2)],
        dnn_optimizer=lambda: V1.train.GradientDescentOptimizer(0.0),
        dnn_hidden_units=[3],
        warm_start_from=str(tmp_path / "both"),
    ) as warm:
        warm.train(batches, steps=1)
        found = [row["logits"] for row in warm.predict(batches)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_columns_of_tensorflow_1_share_an_embedding_in_loops_and_on_replicas(tmp_path):
    first, second = (
        tf.feature_column.categorical_column_with_identity(key, 6) for key in ("id", "other")
    )
    with tf.Graph().as_default():
        shared = V1.feature_column.shared_embedding_columns([first, second], 2)
    features = {"id": model_cases.FEATURES["id"], "other": model_cases.FEATURES["id"][::-1]}
    name = "dnn/input_from_feature_columns/input_layer/id_other_shared_embedding/embedding_weights"

    def batches():  # The same for each replica.
        return tf.data.Dataset.from_tensors((features, model_cases.LABELS["two"])).repeat()

    found = {}
    for kind, settings in {
        "alone": {},
        "replicas": {"iterations_per_loop": 3, "strategy": "mirrored", "num_replicas": 2},
    }.items():
        config = est.RunConfig(tf_random_seed=3, **settings)
        with est.compat.v1.DNNClassifier(
            [3],
            shared,
            str(tmp_path / kind),
            optimizer=lambda: V1.train.AdamOptimizer(0.1),
            loss_reduction=tf.compat.v1.losses.Reduction.MEAN,
            config=config,
        ) as model:
            model.train(batches, steps=6)
            found[kind] = model.get_variable_value(name)
        before = model_cases.read_variables(str(tmp_path / kind), 0)[name]
        assert np.all(np.any(found[kind] != before, axis=1))
    np.testing.assert_allclose(found["replicas"], found["alone"], rtol=1e-4, atol=1e-6)


def test_the_example_of_the_guide_prints_its_results(tmp_path):
    """A LinearRegressor under MirroredStrategy, of TensorFlow's guide to distributed training."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    config = est.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    regressor = est.LinearRegressor(
        feature_columns=[tf.feature_column.numeric_column("feats")],
        optimizer="SGD",
        config=config,
        model_dir=str(tmp_path),
    )

    def input_fn():
        dataset = tf.data.Dataset.from_tensors(({"feats": [1.0]}, [1.0]))
        return dataset.repeat(1000).batch(10)

    regressor.train(input_fn=input_fn, steps=10)
    results = regressor.evaluate(input_fn=input_fn, steps=10)
    assert sorted(results) == [
        "average_loss",
        "global_step",
        "label/mean",
        "loss",
        "prediction/mean",
    ]
    assert results["global_step"] == 10
    assert results["loss"] == pytest.approx(results["average_loss"]) == pytest.approx(0, abs=1e-3)
    assert results["label/mean"] == 1
    regressor.close()


@pytest.mark.parametrize("config", [{}, {"strategy": "mirrored", "num_replicas": 2}])
def test_summaries_of_a_loop_are_those_of_single_steps(config, tmp_path):
    features = {key: model_cases.FEATURES[key] for key in ("x", "id")}
    ids = tf.feature_column.categorical_column_with_identity("id", 6)
    data = features, model_cases.LABELS["two"]
    found = {}

    def batches():
        return tf.data.Dataset.from_tensor_slices(data).repeat().batch(8)

    for loop in (1, 4):
        run = est.RunConfig(
            iterations_per_loop=loop, save_summary_steps=4, tf_random_seed=1, **config
        )
        with est.compat.v1.DNNLinearCombinedClassifier(
            str(tmp_path / str(loop)),
            linear_feature_columns=[ids],
            dnn_feature_columns=[tf.feature_column.numeric_column("x", [2])],
            dnn_hidden_units=[3],
            config=run,
        ) as model:
            model.train(batches, steps=4)
        found[loop] = {
            tag: value.simple_value or value.histo.sum
            for step, tag, value in events(model.model_dir)
            if step == 4 and not tag.startswith("global_step/")
        }
    assert found[4] == pytest.approx(found[1])
    parts = ("linear/linear", "dnn/dnn/hiddenlayer_0", "dnn/dnn/logits")
    assert set(found[4]) == {
        *("loss", "average_loss", "linear/bias", "linear/fraction_of_zero_weights"),
        *(f"{part}/activation" for part in parts),
        *(f"{part}/fraction_of_zero_values" for part in parts),
    }


@pytest.mark.parametrize(("loop", "size"), [(1, 100_001), (2, 100_000), (2, 100_001)])
def test_a_loop_counts_the_zeros_of_few_weights_only(loop, size, tmp_path):
    ids = tf.feature_column.categorical_column_with_identity("id", size)
    config = est.RunConfig(iterations_per_loop=loop, save_summary_steps=1)
    with est.LinearRegressor([ids], str(tmp_path), config=config) as model:
        data = {"id": np.int64([[3], [5]])}, np.float32([[1], [2]])
        model.train(lambda: tf.data.Dataset.from_tensors(data).repeat(), steps=2)
    tags = {tag for _, tag, _ in events(tmp_path)}
    assert "bias" in tags
    assert ("fraction_of_zero_weights" in tags) == (loop == 1 or size <= 100_000)
