"""What the tensors of an `input_fn` only wait for runs with every batch, also in loops."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, weight_after

V1 = tf.compat.v1
LOOPS = pytest.mark.parametrize("loop", [1, 3])


def iterator_of(numbers):
    dataset = tf.data.Dataset.from_tensor_slices(np.float32(numbers)).batch(1)
    return V1.data.make_one_shot_iterator(dataset)


def next_of(numbers):
    return iterator_of(numbers).get_next()


PRINTED = []


def printing():
    """Notes each run."""
    return tf.numpy_function(lambda: PRINTED.append(1) or np.float32(0), [], tf.float32)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("waits", ["the iterator", "its batch"])
def test_every_batch_of_a_loop_runs_what_it_waits_for_once(waits, num_replicas, tmp_path):
    PRINTED.clear()

    def input_fn():
        iterator = iterator_of(range(8))
        batch = iterator.get_next() if waits == "its batch" else None
        with tf.control_dependencies([printing()]):
            return tf.identity(iterator.get_next() if batch is None else batch)

    changes = {} if num_replicas == 1 else {"strategy": "mirrored", "num_replicas": 2}
    model = train(tmp_path, input_fn, 3, max_steps=6 // num_replicas, **changes)
    assert (len(PRINTED), model.train_result.global_step) == (6, 6 // num_replicas)


def train(model_dir, input_fn, loop, max_steps=9, **changes):
    config = est.RunConfig(iterations_per_loop=loop, **changes)
    model = est.Estimator(Model(), str(model_dir), config)
    model.train(input_fn, max_steps=max_steps)
    return model


@LOOPS
@pytest.mark.parametrize("source", ["a constant", "an iterator"])
def test_limit_epochs_ends_training(source, loop, tmp_path):
    def input_fn():
        value = tf.constant([2.0]) if source == "a constant" else next_of([2.0] * 9)
        return V1.train.limit_epochs(value, 5)

    model = train(tmp_path, input_fn, loop)
    assert (model.train_result.reason, model.train_result.global_step) == ("end of input", 5)
    assert model.get_variable_value("w") == weight_after([[2]] * 5)


@LOOPS
def test_an_assertion_ends_training_at_the_batch_that_fails_it(loop, tmp_path):
    def input_fn():
        batch = next_of([1, 2, -3, 4])
        with tf.control_dependencies([V1.assert_greater(batch, 0.0, message="not positive")]):
            return tf.identity(batch)

    with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
        train(tmp_path, input_fn, loop)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("waits", ["the iterator", "its batch"])
def test_every_batch_of_a_loop_is_counted_once(waits, num_replicas, tmp_path):
    def input_fn():
        count = V1.get_variable("count", [], initializer=V1.zeros_initializer(), trainable=False)
        iterator = iterator_of(range(6))
        batch = iterator.get_next() if waits == "its batch" else None
        with tf.control_dependencies([count.assign_add(1.0)]):
            return tf.identity(iterator.get_next() if batch is None else batch)

    changes = {} if num_replicas == 1 else {"strategy": "mirrored", "num_replicas": 2}
    model = train(tmp_path, input_fn, 3, max_steps=4 // num_replicas, **changes)
    assert model.get_variable_value("count") == 4
