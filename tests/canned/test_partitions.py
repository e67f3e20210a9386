"""Variables of the v1 form have the names, parts and slots of tf.estimator 2.15.1."""

import json

import pytest
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1
FC = tf.feature_column
V1_EST = est.compat.v1
INPUT = "dnn/input_from_feature_columns/input_layer"
HALVES = V1.fixed_size_partitioner(2)


def ids(key, size):
    return FC.categorical_column_with_identity(key, size)


def wide(**kwargs):
    # 4 and 400 MB.
    columns = [ids("id", 10**6), ids("more", 10**8)]
    return V1_EST.LinearClassifier(columns, **kwargs)


DEEP = [FC.embedding_column(ids("id", 10**5), 64), FC.embedding_column(ids("more", 10**6), 64)]


def deep(**kwargs):
    # 26 and 256 MB; the second layer's kernel has 4 MB.
    return V1_EST.DNNClassifier([1000, 1000], DEEP, batch_norm=True, **kwargs)


def both(**kwargs):
    return V1_EST.DNNLinearCombinedClassifier(
        linear_feature_columns=[ids("id", 10**6)],
        dnn_feature_columns=DEEP,
        dnn_hidden_units=[1000, 1000],
        **kwargs,
    )


# The model, its variables with their numbers of parts under three ps tasks, and a slot.
CASES = {
    "wide": (
        wide,
        {"linear/linear_model/id/weights": 1, "linear/linear_model/more/weights": 3},
        "linear/linear/linear_model/more/weights/part_2/Ftrl_1",
    ),
    "wide in halves": (
        lambda: wide(partitioner=HALVES),
        {"linear/linear_model/id/weights": 2, "linear/linear_model/more/weights": 2},
        "linear/linear/linear_model/id/weights/part_1/Ftrl",
    ),
    "deep": (
        deep,
        {
            f"{INPUT}/id_embedding/embedding_weights": 1,
            f"{INPUT}/more_embedding/embedding_weights": 3,
            "dnn/hiddenlayer_0/bias": 1,
            "dnn/hiddenlayer_0/batchnorm_0/gamma": 1,
            "dnn/hiddenlayer_0/batchnorm_0/moving_mean": 0,
            "dnn/hiddenlayer_1/kernel": 3,
        },
        "dnn/dnn/hiddenlayer_1/kernel/part_2/Adagrad",
    ),
    "deep in halves": (
        lambda: deep(input_layer_partitioner=HALVES),
        {f"{INPUT}/id_embedding/embedding_weights": 2, "dnn/hiddenlayer_1/kernel": 3},
        f"dnn/{INPUT}/id_embedding/embedding_weights/part_1/Adagrad",
    ),
    "both": (
        both,
        {f"{INPUT}/more_embedding/embedding_weights": 3, "linear/linear_model/id/weights": 1},
        "dnn/hiddenlayer_1/kernel/part_2/Adagrad",
    ),
    "both in halves": (
        lambda: both(input_layer_partitioner=HALVES),
        {
            f"{INPUT}/id_embedding/embedding_weights": 2,
            "linear/linear_model/id/weights": 2,
            "dnn/hiddenlayer_1/kernel": 3,
        },
        "linear/linear_model/id/weights/part_1/Ftrl",
    ),
}
PS_CLUSTER = {
    "cluster": {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1", "d:1", "e:1"]},
    "task": {"type": "worker", "index": 0},
}


def built_names(model):
    """The names of the variables of a training step; nothing runs."""
    with tf.Graph().as_default():
        features = {key: tf.constant([[1]], tf.int64) for key in ("id", "more")}
        V1.train.create_global_step()
        model.model_fn(features, tf.constant([[1]]), "train", model.config)
        return {variable.op.name for variable in V1.global_variables()}


@pytest.mark.parametrize("name", CASES)
def test_variables_have_as_many_parts_as_in_2_15(name, monkeypatch):
    make, expected, slot = CASES[name]
    monkeypatch.setenv("TF_CONFIG", json.dumps(PS_CLUSTER))
    names = built_names(make())
    found = {key: sum(f"{key}/part_{i}" in names for i in range(9)) for key in expected}
    assert found == expected
    assert {key for key, count in expected.items() if not count} <= names
    assert slot in names


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"iterations_per_loop": 1}, {"dnn/hiddenlayer_0/bias/t_0/Adam", "dnn/head/beta1_power"}),
        ({"iterations_per_loop": 2}, {"dnn/hiddenlayer_0/bias/t_0/Adam", "dnn/head/beta1_power"}),
        # Nothing is partitioned here.
        (
            {"strategy": "mirrored", "num_replicas": 2},
            {"dnn/dnn/hiddenlayer_0/bias/Adam", "dnn/head/dnn/beta1_power"},
        ),
    ],
)
def test_an_optimizer_of_v1_names_its_variables_as_in_2_15(config, names, tmp_path):
    """A model_dir of `tf.compat.v1.estimator.DNNClassifier(optimizer=AdamOptimizer())` resumes."""

    def input_fn():
        return tf.data.Dataset.from_tensors(({"x": [[1.0]]}, [[1]])).repeat(4)

    with V1_EST.DNNClassifier(
        [2],
        [FC.numeric_column("x")],
        str(tmp_path),
        optimizer=V1.train.AdamOptimizer,
        config=est.RunConfig(**config),
        input_layer_partitioner=HALVES,
    ) as model:
        model.train(input_fn, steps=2)
        assert names <= set(model.get_variable_names())


def test_a_logit_fn_partitions_the_variables_of_columns_alone():
    logit_fn = V1_EST.experimental.dnn_logit_fn_builder(
        1, [1000], DEEP, tf.nn.relu, None, HALVES, False
    )
    with tf.Graph().as_default():
        logit_fn({key: tf.constant([[1]], tf.int64) for key in ("id", "more")}, "train")
        names = {variable.op.name for variable in V1.global_variables()}
    embedding = "input_from_feature_columns/input_layer/id_embedding/embedding_weights"
    assert {f"{embedding}/part_1", "hiddenlayer_0/kernel", "logits/bias"} <= names
    assert "hiddenlayer_0/kernel/part_0" not in names


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda column: est.DNNRegressor([1], [column]), f"{INPUT}/a/b_embedding"),
        (lambda column: V1_EST.DNNRegressor([1], [column]), f"{INPUT}/a_b_embedding"),
        (lambda column: est.LinearRegressor([column]), "linear/linear_model/a_b_embedding"),
    ],
)
def test_a_slash_is_kept_in_deep_models_of_v2_alone(make, name):
    column = FC.embedding_column(ids("a/b", 3), 2)
    with tf.Graph().as_default(), make(column) as model:
        model.model_fn({"a/b": tf.constant([[1]], tf.int64)}, None, "infer", model.config)
        names = {variable.op.name.removesuffix("/part_0") for variable in V1.global_variables()}
    assert f"{name}/embedding_weights" in names
