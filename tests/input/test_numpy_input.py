"""`numpy_input_fn`: each row as often as asked, in the order asked, and none of them in a graph."""

import gc
import glob
import os
import weakref

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import ids_model_fn, ids_of

v1 = tf.compat.v1

numpy_input_fn = est.inputs.numpy_input_fn


def batches_of(input_fn, count=None, seed=None):
    """The first batches that it gives, as NumPy arrays, and that a graph around it is small."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(seed)
        build_dataset = getattr(input_fn, "build_dataset", input_fn)
        get_next = v1.data.make_one_shot_iterator(build_dataset()).get_next()
        assert len(graph.as_graph_def().SerializeToString()) < 20_000
        found = []
        with v1.Session() as session:
            while count is None or len(found) < count:
                try:
                    found.append(session.run(get_next))
                except tf.errors.OutOfRangeError:
                    break
    return found


def rows_of(input_fn, count=None, seed=None):
    return [batch.tolist() for batch in batches_of(input_fn, count, seed)]


def test_an_array_comes_in_batches_of_its_rows():
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = batches_of(numpy_input_fn(x, batch_size=2, shuffle=False))
    np.testing.assert_array_equal(np.concatenate(found), x)
    assert [batch.shape for batch in found] == [(2, 2), (2, 2), (1, 2)]
    assert {batch.dtype for batch in found} == {np.dtype(np.float32)}


def test_dicts_of_features_and_of_labels_keep_their_names_dtypes_and_rows():
    x = {"a": np.arange(3, dtype=np.int32), "b": np.ones((3, 2, 1), np.float64)}
    y = {"c": np.array(["one", "zwölf", ""]), "d": np.array([True, False, True])}
    [(features, labels)] = batches_of(numpy_input_fn(x, y, shuffle=False))
    assert features.keys() == x.keys()
    assert labels.keys() == y.keys()
    np.testing.assert_array_equal(features["a"], x["a"])
    np.testing.assert_array_equal(features["b"], x["b"])
    assert [text.decode() for text in labels["c"]] == y["c"].tolist()
    np.testing.assert_array_equal(labels["d"], y["d"])
    dtypes = [a.dtype for a in (features["a"], features["b"], labels["d"])]
    assert dtypes == [np.int32, np.float64, np.bool_]


@pytest.mark.parametrize(
    "values", [["a", "\N{SNOWMAN}"], [b"a", b"\xff\x00b"]], ids=["str", "bytes"]
)
def test_objects_that_are_strings_are_strings(values):
    [batch] = batches_of(numpy_input_fn(np.array(values, object), shuffle=False))
    expected = [v.encode() if isinstance(v, str) else v for v in values]
    assert batch.tolist() == expected


def test_labels_beside_an_array_are_a_pair_with_it():
    x, y = np.arange(4), np.arange(4) * 10
    found = batches_of(numpy_input_fn(x, y, batch_size=3, shuffle=False))
    assert [(f.tolist(), y.tolist()) for f, y in found] == [
        ([0, 1, 2], [0, 10, 20]),
        ([3], [30]),
    ]


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "num_epochs", "expected"),
    [
        (5, 2, 2, [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]),
        (5, 4, 2, [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4]]),
        (2, 5, 3, [[0, 1, 0, 1, 0], [1]]),
        (3, 8, 1, [[0, 1, 2]]),
        (4, 2, 1, [[0, 1], [2, 3]]),
    ],
)
def test_batches_span_epochs_and_the_last_of_all_may_be_smaller(
    num_rows, batch_size, num_epochs, expected
):
    x = np.arange(num_rows)
    found = rows_of(numpy_input_fn(x, None, batch_size, num_epochs, shuffle=False))
    assert found == expected


@pytest.mark.parametrize("shuffle", [True, False])
def test_without_a_number_of_epochs_it_never_ends_and_batches_are_whole(shuffle):
    input_fn = numpy_input_fn(np.arange(5), None, 3, num_epochs=None, shuffle=shuffle)
    found = rows_of(input_fn, 50)
    assert [len(batch) for batch in found] == [3] * 50
    flat = sum(found, [])
    assert all(sorted(flat[i : i + 5]) == list(range(5)) for i in range(0, 150, 5))
    with tf.Graph().as_default():
        dataset = input_fn.build_dataset()
        assert dataset.element_spec.shape == [3]
        assert v1.Session().run(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize("shuffle", [True, False])
def test_its_number_of_batches_is_known(shuffle):
    with tf.Graph().as_default(), v1.Session() as session:
        dataset = numpy_input_fn(np.arange(10), None, 3, 2, shuffle).build_dataset()
        assert dataset.element_spec.shape.as_list() == [None]
        assert session.run(dataset.cardinality()) == 7


def test_a_seed_is_an_order_and_each_epoch_has_another():
    input_fn = numpy_input_fn(np.arange(100), None, 10, 3, shuffle=True)
    flat = sum(rows_of(input_fn, seed=1), [])
    epochs = [flat[i : i + 100] for i in (0, 100, 200)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert flat == sum(rows_of(input_fn, seed=1), [])
    assert flat != sum(rows_of(input_fn, seed=2), [])
    assert sum(rows_of(input_fn), []) != sum(rows_of(input_fn), [])


def test_features_and_labels_are_shuffled_alike():
    x = {"a": np.arange(50), "b": np.arange(50) * 2}
    for features, labels in batches_of(numpy_input_fn(x, np.arange(50) * 3, 7, 2, shuffle=True)):
        np.testing.assert_array_equal(features["a"] * 2, features["b"])
        np.testing.assert_array_equal(features["a"] * 3, labels)


@pytest.mark.parametrize("shuffle", [True, False])
def test_threads_do_not_change_the_order(shuffle):
    make = [numpy_input_fn(np.arange(99), None, 4, 3, shuffle, 1, n) for n in (1, 4)]
    one, four = (rows_of(input_fn, seed=1) for input_fn in make)
    assert one == four


def test_rows_of_a_view_and_of_a_file_in_memory_are_theirs(tmp_path):
    wide = np.arange(40).reshape(4, 10)
    file = np.memmap(tmp_path / "rows", np.int64, "w+", shape=(4, 10))
    file[:] = wide
    for x, expected in [(wide[:, 3], wide[:, 3]), (wide.T, wide.T), (file, wide)]:
        found = batches_of(numpy_input_fn(x, batch_size=3, shuffle=False))
        np.testing.assert_array_equal(np.concatenate(found), expected)


def test_what_tensorflow_does_with_a_batch_does_not_reach_the_array():
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    before = x.copy()
    input_fn = numpy_input_fn(x, batch_size=4, num_epochs=9, shuffle=False)

    def squares():
        return input_fn.build_dataset().map(lambda t: tf.square(tf.square(t) + 1.0))

    batches_of(squares)
    np.testing.assert_array_equal(x, before)


# --- In an estimator -----------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 4])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("is_new_process", [True, False])
def test_a_resumed_run_continues_the_very_pass(tmp_path, loop, seed, shuffle, is_new_process):
    x = np.arange(100)
    config = est.RunConfig(iterations_per_loop=loop, tf_random_seed=seed)
    trained = est.Estimator(ids_model_fn, str(tmp_path / "parts"), config)
    for steps in (33, 1, 66, 50):
        # Made anew: the same arrays and arguments are the same input.
        input_fn = numpy_input_fn(x, batch_size=1, num_epochs=None, shuffle=shuffle)
        trained.train(input_fn, steps=steps)
        if is_new_process:  # It knows nothing but what is in the directory.
            trained = est.Estimator(ids_model_fn, str(tmp_path / "parts"), config)
    ids = ids_of(trained)
    assert sorted(ids[:100]) == list(range(100))
    assert len(set(ids[100:])) == 50
    assert (ids[:100] == list(range(100))) is not shuffle
    assert (ids[100:] == ids[:50]) is not shuffle
    if seed is not None or not shuffle:
        whole = est.Estimator(ids_model_fn, str(tmp_path / "whole"), config)
        whole.train(input_fn, steps=150)
        assert ids == ids_of(whole)


def test_the_position_is_a_few_numbers_however_large_the_input(tmp_path):
    x = np.arange(300_000)
    trained = est.Estimator(ids_model_fn, str(tmp_path))
    trained.train(numpy_input_fn(x, batch_size=1, num_epochs=None, shuffle=True), steps=3)
    files = glob.glob(os.path.join(tmp_path, "input-position", "input-position-3*"))
    assert 0 < sum(map(os.path.getsize, files)) < 20_000


def mean_model_fn(features, labels, mode):
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    step = v1.train.get_global_step()
    train_op = tf.group(step.assign_add(1), w.assign_add(tf.reduce_sum(features["x"])))
    loss = None if labels is None else tf.reduce_mean(labels - features["x"])
    metrics = None if labels is None else {"count": v1.metrics.mean(tf.ones_like(labels))}
    return est.EstimatorSpec(mode, features, loss, train_op, metrics)


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", [{}, {"strategy": "mirrored", "num_replicas": 2}], ids=str)
def test_every_verb_takes_it(tmp_path, loop, strategy):
    x, y = {"x": np.arange(10, dtype=np.float32)}, np.arange(10, dtype=np.float32) * 3
    config = est.RunConfig(iterations_per_loop=loop, **strategy)
    trained = est.Estimator(mean_model_fn, str(tmp_path), config)
    trained.train(numpy_input_fn(x, y, batch_size=2, num_epochs=2, shuffle=True))
    assert trained.train_result.global_step == (5 if strategy else 10)
    results = trained.evaluate(numpy_input_fn(x, y, batch_size=3, shuffle=False))
    # Three batches have the mean 2 * (1, 4, 7), and the last one 2 * 9.
    assert results["loss"] == pytest.approx((2 + 8 + 14 + 18) / 4)
    predictions = trained.predict(numpy_input_fn(x, batch_size=3, shuffle=False))
    assert [row["x"] for row in predictions] == list(range(10))


def test_an_endless_one_is_not_evaluated_without_steps(tmp_path):
    x, y = {"x": np.ones(4, np.float32)}, np.ones(4, np.float32)
    trained = est.Estimator(mean_model_fn, str(tmp_path))
    endless = numpy_input_fn(x, y, num_epochs=None, shuffle=True)
    trained.train(endless, steps=1)
    with pytest.raises(ValueError, match="never ends"):
        trained.evaluate(endless)
    assert trained.evaluate(endless, steps=2)["loss"] == 0


def test_an_array_goes_when_its_input_function_goes(tmp_path):
    x, y = {"x": np.ones(4, np.float32)}, np.ones(4, np.float32)
    gone = weakref.ref(x["x"])
    with est.Estimator(mean_model_fn, str(tmp_path)) as trained:
        input_fn = numpy_input_fn(x, y, shuffle=True)
        trained.train(input_fn)
        for _ in range(3):
            trained.evaluate(input_fn)
            assert len(list(trained.predict(input_fn))) == 4
        trained.train(numpy_input_fn({"x": np.zeros(4, np.float32)}, y, shuffle=True))
        del x, input_fn
        gc.collect()
        assert gone() is None
