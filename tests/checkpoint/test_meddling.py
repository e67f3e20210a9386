"""Programs that read, copy, rename and delete checkpoints while a training runs."""

import glob
import os
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import Model, checkpoint_steps, numbers, weight_after

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("loop", [1, 100])


class AfterSave(v1.train.CheckpointSaverListener):
    """Calls a function of the step after each save."""

    def __init__(self, act):
        self.act = act

    def after_save(self, session, global_step_value):
        self.act(int(global_step_value))


def make(model_dir, loop, **config):
    run_config = cases.make_config(
        iterations_per_loop=loop, save_checkpoints_steps=1, resume_input=True, **config
    )
    return est.Estimator(Model(), str(model_dir), run_config)


def files_of(model_dir, step):
    return glob.glob(os.path.join(model_dir, f"model.ckpt-{step}.*"))


def w_at(step):
    return weight_after(np.arange(step).reshape(step, 1))


@LOOPS
def test_a_checkpoint_that_a_listener_renames_stays_and_is_evaluated_by_its_new_name(
    tmp_path, loop
):
    """As programs keep the best one: it leaves the names that a saver prunes."""

    def rename(step):
        if step == 2:
            for path in files_of(tmp_path, 2):
                os.rename(path, path.replace("model.ckpt-2", "best"))

    trained = make(tmp_path, loop, keep_checkpoint_max=2)
    trained.train(numbers(), max_steps=5, saving_listeners=[AfterSave(rename)])
    assert checkpoint_steps(tmp_path) == [4, 5]
    best = str(tmp_path / "best")
    assert trained.evaluate(numbers(1), checkpoint_path=best)["global_step"] == 2
    assert next(trained.predict(numbers(1, start=1), checkpoint_path=best)) == w_at(2)
    trained.train(numbers(), max_steps=6)
    assert trained.get_variable_value("w") == w_at(6)
    assert tf.train.load_variable(best, "w") == w_at(2)


@LOOPS
def test_the_newest_checkpoint_may_be_renamed_away_under_a_running_training(tmp_path, loop):
    def rename(step):
        if step == 3:
            for path in files_of(tmp_path, 3):
                os.rename(path, path.replace("model.ckpt-3", "best"))

    trained = make(tmp_path, loop)
    trained.train(numbers(), max_steps=3, saving_listeners=[AfterSave(rename)])
    assert trained.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    assert trained.evaluate(numbers(1))["global_step"] == 2
    trained.train(numbers(), max_steps=4)  # Step 3 is taken again.
    assert trained.train_result.global_step == 4


@LOOPS
def test_a_copy_of_the_best_checkpoint_is_a_model_dir_of_its_own(tmp_path, loop):
    best = tmp_path / "best"

    def copy(step):
        if step == 2:
            best.mkdir()
            for path in files_of(tmp_path / "model", 2):
                shutil.copy(path, best)

    trained = make(tmp_path / "model", loop, keep_checkpoint_max=1)
    trained.train(numbers(), max_steps=4, saving_listeners=[AfterSave(copy)])
    assert checkpoint_steps(tmp_path / "model") == [4]
    again = make(best, loop)
    assert again.evaluate(numbers(1))["global_step"] == 2
    again.train(numbers(start=2), max_steps=4)
    assert again.get_variable_value("w") == w_at(4)
    assert checkpoint_steps(best) == [2, 3, 4]


@LOOPS
def test_checkpoints_that_somebody_deletes_are_not_missed(tmp_path, loop):
    def delete_all_but_the_last_two(step):
        for old in range(step - 1):
            for path in files_of(tmp_path, old):
                os.remove(path)

    trained = make(tmp_path, loop, keep_checkpoint_max=4)
    trained.train(numbers(), max_steps=7, saving_listeners=[AfterSave(delete_all_but_the_last_two)])
    assert checkpoint_steps(tmp_path) == [6, 7]
    trained.train(numbers(), max_steps=8)
    assert checkpoint_steps(tmp_path) == [6, 7, 8]
    assert trained.get_variable_value("w") == w_at(8)


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize(
    "text",
    ["", 'model_checkpoint_path: "model.ckpt-2"\n', 'model_checkpoint_path: "elsewhere"\n'],
    ids=["empty", "older", "wrong"],
)
def test_the_file_checkpoint_may_be_edited_while_a_training_runs(tmp_path, loop, text):
    def edit(step):
        if step == 4:
            (tmp_path / "checkpoint").write_text(text)

    trained = make(tmp_path, loop, keep_checkpoint_max=3)
    trained.train(numbers(), max_steps=5, saving_listeners=[AfterSave(edit)])
    assert checkpoint_steps(tmp_path) == [3, 4, 5]
    assert trained.latest_checkpoint() == str(tmp_path / "model.ckpt-5")
    trained.train(numbers(), max_steps=6)
    assert trained.get_variable_value("w") == w_at(6)


@LOOPS
def test_checkpoints_iterator_beside_a_training_sees_whole_checkpoints_and_the_last(tmp_path, loop):
    seen = []
    is_over = threading.Event()

    def watch():
        # It looks once more after the end, as it checks `timeout_fn` only when nothing is new.
        for path in tf.train.checkpoints_iterator(
            str(tmp_path), timeout=1, timeout_fn=is_over.is_set
        ):
            seen.append((path, float(tf.train.load_variable(path, "w"))))

    trained = make(tmp_path, loop, keep_checkpoint_max=0)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        trained.train(numbers(), max_steps=12)
    finally:
        is_over.set()
        watcher.join(60)
    steps = [int(path.rsplit("-", 1)[1]) for path, _ in seen]
    assert steps == sorted(set(steps))
    assert steps[-1] == 12
    assert [w for _, w in seen] == [w_at(step) for step in steps]


@LOOPS
def test_an_evaluation_of_each_checkpoint_of_an_iterator_restores_that_one(tmp_path, loop):
    trained = make(tmp_path, loop, keep_checkpoint_max=0)
    trained.train(numbers(), max_steps=3)
    evaluated = []
    for path in tf.train.checkpoints_iterator(str(tmp_path), timeout=0):
        evaluated.append(trained.evaluate(numbers(1), checkpoint_path=path)["global_step"])
        if evaluated[-1] < 5:
            trained.train(numbers(), max_steps=evaluated[-1] + 1)
    assert evaluated == [3, 4, 5]
