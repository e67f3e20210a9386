"""Trainings that go on in a new session after an error that may pass."""

import contextlib
import itertools
import logging
import os
import random
import signal

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint import files
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
    fails = Fails(*draw.sample(range(6), 3), error=error)
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


class Signals(logging.Handler):
    """Sends SIGTERM to this process when it says that it will wait."""

    def emit(self, record):
        if "goes on in a new session in 600 s" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_ends_the_wait_for_a_new_session(tmp_path, monkeypatch):
    monkeypatch.setattr(retries, "WAITS_SECS", (600.0,))
    logger, handler = logging.getLogger("estimator"), Signals()
    logger.addHandler(handler)
    try:
        with est.Estimator(Model(), str(tmp_path)) as model, pytest.raises(SystemExit) as ended:
            model.train(numbers(), [Fails(2)], steps=3)
    finally:
        logger.removeHandler(handler)
    assert ended.value.code == 143


def fails_in(name, *times):
    """A hook that fails when its method `name` is called for such a time, and in no other."""
    fails = Fails(*times)
    for other in ("after_create_session", "before_run", "after_run", "before_save", "after_save"):
        if other != name:
            setattr(fails, other, lambda *arguments: None)
    return fails


def test_an_input_that_has_given_its_last_batch_does_not_begin_again(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=4)
    for i, name in enumerate(("before_run", "after_save")):
        # In the call that finds the end; and after the save of the last batch's step.
        fails = fails_in(name, {"before_run": 8, "after_save": 2}[name])
        listeners = [fails] if name == "after_save" else []
        with est.Estimator(ids_model_fn, str(tmp_path / str(i)), config) as model:
            model.train(numbers(8), [fails], saving_listeners=listeners)
            assert model.train_result.reason == "end of input"
            assert ids_of(model) == list(range(8))
        assert fails.num_failures == 1


def test_another_input_begins_also_if_the_first_session_does_not_open(tmp_path, monkeypatch):
    restore, failures = v1.train.Saver.restore, iter("1")

    def restore_later(saver, session, path):
        if "model.ckpt" in path and next(failures, None):
            raise tf.errors.UnavailableError(None, None, "the server is away")
        restore(saver, session, path)

    with est.Estimator(ids_model_fn, str(tmp_path)) as model:
        model.train(numbers(), steps=3)
        monkeypatch.setattr(v1.train.Saver, "restore", restore_later)
        model.train(numbers(start=100), steps=3)
        assert ids_of(model) == [0, 1, 2, 100, 101, 102]
    assert list(failures) == []


@pytest.mark.parametrize("what", ["exists", "open_checkpoint"])
@pytest.mark.parametrize("num_failures", [1, 100])
def test_a_directory_that_is_away_is_not_taken_for_an_empty_one(
    what, num_failures, tmp_path, monkeypatch
):
    config = est.RunConfig(save_checkpoints_steps=2)
    failures = iter(range(num_failures))
    place = tf.io.gfile if what == "exists" else files
    call = getattr(place, what)

    def call_later(*arguments):
        if next(failures, None) is not None:
            raise tf.errors.UnavailableError(None, None, "the file system is away")
        return call(*arguments)

    class GoesAway(est.SessionRunHook):
        num_calls = 0

        def after_run(self, run_context, run_values):
            self.num_calls += 1
            if self.num_calls == 5:
                monkeypatch.setattr(place, what, call_later)
                raise tf.errors.UnavailableError(None, None, "the file system is away")

    with est.Estimator(ids_model_fn, str(tmp_path), config) as model:
        with (
            contextlib.nullcontext()
            if num_failures == 1
            else pytest.raises(tf.errors.UnavailableError, match="the file system is away")
        ):
            model.train(numbers(), [GoesAway()], steps=9)
        monkeypatch.undo()
        assert next(failures, 100) > 0  # It was away.
        assert ids_of(model) == list(range(9 if num_failures == 1 else 4))


def test_the_position_is_saved_with_its_checkpoint_after_an_error(tmp_path, monkeypatch):
    save, failures = v1.train.Saver.save, iter("12")

    def save_later(saver, session, path, *arguments, **named):
        if named.get("global_step") == 4 and next(failures, None):
            raise tf.errors.UnavailableError(None, None, "the file system is away")
        return save(saver, session, path, *arguments, **named)

    monkeypatch.setattr(v1.train.Saver, "save", save_later)
    config = est.RunConfig(save_checkpoints_steps=2)
    with est.Estimator(ids_model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=7)
        assert ids_of(model) == list(range(7))
    assert list(failures) == []


def test_a_listener_is_told_again_of_a_save_for_which_it_has_failed(tmp_path):
    told = []

    class Uploads(est.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            told.append(int(global_step_value))
            if told.count(4) == 1 and told[-1] == 4:
                raise tf.errors.UnavailableError(None, None, "the server is away")
            return global_step_value == 4

    with est.Estimator(Model(), str(tmp_path), est.RunConfig(save_checkpoints_steps=2)) as model:
        model.train(numbers(), max_steps=9, saving_listeners=[Uploads()])
        assert (model.train_result.reason, model.train_result.global_step) == ("listener", 5)
    assert told == [0, 2, 4, 4, 5]


@pytest.mark.parametrize("place", ["end of hook", "end of listener", "last save"])
def test_an_error_at_the_end_is_raised(place, tmp_path):
    class Ends(est.SessionRunHook):
        def end(self, session):
            if place == "end of hook":
                raise tf.errors.UnavailableError(None, None, "the server is away")

    class Listens(est.CheckpointSaverListener):
        def before_save(self, session, global_step_value):
            if place == "last save" and global_step_value == 5:
                raise tf.errors.UnavailableError(None, None, "the server is away")

        def end(self, session, global_step_value):
            if place == "end of listener":
                raise tf.errors.UnavailableError(None, None, "the server is away")

    with est.Estimator(ids_model_fn, str(tmp_path)) as model:
        with pytest.raises(tf.errors.UnavailableError, match="the server is away"):
            model.train(numbers(5), [Ends()], saving_listeners=[Listens()])
        assert ids_of(model) == ([] if place == "last save" else list(range(5)))


def test_an_error_that_only_quotes_one_that_may_pass_ends_training(tmp_path):
    def fail(number):
        raise ValueError("No.\nABORTED: by the user")

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        failed = tf.py_function(fail, [features], tf.int64)
        return spec.replace(loss=spec.loss + tf.cast(tf.reduce_sum(failed), tf.float32))

    sessions = Fails()
    with (
        est.Estimator(model_fn, str(tmp_path)) as model,
        pytest.raises(tf.errors.InvalidArgumentError, match="ABORTED: by the user"),
    ):
        model.train(numbers(), [sessions], steps=5)
    assert sessions.num_sessions == 1


def test_other_errors_end_training(tmp_path):
    with est.Estimator(Model(), str(tmp_path)) as model:
        for error in (tf.errors.CancelledError, tf.errors.InternalError, tf.errors.DataLossError):
            fails = Fails(2, error=error)
            with pytest.raises(error, match="the server is away"):
                model.train(numbers(), [fails], steps=3)
            assert fails.num_sessions == 1
