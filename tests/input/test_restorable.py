"""Inputs whose position TensorFlow cannot restore start at their beginning, and say so."""

import functools
import logging

import pytest
import tensorflow as tf

import estimator as est
from estimator.input.restorable import unrestorable_part
from tests.toy import ids_model_fn, ids_of


def csv(folder, header):
    paths = []
    for i in range(2):
        path = folder / f"{i}.csv"
        lines = ["a,b"] if header else []
        path.write_text("\n".join([*lines, *(f"{10 * i + j},{j}" for j in range(10))]) + "\n")
        paths.append(str(path))
    rows = tf.data.experimental.CsvDataset(paths, [tf.int64, tf.int64], header=header)
    return rows.map(lambda a, b: a).batch(1)


def made_csv(folder):
    csv(folder, header=True)
    made = tf.data.experimental.make_csv_dataset(
        str(folder / "*.csv"), 1, num_epochs=1, shuffle=False
    )
    return made.map(lambda row: tf.cast(row["a"], tf.int64))


def cached(folder, name):
    path = str(folder / name) if name else ""
    return tf.data.Dataset.range(20).cache(path).repeat().batch(1)


def snapshot(folder):
    return tf.data.Dataset.range(20).snapshot(str(folder / "snapshot")).repeat().batch(1)


def looked_up(folder, kind):
    pairs = tf.lookup.KeyValueTensorInitializer(tf.range(20), 100 + tf.range(20))
    table = tf.lookup.StaticHashTable(pairs, 0)
    return tf.data.Dataset.range(20).map(lambda i: table.lookup(tf.cast(i, tf.int32))).batch(1)


INPUTS = {
    "csv with a header": (functools.partial(csv, header=True), "a CSV file with a header"),
    "make_csv_dataset": (made_csv, "a CSV file with a header"),
    "csv": (functools.partial(csv, header=False), None),
    "cache in a file": (functools.partial(cached, name="cache"), "a `cache` in a file"),
    "cache in memory": (functools.partial(cached, name=""), None),
    "snapshot": (snapshot, "a `snapshot`"),
    "table": (functools.partial(looked_up, kind="table"), None),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_training_goes_on_or_starts_its_input_anew(tmp_path, kind, caplog):
    make, reason = INPUTS[kind]
    with tf.Graph().as_default() as graph:
        make(tmp_path)
        assert unrestorable_part(graph, 0) == reason
    model_dir = str(tmp_path / "model")
    with caplog.at_level(logging.WARNING, "estimator"):
        for max_steps in (7, 12):
            trained = est.Estimator(ids_model_fn, model_dir)
            trained.train(lambda: make(tmp_path), max_steps=max_steps)
            for path in tmp_path.glob("cache*"):
                path.unlink()  # As on another machine.
    first = 100 if kind == "table" else 0
    steps = range(12) if reason is None else [*range(7), *range(5)]
    assert ids_of(trained) == [first + step for step in steps]
    warnings = [r.message for r in caplog.records if "position" in r.message]
    assert len(warnings) == (0 if reason is None else 2)
    assert all(reason in warning for warning in warnings)


def test_a_cache_in_a_file_stays_usable_by_others(tmp_path):
    def input_fn():
        return cached(tmp_path, "cache")

    model = est.Estimator(ids_model_fn, str(tmp_path / "model"))
    model.train(input_fn, steps=2)
    model.evaluate(lambda: input_fn().take(3))
