"""Two inputs are told apart by their graphs, arrays outside of graphs, and files."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.input.array_datasets import arrays_outside_graph
from estimator.input.graph_identity import MAX_BYTES, input_identity
from tests.input import identities

DATA = tf.data.Dataset


def make_large(first):
    array = np.arange(100_000, dtype=np.int64)
    array[0] = first
    return DATA.from_tensor_slices(array)


def make_in_memory(first, kind=np.float32):
    rows = np.array([first, *range(99)]).astype(kind)
    input_fn = est.inputs.numpy_input_fn({"x": rows}, shuffle=False)
    return input_fn.build_dataset()


PAIRS = {
    "range": (lambda: DATA.range(3), lambda: DATA.range(4)),
    "batch": (lambda: DATA.range(8).batch(2), lambda: DATA.range(8).batch(4)),
    "files": (lambda: DATA.list_files(["a"]), lambda: DATA.list_files(["b"])),
    "constant of a function": (
        lambda: DATA.range(8).map(lambda x: x + 1),
        lambda: DATA.range(8).map(lambda x: x + 2),
    ),
    "seed": (lambda: DATA.range(8).shuffle(8, 1), lambda: DATA.range(8).shuffle(8, 2)),
    "large array": (lambda: make_large(1), lambda: make_large(2)),
    "array in memory": (lambda: make_in_memory(1), lambda: make_in_memory(2)),
    "objects in memory": (lambda: make_in_memory(1, str), lambda: make_in_memory(2, str)),
}


def identity_of(make, num_before=1):
    with tf.Graph().as_default() as graph, arrays_outside_graph(2**16):
        for _ in range(num_before):
            tf.constant(7)
        tf.compat.v1.data.make_initializable_iterator(make())
        return input_identity(graph, num_before)


@pytest.mark.parametrize("name", PAIRS)
def test_an_equal_input_has_an_equal_identity_and_no_other(name):
    one, other = PAIRS[name]
    assert identity_of(one) == identity_of(one)
    assert identity_of(one) != identity_of(other)


READERS = {
    "lines": lambda folder: tf.data.TextLineDataset(f"{folder}/a.txt"),
    "a list": lambda folder: tf.data.TextLineDataset([f"{folder}/{name}.txt" for name in "ab"]),
    "in a function": lambda folder: DATA.range(2).flat_map(
        lambda _: tf.data.FixedLengthRecordDataset(f"{folder}/a.txt", 1)
    ),
    "names": lambda folder: DATA.from_tensor_slices([f"{folder}/a.txt"]).interleave(
        tf.data.TextLineDataset
    ),
    "a pattern": lambda folder: DATA.list_files(f"{folder}/*.txt"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_with_other_contents_is_another_input(tmp_path, name):
    def identity():
        return identity_of(lambda: READERS[name](tmp_path))

    file, text = tmp_path / "a.txt", "x" * 100_000
    found = [identity()]
    for change in (text, text + "x", text.replace("x", "y"), f"{text[:-1]}y"):
        file.write_text(change)
        found.append(identity())
    assert len(set(found)) == len(found)
    file.unlink()  # A copy of the same data, later.
    file.write_text(f"{text[:-1]}y")
    os.utime(file, (1, 1))
    (tmp_path / "other").write_text("not of this input")
    assert identity() == found[-1]


def test_words_are_not_looked_for_as_files(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(os.path, "isfile", lambda path: tried.append(path) is not None)
    words = [f"word {i}?*" for i in range(1000)]
    identity_of(lambda: DATA.from_tensor_slices(words))
    assert len(tried) < 20


def test_an_input_of_a_rewritten_file_begins_anew(tmp_path):
    """As in rounds of self-play, each of which writes the data that it then trains on."""
    file, model_dir = str(tmp_path / "data.tfrecord"), str(tmp_path / "model")
    seen = []

    def note(batch):
        seen.extend(batch.numpy().tolist())
        return len(seen)

    def model_fn(features, labels, mode):
        with tf.control_dependencies([tf.py_function(note, [features], tf.int64)]):
            step = tf.compat.v1.assign_add(tf.compat.v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=step)

    with est.Estimator(model_fn, model_dir) as model:
        for round_ in range(3):
            with tf.io.TFRecordWriter(file) as writer:
                for i in range(4):
                    writer.write(f"{round_} {i}".encode() * (1 + round_))
            for _ in range(2):
                model.train(lambda: tf.data.TFRecordDataset(file).batch(2), steps=1)
    expected = [f"{round_} {i}".encode() * (1 + round_) for round_ in range(3) for i in range(4)]
    assert seen == expected


@pytest.mark.parametrize("place", [1, 777, -1])
@pytest.mark.parametrize("kind", [np.float32, str])
def test_an_array_in_memory_of_which_one_row_is_another_is_another_input(kind, place):
    def identity(changed):
        rows = np.arange(20_000).astype(kind)
        rows[place] = changed
        return identity_of(est.inputs.numpy_input_fn({"x": rows}, shuffle=False).build_dataset)

    assert identity(1) == identity(1) != identity(2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_of_a_very_large_array_parts_from_its_beginning_to_its_end_are_compared(order):
    def identity(changed):
        rows = np.zeros([1000, MAX_BYTES // 500], np.uint8, order=order)
        rows[changed] = 1
        return identity_of(lambda: DATA.from_tensor_slices(rows))

    found = [identity(row) for row in (0, 0, 501, 502, 999)]
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_the_beginning_of_rows_that_are_padded_does_not_hide_the_rest():
    def identity(value):
        rows = np.zeros([2**14, 2**10], np.int64)
        rows[:, 2**9 :] = value
        return identity_of(lambda: DATA.from_tensor_slices(rows))

    assert identity(1) == identity(1) != identity(2)


def test_of_two_arrays_the_one_that_is_read_counts():
    def identity(place, other):
        def make():
            data = [DATA.from_tensor_slices(np.full([20_000], n, np.int64)) for n in (0, 1)]
            return data[place].concatenate(data[other])

        return identity_of(make)

    found = [identity(*places) for places in ((0, 1), (0, 1), (1, 0), (0, 0))]
    assert found[0] == found[1]
    assert len(set(found)) == 3


@pytest.mark.parametrize("length", [10, 20_000])
def test_long_strings_are_compared_by_both_ends(length):
    def identity(changed):
        texts = np.array([bytes([i % 256]) * length for i in range(3000)], object)
        texts[7] = texts[7][:-1] + changed
        return identity_of(est.inputs.numpy_input_fn({"x": texts}, shuffle=False).build_dataset)

    assert identity(b"a") == identity(b"a") != identity(b"b")


def test_a_buffer_that_is_filled_again_is_read_anew(tmp_path):
    """As a replay buffer: what the shuffle had read of its old rows must not come."""
    buffer, seen = np.zeros([3000, 8], np.float32), []

    def model_fn(features, labels, mode):
        note = tf.numpy_function(
            lambda x: seen.extend(x[:, 0]) or np.int64(0), [features], tf.int64
        )
        with tf.control_dependencies([note]):
            step = tf.compat.v1.assign_add(tf.compat.v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=step)

    with est.Estimator(model_fn, str(tmp_path)) as model:
        for round_ in range(1, 4):
            buffer[3:23] = round_
            seen.clear()
            model.train(lambda: DATA.from_tensor_slices(buffer).shuffle(3000).batch(10), steps=300)
            assert sorted(set(seen)) == [0, round_]


def test_what_was_in_the_graph_before_does_not_count():
    assert identity_of(lambda: DATA.range(3), 0) == identity_of(lambda: DATA.range(3), 0)

    def in_graph(value):
        with tf.Graph().as_default() as graph:
            tf.constant(value)
            tf.compat.v1.data.make_initializable_iterator(DATA.range(3))
            return input_identity(graph, 1)

    assert in_graph(1) == in_graph(2)


def test_the_input_of_another_process_has_an_equal_identity():
    mine = identities.all_identities()
    # Its functions have other numbers: it has made many before.
    run = [sys.executable, "-m", "tests.input.identities", "100"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # Its sets have another order.
    theirs = subprocess.run(
        run, capture_output=True, text=True, check=True, timeout=120, env=environment
    ).stdout
    assert theirs.split() == [identity.decode() for identity in mine]
    assert len(set(mine)) == len(mine)


def test_a_graph_with_many_constants_has_no_identity():
    array = np.zeros(MAX_BYTES + 1, np.uint8)
    with tf.Graph().as_default() as graph:
        DATA.from_tensors(array)
        assert input_identity(graph, 0) is None
