"""`numpy_input_fn(...)()` and `pandas_input_fn(...)()` are tensors, as programs expect."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, ids_model_fn, ids_of

V1 = tf.compat.v1
NUM = 7
A, Y = np.arange(NUM), np.arange(NUM) * 10


def numpy_fn(labels=Y, **options):
    return est.inputs.numpy_input_fn({"a": A}, labels, **options)


def pandas_fn(labels=Y, **options):
    labels = None if labels is None else pd.Series(labels)
    return est.inputs.pandas_input_fn(pd.DataFrame({"a": A}), labels, **options)


KINDS = pytest.mark.parametrize("make", [numpy_fn, pandas_fn])


def batches_of(input_fn, count=None, seed=None):
    """What each call of a session gives, to the end or so many."""
    found = []
    with tf.Graph().as_default():
        V1.set_random_seed(seed)
        batch = input_fn()
        assert all(isinstance(tensor, tf.Tensor) for tensor in tf.nest.flatten(batch))
        with V1.train.MonitoredSession() as session:
            while not session.should_stop() and len(found) != count:
                found.append(session.run(batch))
    return found


@KINDS
def test_rows_come_in_order_and_the_last_batch_has_the_rest(make):
    found = batches_of(make(batch_size=4, num_epochs=2, shuffle=False))
    rows = [i % NUM for i in range(2 * NUM)]
    assert [features["a"].tolist() for features, _ in found] == [
        rows[i : i + 4] for i in range(0, 2 * NUM, 4)
    ]
    assert all((labels == 10 * features["a"]).all() for features, labels in found)


@KINDS
def test_without_labels_there_are_features_only(make):
    [features] = batches_of(make(None, batch_size=NUM, shuffle=False))
    assert features["a"].tolist() == A.tolist()


@KINDS
def test_without_num_epochs_there_is_no_end(make):
    found = batches_of(make(batch_size=3, num_epochs=None, shuffle=True), count=20)
    assert [len(labels) for _, labels in found] == [3] * 20


@KINDS
def test_shuffling_has_each_row_once_an_epoch_in_an_order_of_the_seed(make):
    orders = [
        np.concatenate(
            [y for _, y in batches_of(make(batch_size=3, num_epochs=2, shuffle=True), seed=s)]
        ).tolist()
        for s in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        assert sorted(order[:NUM]) == sorted(order[NUM:]) == Y.tolist()
        assert order != sorted(order)


def test_an_array_is_a_tensor_of_known_shape():
    with tf.Graph().as_default():
        x = np.zeros((5, 2, 3), np.float32)
        ending = est.inputs.numpy_input_fn(x, batch_size=2, shuffle=False)()
        endless = est.inputs.numpy_input_fn(x, batch_size=2, num_epochs=None, shuffle=False)()
    assert (ending.dtype, ending.shape.as_list()) == (tf.float32, [None, 2, 3])
    assert endless.shape.as_list() == [2, 2, 3]


@pytest.mark.each_value
@KINDS
@pytest.mark.parametrize("iterations_per_loop", [1, 4])
def test_an_input_fn_around_it_trains_evaluates_and_predicts(make, iterations_per_loop, tmp_path):
    def one(**options):
        def input_fn():
            features, labels = make(batch_size=1, **options)()
            return features["a"] + tf.cast(labels, features["a"].dtype)

        return input_fn

    config = est.RunConfig(iterations_per_loop=iterations_per_loop, save_summary_steps=None)
    with est.Estimator(ids_model_fn, str(tmp_path / "ids"), config) as model:
        model.train(one(num_epochs=2, shuffle=False))
        assert ids_of(model) == [11 * (i % NUM) for i in range(2 * NUM)]
    with est.Estimator(Model(), str(tmp_path / "toy"), config) as model:
        model.train(one(num_epochs=None, shuffle=True), steps=9)
        for _ in range(2):
            assert model.evaluate(one(shuffle=False))["mean"] == pytest.approx(33)
            assert len(list(model.predict(one(shuffle=False)))) == NUM


@KINDS
def test_outside_of_a_graph_it_is_the_dataset(make):
    [(features, labels)] = make(batch_size=NUM, shuffle=False)().as_numpy_iterator()
    assert features["a"].tolist() == A.tolist()
    assert labels.tolist() == Y.tolist()
