"""R3: training goes on in its input, whatever comes between."""

import functools
import glob
import logging
import os

import pytest
import tensorflow as tf

import estimator as est
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


def test_a_position_of_another_pipeline_is_not_used_with_a_warning(make, caplog):
    make().train(numbers(), steps=3)
    again = make()  # A new process, whose input has changed since.
    with caplog.at_level(logging.WARNING, "estimator"):
        again.train(lambda: tf.data.Dataset.range(50).skip(20).shuffle(1).batch(1), steps=2)
    assert ids_of(again)[:3] == [0, 1, 2]
    assert ids_of(again)[3:] == [20, 21]
    assert [r for r in caplog.records if "does not fit this input" in r.message]
