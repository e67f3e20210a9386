"""What `classifier_parse_example_spec` and `regressor_parse_example_spec` parse."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

column = tf.feature_column

FUNCTIONS = pytest.mark.parametrize(
    "function", [est.classifier_parse_example_spec, est.regressor_parse_example_spec]
)


def example(**features):
    """A serialized tf.Example of lists of numbers and bytes."""
    kinds = {int: "int64_list", float: "float_list", bytes: "bytes_list"}
    message = tf.train.Example()
    for name, values in features.items():
        getattr(message.features.feature[name], kinds[type(values[0])]).value.extend(values)
    return message.SerializeToString()


def columns():
    words = column.categorical_column_with_hash_bucket("word", 10)
    size = column.numeric_column("size", shape=[2])
    return [words, size, column.bucketized_column(column.numeric_column("age"), [1.0])]


FEATURES = {
    "word": tf.io.VarLenFeature(tf.string),
    "size": tf.io.FixedLenFeature([2], tf.float32),
    "age": tf.io.FixedLenFeature([1], tf.float32),
}


def shapes_as_lists(spec):
    fixed = tf.io.FixedLenFeature
    return {
        name: f._replace(shape=list(f.shape)) if isinstance(f, fixed) else f
        for name, f in spec.items()
    }


def test_a_classifiers_label_is_an_integer_by_default():
    spec = est.classifier_parse_example_spec(columns(), "label")
    assert shapes_as_lists(spec) == {**FEATURES, "label": tf.io.FixedLenFeature([1], tf.int64)}


def test_a_regressors_label_is_a_number_or_several():
    spec = est.regressor_parse_example_spec(columns(), "label", label_dimension=3)
    assert shapes_as_lists(spec) == {**FEATURES, "label": tf.io.FixedLenFeature([3], tf.float32)}


@FUNCTIONS
def test_weights_are_parsed_by_name_or_by_column(function):
    by_name = function(columns(), "label", weight_column="weight")
    by_column = function(columns(), "label", weight_column=column.numeric_column("weight"))
    assert by_name == by_column
    assert shapes_as_lists(by_name)["weight"] == tf.io.FixedLenFeature([1], tf.float32)


def test_the_spec_parses_examples_with_a_default_for_the_label():
    spec = est.classifier_parse_example_spec(
        columns(), "label", tf.string, label_default="none", weight_column="weight"
    )
    one = {"word": [b"a", b"b"], "size": [1.0, 2.0], "age": [7.0], "weight": [0.5]}
    parsed = tf.io.parse_example([example(**one, label=[b"yes"]), example(**one)], spec)
    assert parsed["label"].numpy().tolist() == [[b"yes"], [b"none"]]
    assert parsed["weight"].numpy().tolist() == [[0.5], [0.5]]
    assert parsed["size"].numpy().tolist() == [[1, 2], [1, 2]]
    assert parsed["word"].values.numpy().tolist() == [b"a", b"b", b"a", b"b"]


def test_a_default_of_several_numbers_is_that_of_a_label_of_several():
    spec = est.regressor_parse_example_spec([], "y", label_default=[1.0, 2.0], label_dimension=2)
    parsed = tf.io.parse_example([example(y=[5.0, 6.0]), example(z=[1])], spec)
    np.testing.assert_array_equal(parsed["y"], [[5, 6], [1, 2]])


@FUNCTIONS
def test_without_a_default_a_missing_label_is_an_error(function):
    spec = function([], "label")
    with pytest.raises(tf.errors.InvalidArgumentError, match="label"):
        tf.io.parse_example([example(other=[1])], spec)


def test_the_columns_of_tensorflow_1_will_do():
    with tf.Graph().as_default():
        words = [column.categorical_column_with_identity(name, 5) for name in ("a", "b")]
        shared = tf.compat.v1.feature_column.shared_embedding_columns(words, dimension=2)
        spec = est.compat.v1.classifier_parse_example_spec(shared, "label")
    assert spec.keys() == {"a", "b", "label"}
    assert spec["a"] == tf.io.VarLenFeature(tf.int64)
