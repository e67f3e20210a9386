"""Trainings that go on in a new session after an error that may pass."""

import itertools
import os
import random
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.session import retries
from tests.conformance.cases import STRATEGIES
from tests.toy import Model, checkpoint_steps, ids_model_fn, ids_of, numbers

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(retries, "WAITS_SECS", (0.0, 0.0, 0.0))


class Fails(est.SessionRunHook, est.CheckpointSaverListener):
    """Fails at some of the times at which it is called, which are counted from 0."""

    def __init__(self, *times, error=tf.errors.UnavailableError):
        self._times, self._error = times, error
        self._count = itertools.count()
        self.num_sessions = self.num_failures = 0

    def begin(self):
        pass

    def end(self, session, global_step_value=None):
        pass

    def fail_if_due(self):
        if next(self._count) in self._times:
            self.num_failures += 1
            raise self._error(None, None, "the server is away")

    def after_create_session(self, session, coord):
        self.num_sessions += 1
        self.fail_if_due()

    def before_run(self, run_context):
        self.fail_if_due()

    def after_run(self, run_context, run_values):
        self.fail_if_due()

    def before_save(self, session, global_step_value):
        self.fail_if_due()

    def after_save(self, session, global_step_value):
        self.fail_if_due()


def noisy_model_fn(features, labels, mode):
    """Adam, dropout and moving statistics, each of which needs all that a checkpoint holds."""
    x = tf.keras.layers.BatchNormalization(momentum=0.5, name="norm")(features, training=True)
    w = v1.get_variable("w", [4, 1], initializer=v1.glorot_uniform_initializer(seed=1))
    loss = tf.reduce_mean(tf.square(tf.nn.dropout(x, 0.3) @ w - 1.0))
    optimizer = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.1))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def shuffled_input_fn():
    features = np.random.RandomState(1).randn(64, 4).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(features).shuffle(20, seed=2)
    return data.repeat().batch(4, drop_remainder=True)


def train_twice(model_dir, config, hooks=(), listeners=None):
    """Returns all variables after two trainings."""
    with est.Estimator(noisy_model_fn, str(model_dir), config) as model:
        for _ in range(2):
            model.train(shuffled_input_fn, hooks, steps=11, saving_listeners=listeners)
        return {name: model.get_variable_value(name) for name in model.get_variable_names()}


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.full) for s in range(4, 40))]
)
def test_the_weights_are_those_of_a_training_without_errors(seed, tmp_path):
    draw = random.Random(seed)
    config = est.RunConfig(
        tf_random_seed=3,
        iterations_per_loop=draw.choice([1, 3, 10]),
        save_checkpoints_steps=draw.choice([2, 4, 5]),
        save_summary_steps=draw.choice([None, 3]),
        async_checkpoints=draw.random() < 0.3,
        **STRATEGIES[draw.choice(["no_strategy", "mirrored_x2"])],
    )
    error = draw.choice([tf.errors.AbortedError, tf.errors.UnavailableError])
    fails = Fails(*draw.sample(range(8), 3), error=error)
    # Without hooks, a session's first call is prepared while it opens.
    hooks = [fails] if draw.random() < 0.5 else []
    found = train_twice(tmp_path / "errors", config, hooks, [fails])
    expected = train_twice(tmp_path / "none", config)
    assert fails.num_failures == 3
    assert found["global_step"] == 22
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("limits", [{"steps": 5}, {"max_steps": 9}])
def test_the_new_session_ends_where_the_first_would_have(limits, tmp_path, caplog):
    config = est.RunConfig(save_checkpoints_steps=2)
    with est.Estimator(ids_model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=4)
        fails = Fails(6)  # After the third step, of which the checkpoint of the second is left.
        model.train(numbers(), [fails], **limits)
        assert model.train_result.global_step == 9
        assert model.train_result.reason == next(iter(limits))
        assert ids_of(model) == list(range(9))
    assert fails.num_sessions == 2
    assert "Training failed: the server is away. It goes on in a new session in 0 s." in caplog.text
    assert checkpoint_steps(tmp_path) == [2, 4, 6, 8, 9]


def test_another_input_begins_once(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=2)
    with est.Estimator(ids_model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=3)
        model.train(numbers(start=100), [Fails(6)], steps=5)
        assert ids_of(model) == [0, 1, 2, 100, 101, 102, 103, 104]


def test_training_ends_if_no_checkpoint_is_saved_between_its_failures(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=100)
    with est.Estimator(Model(), str(tmp_path), config) as model:
        fails = Fails(*range(100))
        with pytest.raises(tf.errors.UnavailableError, match="the server is away"):
            model.train(numbers(), [fails], steps=3)
        assert fails.num_sessions == 4


def test_a_checkpoint_between_two_failures_allows_three_more(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=1)
    with est.Estimator(Model(), str(tmp_path), config) as model:
        fails = Fails(*range(3, 100, 4))  # In each session's second step.
        model.train(numbers(), [fails], steps=6)
        assert model.train_result.global_step == 6
    assert fails.num_sessions == 6


def test_a_signal_ends_the_wait_for_a_new_session(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "WAITS_SECS", (600.0,))

    class FailsBeforeASignal(est.SessionRunHook):
        def after_run(self, run_context, run_values):
            threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGTERM]).start()
            raise tf.errors.AbortedError(None, None, "the server is away")

    with est.Estimator(Model(), str(tmp_path)) as model, pytest.raises(SystemExit) as ended:
        model.train(numbers(), [FailsBeforeASignal()], steps=3)
    assert ended.value.code == 143


def test_other_errors_end_training(tmp_path):
    with est.Estimator(Model(), str(tmp_path)) as model:
        for error in (tf.errors.CancelledError, tf.errors.InternalError, tf.errors.DataLossError):
            fails = Fails(2, error=error)
            with pytest.raises(error, match="the server is away"):
                model.train(numbers(), [fails], steps=3)
            assert fails.num_sessions == 1
