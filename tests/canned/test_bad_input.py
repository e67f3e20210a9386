"""What ready-made models say to arguments and features that they cannot use."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
FC = tf.feature_column
X = FC.numeric_column("x", [2])
COLOR = FC.categorical_column_with_vocabulary_list("color", ["red", "green"])
VALUES = FC.sequence_numeric_column("values")
RNN = est.experimental.RNNClassifier
ADAM = tf.keras.optimizers.Adam()
LEGACY = tf_keras.optimizers.legacy.Adam()
TWO = est.RunConfig(strategy="mirrored", num_replicas=2)
ONE_DEEP = {"dnn_feature_columns": [X], "dnn_hidden_units": [3]}

SEQUENCE = FC.sequence_categorical_column_with_hash_bucket("words", 5)


def embedding(key, size=6, **kwargs):
    return FC.embedding_column(FC.categorical_column_with_identity(key, size, **kwargs), 2)


def made_in_a_graph():
    with tf.Graph().as_default():
        return tf.keras.optimizers.Adam(0.1)


def build(model):
    """Builds a training step on two examples."""
    with tf.Graph().as_default():
        features = {"x": tf.zeros([2, 2]), "a b": tf.zeros([2, 1]), "a_b": tf.zeros([2, 1])}
        V1.train.create_global_step()
        return model.model_fn(features, tf.constant([[1], [0]]), "train", model.config)


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": [[1.0, 2.0]]}, [[1]]))


def build_twice(model):
    build(model)
    build(model)


def shared_columns():
    with tf.Graph().as_default():
        return tf.compat.v1.feature_column.shared_embedding_columns([COLOR], 2)


# What is called, and parts of what the error says.
CASES = {
    "no columns": (lambda: est.LinearClassifier([]), "`feature_columns` ([]) must have"),
    "columns are no list": (
        lambda: est.LinearClassifier(3),
        "`feature_columns` (3) must be a list",
    ),
    "columns are a dict": (
        lambda: est.LinearClassifier({"x": X}),
        "`feature_columns` ({'x': NumericColumn(",
        "must be a list. Put a single value in brackets",
    ),
    "a column is a string": (
        lambda: est.LinearRegressor(["x"]),
        "`feature_columns` holds 'x', which is not a feature column",
    ),
    "a column twice": (lambda: est.LinearRegressor([X, X]), "has the column 'x' twice"),
    "names of variables": (
        lambda: est.LinearRegressor([FC.numeric_column("a b"), FC.numeric_column("a_b")]),
        "has the columns 'a b' and 'a_b', whose variables would have the same name, 'a_b'",
    ),
    "names of embeddings": (
        lambda: est.compat.v1.DNNRegressor([3], [embedding("a/b"), embedding("a_b")]),
        "has the columns 'a/b_embedding' and 'a_b_embedding'",
    ),
    "a sequence in a linear model": (
        lambda: est.LinearClassifier([VALUES]),
        "has the column 'values' of sequences, whose order only the `sequence_feature_columns`",
        "categorical_column_with_identity",
    ),
    "a sequence in a deep model": (
        lambda: est.DNNClassifier([3], [FC.embedding_column(SEQUENCE, 2)]),
        "has the column 'words_embedding' of sequences",
    ),
    "categories in a deep model": (
        lambda: est.DNNClassifier([3], [X, COLOR]),
        "has the column 'color', which gives categories",
        "embedding_column or indicator_column",
    ),
    "an embedding of several columns in a linear model": (
        lambda: est.compat.v1.LinearClassifier(shared_columns()),
        "has the column 'color_shared_embedding' of shared_embedding_columns, which only a deep",
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
    "optimizer of another rate": (
        lambda: est.LinearClassifier([X], optimizer=V1.train.GradientDescentOptimizer),
        "`optimizer` takes arguments (learning_rate), but it is called with none",
    ),
    "what an optimizer's function returns": (
        lambda: build(est.DNNLinearCombinedClassifier(dnn_optimizer=lambda: "Adam", **ONE_DEEP)),
        "`dnn_optimizer` (<function",
        "returned 'Adam'; it must return an optimizer",
    ),
    "a function returns one optimizer twice": (
        lambda: build_twice(est.LinearClassifier([X], optimizer=lambda: LEGACY)),
        "`optimizer` (<function",
        "which has variables already; it must return a new optimizer at each call",
    ),
    "a function returns an optimizer made outside of it": (
        lambda: est.LinearClassifier([X], optimizer=lambda: ADAM).train(input_fn),
        "was made outside of this call",
        "make variables, layers, metrics and optimizers inside",
    ),
    "replicas have an optimizer that was made outside": (
        lambda: est.LinearClassifier([X], optimizer=lambda: ADAM, config=TWO).train(input_fn),
        "`model_fn` enters the scope of a strategy other than its own (Must not nest",
        "Keras optimizer does that was made outside of this call. Make it inside `model_fn`",
    ),
    "optimizer of another graph": (
        lambda: est.LinearClassifier([X], optimizer=made_in_a_graph()),
        "The optimizer <keras",
        "was made in a graph",
        "or pass a function that returns the optimizer",
    ),
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
    "head of both": (
        lambda: est.DNNLinearCombinedEstimator("head", **ONE_DEEP),
        "`head` ('head')",
    ),
    "label_dimension": (lambda: est.DNNRegressor([3], [X], label_dimension=0), "(0) must be at"),
    "no sequence": (
        lambda: RNN([X], units=[3]),
        "`sequence_feature_columns` has the column 'x', which is not one of sequences",
        "sequence_numeric_column",
    ),
    "no sequences": (lambda: RNN([], units=[3]), "`sequence_feature_columns` ([]) must have"),
    "sequences of categories": (
        lambda: RNN([SEQUENCE], units=[3]),
        "`sequence_feature_columns` has the column 'words', which gives categories",
    ),
    "a sequence as context": (
        lambda: RNN([VALUES], [VALUES], units=[3]),
        "`context_feature_columns` has the column 'values' of sequences",
    ),
    "units": (lambda: RNN([VALUES]), "`units` (None) must be a list of integers"),
    "a unit": (lambda: RNN([VALUES], units=[3, "4"]), "`units` ('4') must be an integer"),
    "units of numpy": (
        lambda: RNN([VALUES], units=np.int64(0)),
        "`units` (0) must be at least 1",
    ),
    "no units": (lambda: RNN([VALUES], units=[]), "`units` ([]) must have at least one layer"),
    "cell type": (
        lambda: RNN([VALUES], units=[3], cell_type="ltsm"),
        "`cell_type` ('ltsm') is unknown. Did you mean 'lstm'?",
    ),
    "cell type is a number": (
        lambda: RNN([VALUES], units=[3], cell_type=3),
        "`cell_type` (3) must be one of 'simple_rnn'",
    ),
    "cells and units": (
        lambda: RNN([VALUES], units=[3], rnn_cell_fn=list),
        "`rnn_cell_fn` is given together with `units` or `cell_type`",
    ),
    "cells are no function": (
        lambda: RNN([VALUES], rnn_cell_fn="lstm"),
        "`rnn_cell_fn` ('lstm') must be a function",
    ),
    "cells with an argument": (
        lambda: RNN([VALUES], rnn_cell_fn=lambda units: units),
        "`rnn_cell_fn` takes arguments (units)",
    ),
    "return_sequences": (
        lambda: RNN([VALUES], units=[3], return_sequences=1),
        "`return_sequences` (1) must be True or False",
    ),
    "sequence_mask": (
        lambda: RNN([VALUES], units=[3], return_sequences=True, sequence_mask=3),
        "`sequence_mask` (3) must be the name of a feature",
    ),
    "classes of sequences": (lambda: RNN([VALUES], units=[3], n_classes=1), "`n_classes` (1) must"),
    "optimizer of an RNN": (lambda: RNN([VALUES], units=[3], optimizer="sgdd"), "`optimizer` ('sg"),
    "head of an RNN": (
        lambda: est.experimental.RNNEstimator("head", [VALUES], units=[3]),
        "`head` ('head') must be an estimator.Head",
    ),
    "head of steps": (
        lambda: est.experimental.RNNEstimator(
            est.MultiHead([est.BinaryClassHead(name="one")]),
            [VALUES],
            units=[3],
            return_sequences=True,
        ),
        "cannot be used with `return_sequences`: a MultiHead",
    ),
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
            "feature 'x', which the column 'x' needs, is string; it must be float32. Convert it in",
        ),
        (
            {"x": [[1.0, 2.0]], "color": [[0.5]]},
            "feature 'color', which the column 'color' needs, is float",
        ),
        (
            {"x": [[1.0, 2.0]], "color": V1.ragged.constant_value([["red", "blue"]])},
            r"feature 'color', which the column 'color' needs, is ragged.* `to_sparse\(\)`",
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


def test_numbers_whose_keys_are_alike_have_no_variables_in_a_deep_model():
    columns = [FC.numeric_column("a b"), FC.numeric_column("a_b")]
    with est.DNNClassifier([3], columns) as model:
        assert build(model).mode == "train"


IDS = FC.categorical_column_with_identity("id", 6)
WITH_IDS = {
    "linear": lambda: est.LinearClassifier([IDS]),
    "embedding": lambda: est.DNNClassifier([3], [embedding("id")]),
    "weighted": lambda: est.LinearClassifier([FC.weighted_categorical_column(IDS, "w")]),
}


def logits_of(model, ids):
    """The logits of two examples; variables are drawn."""
    with tf.Graph().as_default(), V1.Session() as session, model:
        features = {"id": tf.constant(ids, tf.int64), "w": tf.ones([2, 1])}
        spec = model.model_fn(features, None, "infer", model.config)
        session.run(V1.global_variables_initializer())
        return session.run(spec.predictions["logits"])


@pytest.mark.parametrize("name", WITH_IDS)
def test_an_id_outside_of_a_variable_is_an_error_that_names_its_column(name):
    message = r"feature `id`, which the column `id.*` needs, must be below its `num_buckets` \(6\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s){message}.*\[9\]"):
        logits_of(WITH_IDS[name](), [[1], [9]])
    # TensorFlow documents that negative ids are dropped.
    assert logits_of(WITH_IDS[name](), [[5], [-3]]).shape == (2, 1)


def test_columns_of_the_same_ids_share_a_check():
    weighted = FC.embedding_column(FC.weighted_categorical_column(IDS, "w"), 2)
    columns = [embedding("id"), weighted, FC.indicator_column(IDS)]
    with tf.Graph().as_default() as graph, est.DNNClassifier([3], columns) as model:
        features = {"id": tf.zeros([2, 1], tf.int64), "w": tf.ones([2, 1])}
        model.model_fn(features, None, "infer", model.config)
    checks = [op for op in graph.get_operations() if op.type == "Assert"]
    assert [op.inputs[0].op.type for op in checks] == ["Less"]


def test_ids_that_a_column_replaces_or_ignores_are_no_error():
    columns = [embedding("id", default_value=0), FC.indicator_column(IDS)]
    logits = logits_of(est.DNNClassifier([3], columns), [[9], [6]])
    np.testing.assert_array_equal(logits[0], logits[1])


def sequence(*values):
    """One sequence, outside of any graph."""
    indices = [[0, i] for i in range(len(values))]
    return tf.compat.v1.SparseTensorValue(indices, np.float32(values), [1, len(values)])


SPARSE = sequence(1, 2)


def steps_of(head):
    return functools.partial(est.experimental.RNNEstimator, head)


@pytest.mark.parametrize(
    ("features", "label", "settings", "message"),
    [
        ({}, [[1]], {}, "column 'values' needs the feature 'values', which is not among"),
        ({"values": [[1.0, 2.0]]}, [[1]], {}, "'values' needs, must be a tf.sparse.SparseTensor"),
        ({"values": SPARSE}, [1], {"return_sequences": True}, r"labels have shape \(1,\); with"),
        (
            {"values": SPARSE, "sequence_mask": [True]},
            [[1, 0]],
            {"return_sequences": True},
            r"The mask, feature 'sequence_mask', has shape \(1,\)",
        ),
        (
            {"values": SPARSE},
            [[1]],
            {"units": None, "rnn_cell_fn": lambda: 3},
            "`rnn_cell_fn` gave 3, which is not an RNN cell",
        ),
        (
            {"values": SPARSE},
            [[1]],
            {"units": None, "rnn_cell_fn": list},
            r"`rnn_cell_fn` gave \[\]; it must give at least one RNN cell",
        ),
        (
            {"values": SPARSE, "sequence_mask": SPARSE},
            [[1, 0]],
            {"return_sequences": True},
            "The mask, feature 'sequence_mask', is a SparseTensor; it must be a dense tensor",
        ),
        (
            {"values": SPARSE, "sequence_mask": [[True, False]]},
            SPARSE,
            {"return_sequences": True},
            "one value for each step that is True in the mask, feature `sequence_mask`",
        ),
        (
            {"values": SPARSE},
            [[1, 0]],
            {"return_sequences": True, "weight_column": "weight"},
            r"\('weight'\) is not among the features \(\['sequence_mask', 'values', 'x'",
        ),
        (
            {"values": SPARSE},
            SPARSE,
            {"return_sequences": True, "make": steps_of(est.MultiLabelHead(3))},
            "of a MultiLabelHead are a SparseTensor; with `return_sequences` they must be",
        ),
    ],
)
def test_an_rnn_names_the_feature_or_the_argument(features, label, settings, message, tmp_path):
    def input_fn():
        data = tf.data.Dataset.from_tensors(({"x": [1.0], **features}, label))
        return data.map(lambda x, y: (x, tf.cast(y, tf.int64)))

    settings = {"make": RNN, "units": [3], **settings}
    errors = (ValueError, tf.errors.InvalidArgumentError)
    with (
        settings.pop("make")([VALUES], model_dir=str(tmp_path), **settings) as model,
        pytest.raises(errors, match=message),
    ):
        model.train(input_fn, steps=1)


def test_sequences_of_two_lengths_are_an_error_that_says_so(tmp_path):
    columns = [VALUES, FC.sequence_numeric_column("more")]
    example = tf.train.Example()
    example.features.feature["values"].float_list.value.extend([1, 2])
    example.features.feature["more"].float_list.value.extend([1, 2, 3])
    spec = FC.make_parse_example_spec(columns)

    def input_fn():
        data = tf.data.Dataset.from_tensors([example.SerializeToString()])
        return data.map(lambda examples: (tf.io.parse_example(examples, spec), [[1]]))

    with (
        RNN(columns, units=[3], model_dir=str(tmp_path)) as model,
        pytest.raises(tf.errors.InvalidArgumentError, match="must have the same length in"),
    ):
        model.train(input_fn, steps=1)
