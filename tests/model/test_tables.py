"""Lookup tables in `input_fn` and in `model_fn`, in every verb."""

import contextlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases

v1 = tf.compat.v1
lookup = tf.lookup

STRATEGIES = pytest.mark.parametrize(
    "strategy", ["no_strategy", "one_device", "mirrored_x2", "central_storage_x2"]
)

WORDS = ["ant", "bee", "cow", "dog"]
COUNT = 8
TEXT = np.resize(WORDS, COUNT)  # The index of word i is i % 4.


def hash_table(keys, values, default):
    return lookup.StaticHashTable(lookup.KeyValueTensorInitializer(keys, values), default)


def of_keys(path):
    del path
    return lookup.StaticVocabularyTable(
        lookup.KeyValueTensorInitializer(WORDS, np.arange(4, dtype=np.int64)), num_oov_buckets=1
    )


def of_file(path):
    initializer = lookup.TextFileInitializer(
        path,
        tf.string,
        lookup.TextFileIndex.WHOLE_LINE,
        tf.int64,
        lookup.TextFileIndex.LINE_NUMBER,
    )
    return lookup.StaticVocabularyTable(initializer, num_oov_buckets=1)


def of_file_v1(path):
    initializer = lookup.TextFileInitializer(
        path, tf.string, lookup.TextFileIndex.WHOLE_LINE, tf.int64, lookup.TextFileIndex.LINE_NUMBER
    )
    return v1.lookup.StaticVocabularyTable(initializer, num_oov_buckets=1)


TABLES = {"keys": of_keys, "file": of_file, "file of v1": of_file_v1}


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS) + "\n")
    return str(path)


def make_input_fn(count=COUNT):
    """Words, and the length of each by a table of the input's."""

    def input_fn(input_context):
        table = hash_table(WORDS, [3.0, 3.0, 3.0, 3.0], -1.0)
        words = tf.data.Dataset.from_tensor_slices(TEXT[:count])
        size = input_context.get_per_replica_batch_size(4)
        return words.map(lambda word: (word, table.lookup(word))).batch(size)

    return input_fn


def make_model_fn(make_table):
    def model_fn(features, labels, mode):
        indices = make_table().lookup(features)
        back = hash_table(tf.range(4, dtype=tf.int64), WORDS, "?").lookup(indices)
        x = tf.cast(indices, tf.float32)
        total = v1.get_variable(
            "sum_of_indices",
            [],
            initializer=v1.zeros_initializer(),
            aggregation=tf.VariableAggregation.SUM,
            trainable=False,
        )
        spec = {"predictions": {"index": indices, "word": back}}
        if mode != est.ModeKeys.PREDICT:
            spec["loss"] = tf.reduce_mean(labels)
            spec["eval_metric_ops"] = {"index": v1.metrics.mean(x)}
            step = v1.train.get_global_step()
            spec["train_op"] = tf.group(total.assign_add(tf.reduce_sum(x)), step.assign_add(1))
        return est.EstimatorSpec(mode, **spec)

    return model_fn


@pytest.mark.each_value
@pytest.mark.parametrize(("loop", "kind"), [(1, "file"), (100, "keys"), (100, "file of v1")])
@STRATEGIES
def test_tables_are_filled_in_every_verb(tmp_path, vocabulary, strategy, loop, kind):
    config = cases.make_config(**cases.STRATEGIES[strategy], iterations_per_loop=loop)
    model_fn = make_model_fn(lambda: TABLES[kind](vocabulary))
    trained = est.Estimator(model_fn, str(tmp_path / "model"), config)
    for so_far in (12, 24):  # The second run finds a checkpoint.
        trained.train(make_input_fn(), max_steps=so_far // 6)
        assert trained.train_result.loss == 3.0
        assert trained.get_variable_value("sum_of_indices") == so_far
    results = trained.evaluate(make_input_fn(7))
    assert (results["index"], results["loss"]) == (np.float32(9 / 7), 3.0)
    rows = list(trained.predict(make_input_fn(7)))
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 0, 1, 2]
    assert [row["word"].decode() for row in rows] == list(TEXT[:7])


@pytest.mark.parametrize("kind", TABLES)
def test_an_exported_model_has_its_tables_without_the_file(tmp_path, vocabulary, kind):
    config = cases.make_config()
    model_fn = make_model_fn(lambda: TABLES[kind](vocabulary))
    trained = est.Estimator(model_fn, str(tmp_path / "model"), config)
    trained.train(make_input_fn(), steps=1)

    def receiver_fn():
        words = v1.placeholder(tf.string, [None])
        return est.export.TensorServingInputReceiver(words, {"words": words})

    path = trained.export_saved_model(str(tmp_path / "export"), receiver_fn).decode()
    moved = shutil.move(path, tmp_path / "moved")
    (tmp_path / "words.txt").unlink()
    served = tf.saved_model.load(str(moved)).signatures["serving_default"]
    outputs = served(tf.constant(["dog", "ant", "?"]))
    assert outputs["index"].numpy().tolist() == [3, 0, 4]
    assert outputs["word"].numpy().tolist() == [b"dog", b"ant", b"?"]


def make_growing_model_fn(scope):
    def model_fn(features, labels, mode):
        with scope():
            table = lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, name="seen")
        insert = table.insert(features, 10 * features)
        step = v1.train.get_global_step()
        return est.EstimatorSpec(
            mode,
            predictions=table.lookup(features),
            loss=tf.constant(1.0),
            train_op=tf.group(insert, step.assign_add(1)),
        )

    return model_fn


@pytest.mark.parametrize(
    ("loop", "scope"), [(1, contextlib.nullcontext), (1, tf.init_scope), (100, tf.init_scope)]
)
def test_a_table_that_grows_is_saved_and_restored(tmp_path, loop, scope):
    config = cases.make_config(iterations_per_loop=loop)
    trained = est.Estimator(make_growing_model_fn(scope), str(tmp_path), config)
    trained.train(lambda: tf.data.Dataset.range(2, 5).batch(1), max_steps=3)
    found = list(trained.predict(lambda: tf.data.Dataset.range(6).batch(6)))
    assert found == [-1, -1, 20, 30, 40, -1]


def test_a_table_that_grows_in_a_loop_is_told_the_way_out(tmp_path):
    config = cases.make_config(iterations_per_loop=5)
    trained = est.Estimator(make_growing_model_fn(contextlib.nullcontext), str(tmp_path), config)
    with pytest.raises(ValueError, match=r"'seen' is saved .*`with tf.init_scope\(\):`"):
        trained.train(lambda: tf.data.Dataset.range(9).batch(1), steps=5)
