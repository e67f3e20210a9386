"""Examples with one category each are looked up with fewer ops, and with the same results."""

import numpy as np
import pytest
import tensorflow as tf

from estimator import _tf

V1 = tf.compat.v1
COLUMNS = tf.feature_column
FEATURES = {
    "strings": np.array(["a", "b", "", "a", "c"]),
    "integers": np.array([3, 1, -1, 3, 7], np.int64),
}
COMBINERS = ("mean", "sqrtn", "sum")


def build(key, features, combiner):
    """The embedding and the linear sum of a column, and their gradients: values, and what rows."""
    dtype = tf.as_dtype(features[key].dtype)
    hashed = COLUMNS.categorical_column_with_hash_bucket(key, 10, dtype)
    initializer = tf.constant_initializer(np.arange(20.0))
    embedding = COLUMNS.embedding_column(hashed, 2, combiner=combiner, initializer=initializer)
    given = _tf.ColumnInput(features)
    values = {"dense": given.dense(embedding), "sum": given.weighted_sum(hashed, 3, combiner)}
    scales = tf.constant([[1.0], [2.0], [4.0], [8.0], [16.0]])
    gradients = V1.gradients(
        [value * scales for value in values.values()], V1.trainable_variables()
    )
    touched = [tf.unique(tf.sort(gradient.indices))[0] for gradient in gradients]
    return values, [tf.convert_to_tensor(g) for g in gradients], touched


def run(key, combiner, form):
    """`form` is what makes the feature of the array."""
    with tf.Graph().as_default() as graph, V1.Session() as session:
        result = build(key, {key: form(FEATURES[key])}, combiner)
        session.run(V1.global_variables_initializer())
        return session.run(result), {op.type for op in graph.get_operations()}


def as_sparse(values):
    is_missing = values == (-1 if values.dtype == np.int64 else "")
    rows = np.flatnonzero(~is_missing)
    indices = np.stack([rows, np.zeros_like(rows)], axis=1)
    return tf.SparseTensor(indices, values[rows], [len(values), 1])


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("key", FEATURES)
@pytest.mark.parametrize("form", [tf.constant, lambda x: tf.constant(x[:, np.newaxis])])
def test_values_gradients_and_touched_rows_are_those_of_the_general_lookup(form, key, combiner):
    got, ops = run(key, combiner, form)
    expected, general_ops = run(key, combiner, as_sparse)
    tf.nest.map_structure(np.testing.assert_array_equal, got, expected)
    assert (got[0]["dense"][2] == 0).all()
    assert (got[0]["dense"][:2] != 0).any()
    assert "SparseFillEmptyRows" in general_ops - ops


@pytest.mark.parametrize("shape", [[None], [None, 1]])
def test_the_batch_size_may_vary(shape):
    with tf.Graph().as_default(), V1.Session() as session:
        words = V1.placeholder(tf.string, shape)
        hashed = COLUMNS.categorical_column_with_hash_bucket("word", 10)
        given = _tf.ColumnInput({"word": words})
        total = given.weighted_sum(hashed, 3, "sum")
        dense = given.dense(COLUMNS.embedding_column(hashed, 2))
        session.run(V1.global_variables_initializer())
        assert dense.shape.as_list() == [None, 2]
        for count in (0, 1, 4):
            fed = np.full([count] + shape[1:], "a")
            got = session.run((total, dense), {words: fed})
            assert [value.shape for value in got] == [(count, 3), (count, 2)]


@pytest.mark.parametrize(
    "feature",
    [
        [["a", "b"], ["", "c"]],  # Several categories.
        tf.ragged.constant([["a"], ["b", "c"]]).to_sparse(),
    ],
    ids=["wide", "sparse"],
)
def test_other_features_take_the_general_lookup(feature):
    with tf.Graph().as_default() as graph:
        if isinstance(feature, tf.SparseTensor):
            feature = tf.SparseTensor(
                feature.indices.numpy(), feature.values.numpy(), feature.dense_shape.numpy()
            )
        hashed = COLUMNS.categorical_column_with_hash_bucket("word", 10)
        given = _tf.ColumnInput(
            {"word": tf.convert_to_tensor(feature) if isinstance(feature, list) else feature}
        )
        given.weighted_sum(hashed, 3, "sum")
        assert "SparseFillEmptyRows" in {op.type for op in graph.get_operations()}
