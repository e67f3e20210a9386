"""Training continues where its input stood, whatever comes between."""

import functools
import glob
import logging
import os
import resource

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint import input_position
from estimator.input import graph_identity
from tests.toy import ids_model_fn, ids_of, numbers

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 4])


def shuffled(seed=7):
    """0 to 99, each pass in another order; the order of a pass is a matter of the seed."""
    return tf.data.Dataset.range(100).shuffle(100, seed=seed).repeat().batch(1)


def ids_of_one_run(input_fn, steps, model_dir):
    trained = est.Estimator(ids_model_fn, str(model_dir))
    trained.train(input_fn, steps=steps)
    return ids_of(trained)


@pytest.fixture
def make(tmp_path):
    def make(**config):
        return est.Estimator(ids_model_fn, str(tmp_path / "model"), est.RunConfig(**config))

    return make


@LOOPS
def test_ids_over_train_evaluate_train_are_one_unbroken_pass(make, iterations_per_loop):
    trained = make(iterations_per_loop=iterations_per_loop)
    input_fn = numbers()
    trained.train(input_fn, steps=10)
    trained.evaluate(numbers(5))
    trained.train(input_fn, steps=10)
    trained.train(input_fn, max_steps=23)
    assert ids_of(trained) == list(range(23))


@LOOPS
def test_a_shuffled_and_repeated_input_goes_on_in_its_order(make, iterations_per_loop, tmp_path):
    trained = make(iterations_per_loop=iterations_per_loop)
    for steps in (33, 33, 84):
        trained.train(shuffled, steps=steps)
        trained.evaluate(numbers(2))
    ids = ids_of(trained)
    assert ids == ids_of_one_run(shuffled, 150, tmp_path / "one")
    assert sorted(ids[:100]) == list(range(100))
    assert ids[100:] != ids[:50]


def test_a_new_process_goes_on_in_the_input(make):
    make().train(numbers(), steps=10)
    again = make()  # Knows nothing but what is in the directory.
    again.train(numbers(), steps=10)
    assert ids_of(again) == list(range(20))


def test_resume_input_false_starts_at_the_beginning(make):
    trained = make(resume_input=False)
    input_fn = numbers()
    trained.train(input_fn, steps=3)
    trained.train(input_fn, steps=4)
    assert ids_of(trained) == [0, 1, 2, 0, 1, 2, 3]
    assert glob.glob(os.path.join(trained.model_dir, "input-position*")) == []


def test_resume_input_false_forgets_the_position_of_an_earlier_run(make):
    make().train(numbers(), steps=3)
    make(resume_input=False).train(numbers(), steps=2)
    last = make()
    last.train(numbers(), steps=2)
    assert ids_of(last) == [0, 1, 2, 0, 1, 0, 1]


@LOOPS
def test_an_exhausted_input_starts_again(make, iterations_per_loop):
    trained = make(iterations_per_loop=iterations_per_loop)
    input_fn = numbers(6)
    for _ in range(2):
        trained.train(input_fn)
        assert trained.train_result.reason == "end of input"
    assert ids_of(trained) == [*range(6), *range(6)]


def test_an_input_that_ends_exactly_at_the_last_step_starts_again(make):
    trained = make()
    input_fn = numbers(6)
    trained.train(input_fn, steps=6)
    assert trained.train_result.reason == "steps"
    trained.train(input_fn, steps=6)
    assert ids_of(trained) == [*range(6), *range(6)]


def test_another_input_fn_starts_at_its_beginning(make):
    trained = make()
    trained.train(numbers(), steps=3)
    trained.train(numbers(start=500), steps=3)
    assert ids_of(trained) == [0, 1, 2, 500, 501, 502]


def test_an_equal_input_fn_made_anew_is_the_same_input(make):
    trained = make()
    for _ in range(3):
        trained.train(lambda: tf.data.Dataset.counter().batch(1), steps=2)
    for _ in range(2):
        trained.train(functools.partial(counted_from, start=100), steps=2)
    assert ids_of(trained) == [0, 1, 2, 3, 4, 5, 100, 101, 102, 103]


def counted_from(start):
    return tf.data.Dataset.counter(start).batch(1)


def test_the_step_of_a_hook_that_stops_is_where_the_input_goes_on(make):
    trained = make(iterations_per_loop=4)
    input_fn = numbers()
    trained.train(input_fn, hooks=[tf.compat.v1.train.StopAtStepHook(num_steps=6)])
    trained.train(input_fn, hooks=[tf.compat.v1.train.StopAtStepHook(last_step=9)])
    assert ids_of(trained) == list(range(9))


def test_only_the_newest_position_is_kept(make):
    trained = make(save_checkpoints_steps=2)
    trained.train(numbers(), steps=7)
    folder = os.path.join(trained.model_dir, "input-position")
    assert {name.split(".")[0] for name in os.listdir(folder)} == {"input-position-7"}


def test_nothing_but_checkpoints_has_the_names_of_their_files(make):
    trained = make(save_checkpoints_steps=2)
    trained.train(numbers(), steps=4)
    for ending in (".index", ".data-*"):
        found = glob.glob(os.path.join(trained.model_dir, f"*{ending}"))
        names = sorted(os.path.basename(path).rsplit(".", 1)[0] for path in found)
        assert names == ["model.ckpt-0", "model.ckpt-2", "model.ckpt-4"]


def test_a_position_where_earlier_versions_saved_it_is_gone_on_from_and_removed(make):
    trained = make()
    input_fn = numbers()
    trained.train(input_fn, steps=3)
    for path in glob.glob(os.path.join(trained.model_dir, "input-position", "*-3.*")):
        os.rename(path, os.path.join(trained.model_dir, os.path.basename(path)))
    trained.train(input_fn, steps=4)
    assert ids_of(trained) == list(range(7))
    left = glob.glob(os.path.join(trained.model_dir, "**", "*position-*.index"), recursive=True)
    assert [os.path.basename(path) for path in left] == ["input-position-7.index"]
    assert os.path.dirname(left[0]).endswith("input-position")


def test_an_input_whose_position_cannot_be_saved_starts_anew_with_a_warning(make, caplog):
    def input_fn():
        def generate():
            yield from range(100)

        return tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec([], tf.int64)
        ).batch(1)

    trained = make()
    with caplog.at_level(logging.WARNING, "estimator"):
        trained.train(input_fn, steps=3)
    messages = [r.message for r in caplog.records if "position" in r.message]
    assert len(messages) == 1
    assert "The position in the input cannot be saved" in messages[0]
    trained.train(input_fn, steps=2)
    assert ids_of(trained) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("max_bytes", "message"),
    # Without constants to compare, TensorFlow says so when it restores the position.
    [(1000, "The input has changed since step 3"), (-1, "does not fit this input")],
)
def test_a_position_of_another_pipeline_is_not_used(make, max_bytes, message, caplog, monkeypatch):
    monkeypatch.setattr(graph_identity, "MAX_BYTES", max_bytes)
    make().train(numbers(), steps=3)
    again = make()  # A new process, whose input has changed since.
    with caplog.at_level(logging.INFO, "estimator"):
        again.train(lambda: tf.data.Dataset.range(50).skip(20).shuffle(1).batch(1), steps=2)
    assert ids_of(again)[:3] == [0, 1, 2]
    assert ids_of(again)[3:] == [20, 21]
    assert [r for r in caplog.records if message in r.message]


@pytest.mark.parametrize("process", ["same", "new"])
def test_a_resumed_run_is_warned_if_its_input_has_changed(make, process, caplog, monkeypatch):
    make().train(numbers(), steps=3)
    if process == "new":
        monkeypatch.setattr(input_position, "_saved_by_this_process", set())
    with caplog.at_level(logging.INFO, "estimator"):
        make().train(lambda: tf.data.Dataset.range(50).batch(1), steps=2)
    (told,) = [r for r in caplog.records if "The input has changed since step 3" in r.message]
    assert told.levelname == ("INFO" if process == "same" else "WARNING")


@pytest.mark.parametrize("knows_input", [True, False])
def test_a_position_that_does_not_say_of_which_input_it_is_is_used(make, knows_input, monkeypatch):
    monkeypatch.setattr(graph_identity, "MAX_BYTES", -1)  # As in earlier versions.
    make().train(numbers(), steps=3)
    monkeypatch.setattr(graph_identity, "MAX_BYTES", 1000 if knows_input else -1)
    again = make().train(numbers(), steps=2)
    assert ids_of(again) == [0, 1, 2, 3, 4]
    again = make().train(numbers(), steps=2)
    assert ids_of(again) == [0, 1, 2, 3, 4, 5, 6]


def normalized_model_fn(features, labels, mode):
    """Each replica moves the statistics of its own batches: a layer's, and an average by hand."""
    features = tf.cast(features, tf.float32)[:, None]
    layer = keras.layers.BatchNormalization(momentum=0.7)
    ones = tf.compat.v1.ones_initializer()
    w = tf.compat.v1.get_variable("w", [], initializer=ones)
    average = tf.compat.v1.get_variable("average", [], initializer=ones, trainable=False)
    before = average.read_value()
    loss = tf.reduce_mean(w * layer(tf.sin(features) * 3 + 1, training=True)) + w * before
    with tf.control_dependencies([before]):
        update = average.assign(0.7 * before + 0.3 * tf.reduce_mean(tf.sin(features)))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_op, update))


def trained_statistics(model_dir, stops, num_replicas=2):
    """What each of the runs that stop there leaves in the checkpoint."""
    config = est.RunConfig(strategy="mirrored", num_replicas=num_replicas, iterations_per_loop=3)
    for stop in stops:
        trained = est.Estimator(normalized_model_fn, str(model_dir), config)
        trained.train(numbers(batch_size=3), max_steps=stop)
    return {name: trained.get_variable_value(name) for name in trained.get_variable_names()}


def test_replicas_resume_with_moving_statistics_of_their_own(tmp_path):
    whole = trained_statistics(tmp_path / "whole", [17])
    parts = trained_statistics(tmp_path / "parts", [3, 7, 10, 17])
    assert any("moving_variance" in name for name in whole)
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value, err_msg=name)


def test_another_number_of_replicas_begins_with_the_mean_of_their_statistics(tmp_path):
    before = trained_statistics(tmp_path, [5])
    after = trained_statistics(tmp_path, [6], num_replicas=1)
    name = next(name for name in before if "moving_mean" in name)
    batch = np.sin(np.float32([30, 31, 32])) * 3 + 1
    expected = 0.7 * before[name] + 0.3 * batch.mean()
    np.testing.assert_allclose(after[name], expected, rtol=1e-5)


def test_a_position_without_the_replicas_statistics_resumes_with_their_mean(
    tmp_path, monkeypatch, caplog
):
    with monkeypatch.context() as patch:  # Earlier versions saved the position alone.
        patch.setattr(input_position, "_copies", lambda variables, workers: {})
        before = trained_statistics(tmp_path, [5])
    assert "All replicas begin with the value" not in caplog.text
    after = trained_statistics(tmp_path, [6])
    assert "values that each replica had of its own at step 5, such as moving" in caplog.text
    assert "All replicas begin with the value" in caplog.text
    name = next(name for name in before if "moving_mean" in name)
    # The input goes on: each replica has had a batch of three in each of five steps.
    batches = np.sin(np.float32([[30, 31, 32], [33, 34, 35]])) * 3 + 1
    np.testing.assert_allclose(after[name], 0.7 * before[name] + 0.3 * batches.mean(), rtol=1e-5)


class LimitsFiles(tf.compat.v1.train.SessionRunHook):
    """Has the system refuse large files around the save of step 5."""

    def __init__(self):
        self.step = 0

    def after_run(self, run_context, run_values):
        self.step += 1
        if self.step in (4, 7):
            # The position has 300 rows of 4 kB, a checkpoint less than 10 kB.
            limit_files(100_000 if self.step == 4 else resource.RLIM_INFINITY)


def limit_files(num_bytes):
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


@pytest.fixture
def limiting():
    yield LimitsFiles()
    limit_files(resource.RLIM_INFINITY)


def large_rows():
    def widen(i):
        return i * tf.ones([500], tf.int64)

    return tf.data.Dataset.range(2000).map(widen).shuffle(300, seed=1).map(lambda x: x[:1])


def test_a_disk_that_is_full_for_a_moment_costs_one_position(make, tmp_path, limiting, caplog):
    with caplog.at_level(logging.WARNING, "estimator"):
        make(save_checkpoints_steps=5).train(large_rows, [limiting], steps=12)
    (message,) = [r.message for r in caplog.records if "position" in r.message]
    assert "not saved with this checkpoint" in message
    assert message.endswith("File too large")
    trained = make()
    trained.train(large_rows, steps=10)
    assert ids_of(trained) == ids_of_one_run(large_rows, 22, tmp_path / "one")


@pytest.mark.parametrize("is_async", [True, False])
def test_a_folder_that_cannot_be_made_costs_the_position(make, is_async, caplog):
    trained = make(async_checkpoints=is_async)
    os.mkdir(trained.model_dir)
    folder = os.path.join(trained.model_dir, "input-position")
    with open(folder, "w"):  # In its way.
        trained.train(numbers(), steps=3)
    assert "position in the input" in caplog.text
    os.remove(folder)
    trained.train(numbers(), steps=3)
    trained.train(numbers(), steps=3)
    assert ids_of(trained) == [0, 1, 2, 0, 1, 2, 3, 4, 5]


def test_a_checkpoint_without_a_position_starts_the_input_anew(make, limiting):
    make(save_checkpoints_steps=5).train(large_rows, [limiting], steps=5)
    limit_files(resource.RLIM_INFINITY)
    assert not glob.glob(os.path.join(make().model_dir, "input-position", "*.index"))
    trained = make()
    trained.train(large_rows, steps=2)
    first = list(large_rows().take(5).as_numpy_iterator())
    assert ids_of(trained) == [int(x[0]) for x in [*first, *first[:2]]]


@pytest.mark.parametrize("size", [0, 0.5, -1])
def test_a_position_that_is_cut_off_starts_the_input_anew_with_a_warning(make, size, caplog):
    make().train(numbers(), steps=3)
    (path,) = glob.glob(os.path.join(make().model_dir, "input-position", "*.data*"))
    whole = os.path.getsize(path)
    os.truncate(path, int(whole * size) if size >= 0 else whole - 1)
    with caplog.at_level(logging.WARNING, "estimator"):
        make().train(numbers(), steps=2)
    assert ids_of(make()) == [0, 1, 2, 0, 1]
    assert [r for r in caplog.records if "starts at its beginning" in r.message]


def test_an_old_position_that_cannot_be_removed_is_no_error(make, caplog):
    class Blocks(tf.compat.v1.train.SessionRunHook):
        def end(self, session):
            folder = os.path.join(make().model_dir, "input-position", "input-position-1.index")
            os.makedirs(os.path.join(folder, "not empty"))

    with caplog.at_level(logging.WARNING, "estimator"):
        make(save_checkpoints_steps=2).train(numbers(), [Blocks()], steps=4)
        make(save_checkpoints_steps=2).train(numbers(), steps=4)
    assert [r for r in caplog.records if "old position in the input cannot be removed" in r.message]
    assert ids_of(make()) == list(range(8))
