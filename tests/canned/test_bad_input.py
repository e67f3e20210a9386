"""What ready-made models say to arguments and features that they cannot use."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

FC = tf.feature_column
X = FC.numeric_column("x", [2])
COLOR = FC.categorical_column_with_vocabulary_list("color", ["red", "green"])
ONE_DEEP = {"dnn_feature_columns": [X], "dnn_hidden_units": [3]}

# What is called, and parts of what the error says.
CASES = {
    "no columns": (lambda: est.LinearClassifier([]), "`feature_columns` ([]) must have"),
    "columns are no list": (
        lambda: est.LinearClassifier(3),
        "`feature_columns` (3) must be a list",
    ),
    "columns are a dict": (
        lambda: est.LinearClassifier({"x": X}),
        "must be a list of feature columns",
    ),
    "a column is a string": (
        lambda: est.LinearRegressor(["x"]),
        "`feature_columns` holds 'x', which is not a feature column",
    ),
    "a column twice": (lambda: est.LinearRegressor([X, X]), "has the column 'x' twice"),
    "categories in a deep model": (
        lambda: est.DNNClassifier([3], [X, COLOR]),
        "has the column 'color', which gives categories",
        "embedding_column or indicator_column",
    ),
    "hidden units": (lambda: est.DNNClassifier(3, [X]), "`hidden_units` (3) must be a list"),
    "a hidden unit": (lambda: est.DNNClassifier([2.5], [X]), "`hidden_units` (2.5)", "integer"),
    "no hidden unit": (lambda: est.DNNClassifier([0], [X]), "(0) must be at least 1"),
    "combined hidden units": (
        lambda: est.DNNLinearCombinedRegressor(dnn_feature_columns=[X]),
        "`dnn_hidden_units` (None) must be a list",
    ),
    "nothing combined": (
        est.DNNLinearCombinedClassifier,
        "`linear_feature_columns` and `dnn_feature_columns` are both empty",
    ),
    "optimizer": (
        lambda: est.LinearClassifier([X], optimizer="ftrll"),
        "`optimizer` ('ftrll') is unknown",
        "Ftrl",
    ),
    "optimizer is a number": (lambda: est.BaselineRegressor(optimizer=3), "`optimizer` (3) must"),
    "combined optimizer": (
        lambda: est.DNNLinearCombinedClassifier(dnn_optimizer="Adamm", **ONE_DEEP),
        "`dnn_optimizer` ('Adamm') is unknown",
        "Adam",
    ),
    "combiner": (
        lambda: est.LinearClassifier([X], sparse_combiner="max"),
        "`sparse_combiner` ('max') is unknown",
    ),
    "activation": (
        lambda: est.DNNClassifier([3], [X], activation_fn="rellu"),
        "`activation_fn` ('rellu') is not in tf.nn. Did you mean 'relu'?",
    ),
    "activation is a number": (
        lambda: est.DNNClassifier([3], [X], activation_fn=3),
        "`activation_fn` (3) must be a function",
    ),
    "dropout": (lambda: est.DNNClassifier([3], [X], dropout=1.0), "`dropout` (1.0) must be below"),
    "batch_norm": (lambda: est.DNNClassifier([3], [X], batch_norm=3), "`batch_norm` (3) must be"),
    "one class": (lambda: est.BaselineClassifier(n_classes=1), "`n_classes` (1) must be at least"),
    "head of a deep model": (lambda: est.DNNEstimator("head", [3], [X]), "`head` ('head')"),
    "head of both": (lambda: est.DNNLinearCombinedEstimator("head"), "`head` ('head')"),
    "label_dimension": (lambda: est.DNNRegressor([3], [X], label_dimension=0), "(0) must be at"),
    "head": (lambda: est.LinearEstimator("head", [X]), "`head` ('head') must be an estimator.Head"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_names_the_argument_and_the_rule_before_anything_is_built(name):
    call, *parts = CASES[name]
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the parts are the match
        call()
    for part in parts:
        assert part in str(info.value)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"x": [[1.0, 2.0]]}, "column 'color' needs the feature 'color', which is not among"),
        (
            {"x": [["a", "b"]], "color": [["red"]]},
            "feature 'x', which the column 'x' needs, is string; it must be float32",
        ),
        (
            {"x": [[1.0, 2.0]], "color": [[0.5]]},
            "feature 'color', which the column 'color' needs, is float",
        ),
        ([1.0], "must be a dict from the keys of the feature columns"),
    ],
)
def test_an_error_names_the_column_and_the_key(features, message, tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensors((features, np.int64([[1]])))

    with (
        est.LinearClassifier([X, COLOR], str(tmp_path)) as model,
        pytest.raises(ValueError, match=message),
    ):
        model.train(input_fn, steps=1)
