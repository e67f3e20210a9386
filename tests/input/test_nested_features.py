"""Features nested in one another, and inputs of Python generators, under every strategy."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases

v1 = tf.compat.v1

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)
LOOPS = pytest.mark.parametrize("loop", [1, 100])

Pair = collections.namedtuple("Pair", ["one", "other"])


@dataclasses.dataclass
class Example:
    """A class that tf.nest knows by its two methods."""

    words: tf.RaggedTensor
    weight: tf.Tensor

    def __tf_flatten__(self):
        return (), (self.words, self.weight)

    @classmethod
    def __tf_unflatten__(cls, metadata, components):
        return cls(*components)


def sparse_of(x):
    """Row i holds x[i] in the column x[i] % 3."""
    rows = tf.range(tf.size(x, tf.int64))
    return tf.SparseTensor(tf.stack([rows, x % 3], 1), x, [tf.size(x, tf.int64), 3])


def ragged_of(x):
    """Row i holds x[i] ones."""
    return tf.RaggedTensor.from_row_lengths(tf.repeat(tf.ones_like(x), x), x)


# By name: what makes the features of a batch of int64 [batch size], and what reads it back.
FORMS = {
    "dicts in dicts": (
        lambda x: {"a": {"b": {"c": x}}, "d": {"e": 10 * x}},
        lambda f: (f["a"]["b"]["c"] + f["d"]["e"]) // 11,
    ),
    "tuples in dicts in tuples": (
        lambda x: ({"a": (x, 10 * x)}, (100 * x,)),
        lambda f: (f[0]["a"][0] + f[0]["a"][1] + f[1][0]) // 111,
    ),
    "sparse and ragged in dicts": (
        lambda x: {"in": {"s": sparse_of(x), "r": ragged_of(x)}, "x": x},
        lambda f: (
            (tf.sparse.reduce_sum(f["in"]["s"], 1) + tf.reduce_sum(f["in"]["r"], 1) + f["x"]) // 3
        ),
    ),
    "namedtuple of ragged and text": (
        lambda x: Pair(ragged_of(x), {"t": tf.strings.as_string(x)}),
        lambda f: (tf.reduce_sum(f.one, 1) + tf.strings.to_number(f.other["t"], tf.int64)) // 2,
    ),
    "dataclass": (
        lambda x: {"example": Example(ragged_of(x), x)},
        lambda f: (tf.reduce_sum(f["example"].words, 1) + f["example"].weight) // 2,
    ),
    "ragged of two levels": (
        lambda x: tf.RaggedTensor.from_row_lengths(
            ragged_of(tf.fill([2 * tf.size(x)], tf.constant(1, tf.int64)) * tf.repeat(x, 2)),
            tf.fill([tf.size(x)], tf.constant(2, tf.int64)),
        ),
        lambda f: tf.reduce_sum(tf.reduce_sum(f, 2), 1) // 2,
    ),
}


def make_model_fn(read):
    """Adds up what `read` finds in the features."""

    def model_fn(features, labels, mode):
        x = tf.cast(read(features), tf.float32)
        if labels is not None:
            x = (x + tf.cast(labels, tf.float32)) / 2
        spec = {"predictions": {"x": x}}
        if mode != est.ModeKeys.PREDICT:
            added = v1.get_variable(
                "added",
                [],
                initializer=v1.zeros_initializer(),
                trainable=False,
                aggregation=tf.VariableAggregation.SUM,
            )
            step = v1.train.get_global_step()
            spec["loss"] = tf.reduce_mean(x)
            spec["eval_metric_ops"] = {"mean": v1.metrics.mean(x)}
            spec["train_op"] = tf.group(added.assign_add(tf.reduce_sum(x)), step.assign_add(1))
        return est.EstimatorSpec(mode, **spec)

    return model_fn


def check_every_verb(model_dir, read, make_input_fn, strategy, loop):
    """The input is of 0, 1, ... in batches of 2."""
    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    trained = est.Estimator(make_model_fn(read), str(model_dir), config)
    trained.train(make_input_fn(8))
    assert trained.get_variable_value("added") == 28
    # The last batch is smaller, and one of two replicas has none.
    assert trained.evaluate(make_input_fn(5))["mean"] == 2.0
    assert [row["x"] for row in trained.predict(make_input_fn(5))] == [0, 1, 2, 3, 4]


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize(("form", "loop"), list(zip(FORMS, itertools.cycle([1, 100]))))
def test_features_of_any_structure_go_through_every_verb(tmp_path, strategy, loop, form):
    write, read = FORMS[form]

    def make_input_fn(count):
        return lambda: tf.data.Dataset.range(count).batch(2).map(lambda x: (write(x), x))

    check_every_verb(tmp_path, read, make_input_fn, strategy, loop)


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_python_generator_is_an_input(tmp_path, strategy, loop):
    def make_input_fn(count):
        def generate():
            for i in range(count):
                yield {"x": np.int64(i), "words": ["w"] * i}, np.float32(i)

        def input_fn():
            signature = (
                {"x": tf.TensorSpec([], tf.int64), "words": tf.TensorSpec([None], tf.string)},
                tf.TensorSpec([], tf.float32),
            )
            dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
            return dataset.ragged_batch(2)

        return input_fn

    def read(features):
        return (features["x"] + features["words"].row_lengths()) // 2

    check_every_verb(tmp_path, read, make_input_fn, strategy, loop)
