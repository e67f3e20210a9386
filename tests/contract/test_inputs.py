"""numpy_input_fn and pandas_input_fn: what they take and what an Estimator gets of them."""

import os

import numpy as np
import pandas as pd
import pytest

from tests.contract.names import est, tf, v1, v1est

numpy_input_fn = v1est.inputs.numpy_input_fn
pandas_input_fn = v1est.inputs.pandas_input_fn

A = np.arange(5, dtype=np.float32)
B = np.arange(10, dtype=np.int64).reshape(5, 2)
Y = np.arange(5, dtype=np.float32) * 10


def echo_model_fn(features, labels, mode):
    """Predicts its features; sums features and labels up in training."""
    parts = [part for part in tf.nest.flatten([features, labels]) if part is not None]
    total = tf.add_n([tf.reduce_sum(tf.cast(part, tf.float32)) for part in parts])
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    with tf.control_dependencies([w.assign_add(total)]):
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
    predictions = features if isinstance(features, dict) else {"x": features}
    return est.EstimatorSpec(mode, predictions=predictions, loss=w + 0.0, train_op=train_op)


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    made = est.Estimator(echo_model_fn, os.fspath(tmp_path_factory.mktemp("echo")))
    made.train(numpy_input_fn(A, batch_size=5, shuffle=False), steps=1)
    return made


def batches(echo, input_fn):
    return list(echo.predict(input_fn, yield_single_examples=False))


def sizes(echo, input_fn, key="x"):
    return [len(batch[key]) for batch in batches(echo, input_fn)]


def total(tmp_path, input_fn, **arguments):
    """The sum of all that training got, and the steps that it took."""
    trained = est.Estimator(echo_model_fn, os.fspath(tmp_path)).train(input_fn, **arguments)
    return trained.get_variable_value("w"), trained.get_variable_value("global_step")


# --- Arrays --------------------------------------------------------------------------------------


def test_an_array_in_its_order(echo):
    found = batches(echo, numpy_input_fn(A, batch_size=2, shuffle=False))
    assert [batch["x"].tolist() for batch in found] == [[0, 1], [2, 3], [4]]


def test_a_dict_of_arrays(echo):
    found = batches(echo, numpy_input_fn({"a": A, "b": B}, batch_size=5, shuffle=False))
    np.testing.assert_array_equal(found[0]["b"], B)


@pytest.mark.parametrize(("key", "dtype"), [("a", np.float32), ("b", np.int64)])
def test_types_are_kept(echo, key, dtype):
    found = batches(echo, numpy_input_fn({"a": A, "b": B}, batch_size=5, shuffle=False))
    assert found[0][key].dtype == dtype


def test_text_is_kept(echo):
    words = {"w": np.array([b"a", b"bc"])}
    found = batches(echo, numpy_input_fn(words, shuffle=False))
    assert found[0]["w"].tolist() == [b"a", b"bc"]


def test_default_batch_size_is_128(echo):
    assert sizes(echo, numpy_input_fn(np.zeros(130, np.float32), shuffle=False)) == [128, 2]


@pytest.mark.parametrize(("num_epochs", "found"), [(1, [4, 1]), (2, [4, 4, 2])])
def test_epochs_follow_each_other_within_batches(echo, num_epochs, found):
    input_fn = numpy_input_fn(A, batch_size=4, num_epochs=num_epochs, shuffle=False)
    assert sizes(echo, input_fn) == found


def test_no_epochs_never_end(tmp_path):
    input_fn = numpy_input_fn(A, batch_size=5, num_epochs=None, shuffle=False)
    assert total(tmp_path, input_fn, steps=4) == (40, 4)


def test_shuffling_keeps_the_examples(echo):
    found = batches(echo, numpy_input_fn(np.arange(50.0), batch_size=50, shuffle=True))
    assert sorted(found[0]["x"]) == list(range(50))


def test_labels_reach_the_model(tmp_path):
    assert total(tmp_path, numpy_input_fn(A, Y, batch_size=5, shuffle=False)) == (110, 1)


def test_a_dict_of_labels_reaches_the_model(tmp_path):
    input_fn = numpy_input_fn({"a": A}, {"y": Y, "z": Y}, batch_size=5, shuffle=False)
    assert total(tmp_path, input_fn) == (210, 1)


def test_positional_arguments(tmp_path):
    assert total(tmp_path, numpy_input_fn(A, Y, 2, 2, True, 1000, 1)) == (220, 5)


@pytest.mark.parametrize("dtype", [">i4", "<i4", ">f8", ">u2"])
def test_numbers_of_any_byte_order(tmp_path, dtype):
    x, y = A.astype(dtype), Y.astype(dtype)
    assert total(tmp_path, numpy_input_fn({"a": x}, y, batch_size=5, shuffle=False)) == (110, 1)


def test_features_and_labels_are_in_the_order_of_their_keys(tmp_path):
    orders = []

    def model_fn(features, labels, mode):
        orders.append([*features, *labels])
        return echo_model_fn(features, labels, mode)

    labels = {"d": Y, "c": Y}
    input_fn = numpy_input_fn({"b": A, "a": A}, labels, batch_size=5, shuffle=False)
    est.Estimator(model_fn, os.fspath(tmp_path)).train(input_fn)
    assert orders == [["a", "b", "c", "d"]]


def test_a_dict_is_read_when_the_input_is_built(echo):
    x = {"x": A}
    input_fn = numpy_input_fn(x, batch_size=5, shuffle=False)
    assert batches(echo, input_fn)[0]["x"].tolist() == A.tolist()
    x["x"] = A * 100
    assert batches(echo, input_fn)[0]["x"].tolist() == (A * 100).tolist()
    x["x"][0] = 7
    assert batches(echo, input_fn)[0]["x"].tolist() == [7, 100, 200, 300, 400]


def test_series_are_arrays(tmp_path):
    frame = pd.DataFrame({"a": A, "b": A})
    x = {**frame, "c": pd.Index(A)}
    assert total(tmp_path, numpy_input_fn(x, pd.Series(Y), 5, shuffle=False)) == (130, 1)


WRONG_ARRAYS = {
    "no shuffle": (ValueError, lambda: numpy_input_fn(A)),
    "a list": (TypeError, lambda: numpy_input_fn([1, 2], shuffle=False)),
    "an empty dict": (ValueError, lambda: numpy_input_fn({}, shuffle=False)),
    "an empty dict of labels": (ValueError, lambda: numpy_input_fn(A, {}, shuffle=False)),
    "other lengths": (ValueError, lambda: numpy_input_fn({"a": A, "b": A[:3]}, shuffle=False)),
    "labels too short": (ValueError, lambda: numpy_input_fn(A, Y[:3], shuffle=False)),
}


@pytest.mark.parametrize("case", WRONG_ARRAYS)
def test_wrong_arrays(case):
    error, make = WRONG_ARRAYS[case]
    with tf.Graph().as_default(), pytest.raises(error):
        make()()


def test_the_arrays_of_the_caller_are_not_changed():
    given = {"a": A}
    with tf.Graph().as_default():
        numpy_input_fn(given, Y, shuffle=False)()
    assert list(given) == ["a"]


KINDS = {
    "numpy": lambda **rest: numpy_input_fn({"a": A}, Y, batch_size=5, shuffle=False, **rest),
    "pandas": lambda **rest: pandas_input_fn(
        pd.DataFrame({"a": A}), pd.Series(Y), batch_size=5, shuffle=False, **rest
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_called_by_the_program_it_returns_tensors(kind):
    with tf.Graph().as_default():
        features, labels = KINDS[kind]()()
        assert tf.is_tensor(features["a"])
        assert tf.is_tensor(labels)
        with v1.train.MonitoredSession() as session:
            found = session.run([features["a"], labels])
    assert [part.tolist() for part in found] == [A.tolist(), Y.tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_fn_around_it(tmp_path, kind):
    def input_fn():
        features, labels = KINDS[kind]()()
        return {"twice": features["a"] * 2}, labels

    assert total(tmp_path, input_fn) == (120, 1)


# --- Frames --------------------------------------------------------------------------------------

FRAME = pd.DataFrame({"a": A, "b": np.arange(5)}, index=range(10, 15))


def test_a_frame_in_its_order(echo):
    found = batches(echo, pandas_input_fn(FRAME, batch_size=2, shuffle=False))
    assert [batch["a"].tolist() for batch in found] == [[0, 1], [2, 3], [4]]


def test_columns_are_the_features(echo):
    found = batches(echo, pandas_input_fn(FRAME, batch_size=5, shuffle=False))
    assert {"a", "b"} <= set(found[0])


@pytest.mark.parametrize(("key", "dtype"), [("a", np.float32), ("b", np.int64)])
def test_types_of_columns_are_kept(echo, key, dtype):
    found = batches(echo, pandas_input_fn(FRAME, batch_size=5, shuffle=False))
    assert found[0][key].dtype == dtype


def test_default_batch_size_of_frames_is_128(echo):
    frame = pd.DataFrame({"x": np.zeros(130, np.float32)})
    assert sizes(echo, pandas_input_fn(frame, shuffle=False)) == [128, 2]


@pytest.mark.parametrize(("num_epochs", "found"), [(1, [4, 1]), (2, [4, 4, 2])])
def test_epochs_of_frames(echo, num_epochs, found):
    input_fn = pandas_input_fn(FRAME, batch_size=4, num_epochs=num_epochs, shuffle=False)
    assert sizes(echo, input_fn, "a") == found


def test_shuffling_keeps_the_rows(echo):
    frame = pd.DataFrame({"x": np.arange(50.0)})
    found = batches(echo, pandas_input_fn(frame, batch_size=50, shuffle=True))
    assert sorted(found[0]["x"]) == list(range(50))


@pytest.mark.parametrize("y", ["series", "frame"])
def test_labels_of_frames(tmp_path, y):
    frame = FRAME[["a"]]
    labels = pd.Series(Y, index=frame.index)
    if y == "frame":
        labels = pd.DataFrame({"y": Y, "z": Y}, index=frame.index)
    input_fn = pandas_input_fn(frame, labels, batch_size=5, shuffle=False)
    assert total(tmp_path, input_fn) == (110 if y == "series" else 210, 1)


@pytest.mark.parametrize("target_column", ["target", "other"])
def test_target_column_is_only_a_name(tmp_path, target_column):
    labels = pd.Series(Y, index=FRAME.index)
    input_fn = pandas_input_fn(
        FRAME[["a"]], labels, batch_size=5, shuffle=False, target_column=target_column
    )
    assert total(tmp_path, input_fn) == (110, 1)


WRONG_FRAMES = {
    "no shuffle": (ValueError, lambda: pandas_input_fn(FRAME)),
    "an array": ((TypeError, AttributeError), lambda: pandas_input_fn(A, shuffle=False)),
    "another index": (
        ValueError,
        lambda: pandas_input_fn(FRAME, pd.Series(Y, index=range(5)), shuffle=False),
    ),
    "a target that is a column": (
        ValueError,
        lambda: pandas_input_fn(
            FRAME, pd.Series(Y, index=FRAME.index), shuffle=False, target_column="a"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG_FRAMES)
def test_wrong_frames(case):
    error, make = WRONG_FRAMES[case]
    with tf.Graph().as_default(), pytest.raises(error):
        make()()


def test_the_frame_of_the_caller_is_not_changed():
    pandas_input_fn(FRAME, pd.Series(Y, index=FRAME.index), shuffle=False)
    assert list(FRAME.columns) == ["a", "b"]


def test_a_frame_is_copied(tmp_path):
    frame, y = pd.DataFrame({"a": A, "b": A}), pd.Series(Y)
    input_fn = pandas_input_fn(frame, y, batch_size=5, shuffle=False)
    frame["a"] = 1000.0
    frame.drop(columns="b", inplace=True)
    y[:] = 1000.0
    frame["y"] = y
    assert total(tmp_path, input_fn) == (120, 1)


def test_the_queue_may_have_any_capacity(echo):
    found = batches(
        echo, pandas_input_fn(pd.DataFrame({"x": A}), shuffle=True, queue_capacity=None)
    )
    assert len(found) == 1


class Pair(tf.experimental.ExtensionType):
    """Two tensors."""

    first: tf.Tensor
    second: tf.Tensor


def test_features_of_an_extension_type(tmp_path):
    def model_fn(features, labels, mode):
        return echo_model_fn({"a": features.first, "b": features.second}, labels, mode)

    def input_fn():
        return Pair(tf.constant([1, 2]), tf.constant([3, 4])), tf.constant([5, 6])

    model = est.Estimator(model_fn, os.fspath(tmp_path)).train(input_fn, steps=2)
    assert model.get_variable_value("w") == 42


# --- Sparse features -----------------------------------------------------------------------------


def without_some_sizes(rows, shape):
    """So that TensorFlow knows these sizes only: None stands for one that it does not know."""
    return v1.placeholder_with_default(rows, shape)


@pytest.mark.parametrize("shape", [[None, 4], [3, 4], [3, None], [None, None]], ids=str)
def test_ops_see_what_is_known_of_a_sparse_features_shape(shape, tmp_path):
    seen = {}

    def input_fn():
        data = tf.data.Dataset.from_tensors(np.eye(4, dtype=np.float32)[:3]).repeat(2)
        return data.map(lambda rows: {"x": tf.sparse.from_dense(without_some_sizes(rows, shape))})

    def model_fn(features, labels, mode):
        dense = tf.sparse.to_dense(features["x"])
        seen[mode] = [features["x"].shape.as_list(), dense.shape.as_list()]
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        total = tf.reduce_sum(dense) * w
        step = v1.assign_add(v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, predictions={"x": dense}, loss=total, train_op=step)

    model = est.Estimator(model_fn, os.fspath(tmp_path))
    model.train(input_fn)
    assert model.evaluate(input_fn)["loss"] == 3.0
    rows = [row["x"] for row in model.predict(input_fn)]
    np.testing.assert_array_equal(rows, [*np.eye(4)[:3]] * 2)
    assert seen == {mode: [shape, shape] for mode in ("train", "eval", "infer")}
