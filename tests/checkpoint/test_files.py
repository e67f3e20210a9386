"""A checkpoint is whole or skipped; as many are kept as were asked for."""

import glob
import logging
import os
import shutil
import time

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint import errors, files, removal
from estimator.roles.completion import checkpoints_oldest_first
from tests.toy import Model, checkpoint_steps, ids_model_fn, ids_of, numbers, weight_after

NEWEST = "model.ckpt-6"


@pytest.fixture
def make(tmp_path):
    """Makes Estimators of one directory that save every 2 steps."""

    def make(model_fn=None, **config):
        config = est.RunConfig(**{"save_checkpoints_steps": 2, **config})
        return est.Estimator(model_fn or Model(), str(tmp_path), config)

    return make


def truncate_data(model_dir):
    (path,) = glob.glob(os.path.join(model_dir, NEWEST + ".data-*"))
    os.truncate(path, os.path.getsize(path) // 2)


def delete_data(model_dir):
    (path,) = glob.glob(os.path.join(model_dir, NEWEST + ".data-*"))
    os.remove(path)


def delete_index(model_dir):
    os.remove(os.path.join(model_dir, NEWEST + ".index"))


def empty_index(model_dir):
    os.truncate(os.path.join(model_dir, NEWEST + ".index"), 0)


def truncate_index(model_dir):
    path = os.path.join(model_dir, NEWEST + ".index")
    os.truncate(path, os.path.getsize(path) // 2)


def garble_index(model_dir):
    with open(os.path.join(model_dir, NEWEST + ".index"), "wb") as file:
        file.write(b"garbage" * 50)


def garble_data(model_dir):
    (path,) = glob.glob(os.path.join(model_dir, NEWEST + ".data-*"))
    with open(path, "r+b") as file:
        file.write(b"\xff" * (os.path.getsize(path)))


DAMAGES = [
    truncate_data,
    delete_data,
    garble_data,
    delete_index,
    empty_index,
    truncate_index,
    garble_index,
]


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(make, damage, caplog):
    trained = make()
    trained.train(numbers(), steps=6)
    damage(trained.model_dir)
    fresh = make()
    w4 = weight_after([[0], [1], [2], [3]])
    with caplog.at_level(logging.WARNING, "estimator"):
        results = fresh.evaluate(numbers(1))
    assert results["global_step"] == 4
    np.testing.assert_allclose(results["loss"], w4**2 / 2, rtol=1e-6)
    assert [m for m in warnings_of(caplog) if NEWEST in m]
    assert next(fresh.predict(numbers(start=1))) == w4
    caplog.clear()
    with caplog.at_level(logging.WARNING, "estimator"):
        fresh.train(numbers(), steps=3)
    assert [m for m in warnings_of(caplog) if NEWEST in m]
    assert fresh.train_result.global_step == 7
    assert fresh.get_variable_value("global_step") == 7
    # The position belongs to step 6, so the input starts anew.
    assert fresh.get_variable_value("w") == weight_after([[0], [1], [2]], w4)
    # Step 6 was written again, whole.
    path = os.path.join(fresh.model_dir, NEWEST)
    assert tf.train.load_variable(path, "w") == weight_after([[0], [1]], w4)
    caplog.clear()
    fresh.evaluate(numbers(1))
    assert warnings_of(caplog) == []


def test_an_undamaged_directory_gives_no_warning(make, caplog):
    with caplog.at_level(logging.WARNING, "estimator"):
        make().train(numbers(), steps=6)
        again = make()
        again.train(numbers(), steps=2)
        again.evaluate(numbers(1))
    assert warnings_of(caplog) == []


def test_when_all_checkpoints_are_damaged_the_error_names_them(make):
    trained = make()
    trained.train(numbers(), steps=4)
    for path in glob.glob(os.path.join(trained.model_dir, "model.ckpt-*.data-*")):
        os.truncate(path, 1)
    for verb in (trained.evaluate, lambda input_fn: trained.train(input_fn, steps=1)):
        with pytest.raises(ValueError, match=r"(?s)None of the checkpoints.*ckpt-4.*ckpt-2"):
            verb(numbers(1))


def test_a_first_save_that_was_killed_is_no_checkpoint(make):
    """A sharded saver writes the index in place, and the file `checkpoint` afterwards."""
    trained = make()
    for name in ("model.ckpt-0.data-00000-of-00001", "model.ckpt-0.index"):
        path = os.path.join(trained.model_dir, name)
        tf.io.gfile.makedirs(trained.model_dir)
        with open(path, "wb"):
            pass
    assert trained.evaluate(numbers(1))["global_step"] == 0  # The initial values.
    trained.train(numbers(), steps=1)
    assert checkpoint_steps(trained.model_dir) == [0, 1]
    assert make().get_variable_value("global_step") == 1


def test_several_damaged_checkpoints_are_an_error_without_a_checkpoint_file_too(make):
    trained = make()
    trained.train(numbers(), steps=4)
    os.remove(os.path.join(trained.model_dir, "checkpoint"))
    for path in glob.glob(os.path.join(trained.model_dir, "*.index")):
        os.truncate(path, 0)
    with pytest.raises(ValueError, match=r"(?s)None of the checkpoints.*ckpt-4.*ckpt-2"):
        make().train(numbers(), steps=1)


def test_a_checkpoint_that_replaces_another_meanwhile_is_found(make, monkeypatch):
    trained = make(keep_checkpoint_max=1)
    trained.train(numbers(), steps=2)
    is_readable = files.is_readable

    def replace_first(path):
        monkeypatch.setattr(files, "is_readable", is_readable)
        make(keep_checkpoint_max=1).train(numbers(), steps=2)
        return is_readable(path)

    monkeypatch.setattr(files, "is_readable", replace_first)
    assert files.any_checkpoints([trained.model_dir])[0].endswith("model.ckpt-4")


def test_a_checkpoint_whose_data_is_gone_is_not_found(make):
    trained = make()
    trained.train(numbers(), steps=2)
    for path in glob.glob(os.path.join(trained.model_dir, "model.ckpt-2.data-*")):
        os.remove(path)
    with pytest.raises(tf.errors.NotFoundError, match=r"model.ckpt-2\. A file is missing or"):
        trained.evaluate(
            numbers(1), checkpoint_path=os.path.join(trained.model_dir, "model.ckpt-2")
        )


@pytest.mark.parametrize("state", ["", "missing", "garbage {", 'model_checkpoint_path: "gone-9"'])
def test_the_newest_is_found_without_a_good_checkpoint_file(make, state):
    trained = make()
    trained.train(numbers(), steps=5)
    path = os.path.join(trained.model_dir, "checkpoint")
    if state == "missing":
        os.remove(path)
    else:
        with open(path, "w") as file:
            file.write(state)
    fresh = make()
    assert fresh.latest_checkpoint() == os.path.join(trained.model_dir, "model.ckpt-5")
    assert fresh.evaluate(numbers(1))["global_step"] == 5
    fresh.train(numbers(), steps=1)
    assert fresh.get_variable_value("global_step") == 6
    assert tf.train.latest_checkpoint(fresh.model_dir).endswith("model.ckpt-6")


def test_the_input_goes_on_from_an_older_checkpoint_at_its_beginning(make):
    """A crash between the two files of a save: the position of step 6 has no checkpoint."""
    trained = make(ids_model_fn)
    trained.train(numbers(), steps=6)
    for path in glob.glob(os.path.join(trained.model_dir, NEWEST + "*")):
        os.remove(path)
    fresh = make(ids_model_fn)
    fresh.train(numbers(), steps=1)
    assert ids_of(fresh) == [0, 1, 2, 3, 0]


def test_files_of_a_save_that_never_ended_are_no_checkpoint(make):
    trained = make()
    trained.train(numbers(), steps=4)
    for name in (
        "model.ckpt-9.data-00000-of-00001.tempstate123",
        "model.ckpt-9.data-00000-of-00001",
        "model.ckpt-9.index.tempstate123",
        "model.ckpt-9_temp",
    ):
        with open(os.path.join(trained.model_dir, name), "wb") as file:
            file.write(b"half")
    assert make().latest_checkpoint().endswith("model.ckpt-4")


def test_what_a_killed_save_left_is_removed_when_nobody_writes_it_any_more(make):
    trained = make()
    trained.train(numbers(), steps=2)
    before = set(os.listdir(trained.model_dir))
    an_hour_ago = time.time() - 3700
    for name, seconds in {
        "model.ckpt-9.data-00000-of-00001.tempstate123": an_hour_ago,
        "model.ckpt-9.index.tempstate123": an_hour_ago,
        "model.ckpt-9.meta.tmp": an_hour_ago,
        f"checkpoint.tmp{'0a' * 16}": an_hour_ago,
        "metrics.jsonl.123.tmp": an_hour_ago,
        "metrics.jsonl.124.tmp": time.time(),
        "model.ckpt-8.data-00000-of-00001.tempstate7": time.time(),
        "model.ckpt-8.data-00000-of-00001": an_hour_ago,
        "mine.ckpt-8.index.tempstate7": an_hour_ago,
        "model.ckpt-7.data-00000-of-00002": an_hour_ago,
        "model.ckpt-7.data-00001-of-00002": an_hour_ago,
        "model.ckpt-7.meta": an_hour_ago,
        "model.ckpt-6.data-00000-of-00001": time.time(),
        "model.ckpt-5.meta": an_hour_ago,
        "model.ckpt-3.data-00000-of-00001": an_hour_ago,
        "mine.ckpt-7.data-00000-of-00001": an_hour_ago,
        # Of a sharded saver.
        "model.ckpt-9_temp/part-00000-of-00001.index": an_hour_ago,
        "model.ckpt-9_temp/part-00000-of-00001.data-00000-of-00001.tempstate1": an_hour_ago,
        "model.ckpt-7_temp": an_hour_ago,  # A file of somebody else.
        "model.ckpt-8_temp/part-00000-of-00001.index": an_hour_ago,
        "model.ckpt-8_temp/part-00000-of-00001.data-00000-of-00001.tempstate1": time.time(),
    }.items():
        path = os.path.join(trained.model_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"half")
        os.utime(path, (seconds, seconds))
    listed = os.path.join(trained.model_dir, "checkpoint")
    with open(listed, "a") as file:  # As where somebody copies a directory: its data comes later.
        file.write('all_model_checkpoint_paths: "model.ckpt-3"\n')
    make().train(numbers(), steps=2)
    left = {name for name in set(os.listdir(trained.model_dir)) - before if "ckpt-4" not in name}
    assert left == {
        "metrics.jsonl.124.tmp",
        "model.ckpt-8.data-00000-of-00001.tempstate7",
        "model.ckpt-8.data-00000-of-00001",
        "model.ckpt-7_temp",
        "model.ckpt-8_temp",
        "mine.ckpt-8.index.tempstate7",
        "model.ckpt-6.data-00000-of-00001",
        "model.ckpt-5.meta",
        "model.ckpt-3.data-00000-of-00001",
        "mine.ckpt-7.data-00000-of-00001",
    }


def test_what_cannot_be_removed_keeps_no_training_from_starting(make, monkeypatch, caplog):
    trained = make(save_checkpoints_steps=1).train(numbers(), steps=4)
    left = os.path.join(trained.model_dir, "model.ckpt-9.index.tempstate123")
    with open(left, "wb"):
        os.utime(left, (0, 0))
    remove = tf.io.gfile.remove

    def refuse(path):
        if path.endswith((".index", "tempstate123")):
            raise tf.errors.PermissionDeniedError(None, None, f"{path}; Permission denied")
        remove(path)

    monkeypatch.setattr(tf.io.gfile, "remove", refuse)
    resumed = make(keep_checkpoint_max=2).train(numbers(), steps=1)
    assert resumed.train_result.global_step == 5
    assert f"{left}, which a killed process left, cannot be removed: " in caplog.text
    assert "model.ckpt-2 cannot be removed: " in caplog.text


def test_a_checkpoint_that_is_not_there_is_not_found(tmp_path):
    with pytest.raises(tf.errors.NotFoundError, match=r"ckpt-3.index was removed"):
        files.open_checkpoint(str(tmp_path / "model.ckpt-3"))


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_as_many_checkpoints_are_kept_as_asked_for(make, keep):
    make(keep_checkpoint_max=keep, save_checkpoints_steps=1).train(numbers(), steps=7)
    trained = make()
    assert checkpoint_steps(trained.model_dir) == list(range(8 - keep, 8))
    left = {name.split(".")[1] for name in os.listdir(trained.model_dir) if ".ckpt-" in name}
    assert left == {f"ckpt-{step}" for step in range(8 - keep, 8)}


@pytest.mark.parametrize("has_meta_files", [True, False])
def test_a_resume_that_keeps_fewer_removes_the_older_ones(make, has_meta_files):
    saves = {"checkpoint_save_graph_def": has_meta_files}
    make(keep_checkpoint_max=11, **saves).train(numbers(), steps=20)
    trained = make(keep_checkpoint_max=2, **saves)
    assert checkpoint_steps(trained.model_dir) == list(range(0, 21, 2))
    trained.train(numbers(), steps=2)
    assert checkpoint_steps(trained.model_dir) == [20, 22]
    trained.train(numbers(), steps=2)
    assert checkpoint_steps(trained.model_dir) == [22, 24]


@pytest.mark.parametrize("keep", [0, None])
def test_keep_checkpoint_max_0_keeps_all_also_over_a_resume(make, keep):
    make(keep_checkpoint_max=keep).train(numbers(), steps=14)
    trained = make(keep_checkpoint_max=keep)
    trained.train(numbers(), steps=6)
    assert checkpoint_steps(trained.model_dir) == list(range(0, 21, 2))


def test_keep_checkpoint_max_counts_whole_ones_after_a_fallback(make):
    trained = make(keep_checkpoint_max=2)
    trained.train(numbers(), steps=6)
    truncate_data(trained.model_dir)
    fresh = make(keep_checkpoint_max=2)
    fresh.train(numbers(), steps=2)
    assert checkpoint_steps(fresh.model_dir) == [4, 6]
    assert fresh.evaluate(numbers(1))["global_step"] == 6


def test_no_step_is_saved_twice(make, tmp_path):
    class Saves(tf.compat.v1.train.CheckpointSaverListener):
        def __init__(self):
            self.steps = []

        def after_save(self, session, global_step_value):
            self.steps.append(int(global_step_value))

    saves = Saves()
    trained = make()
    trained.train(numbers(), max_steps=6, saving_listeners=[saves])
    trained.train(numbers(), max_steps=9, saving_listeners=[saves])
    assert saves.steps == [0, 2, 4, 6, 8, 9]


def test_variable_names_and_values_are_those_of_the_newest_checkpoint(make):
    trained = make()
    with pytest.raises(ValueError, match="no checkpoint"):
        trained.get_variable_names()
    with pytest.raises(ValueError, match="no checkpoint"):
        trained.get_variable_value("w")
    assert trained.latest_checkpoint() is None
    trained.train(numbers(), steps=3)
    assert sorted(trained.get_variable_names()) == ["global_step", "w"]
    assert trained.get_variable_value("global_step") == 3
    assert trained.get_variable_value("w") == weight_after([[0], [1], [2]])


def test_the_checkpoint_file_names_paths_relative_to_it(make, tmp_path):
    trained = make()
    trained.train(numbers(), steps=4)
    with open(os.path.join(trained.model_dir, "checkpoint")) as file:
        assert str(tmp_path) not in file.read()
    moved = str(tmp_path) + "_moved"
    os.rename(trained.model_dir, moved)
    assert est.Estimator(Model(), moved).evaluate(numbers(1))["global_step"] == 4


@pytest.mark.parametrize("save_graph", [True, False])
def test_the_meta_file_is_written_if_asked_for(make, save_graph):
    trained = make(checkpoint_save_graph_def=save_graph)
    trained.train(numbers(), steps=2)
    names = sorted(name for name in os.listdir(trained.model_dir) if "ckpt-2" in name)
    endings = [".data-00000-of-00001", ".index", *([".meta"] if save_graph else [])]
    assert names == ["model.ckpt-2" + ending for ending in endings]


def test_saves_by_the_clock_are_made_too(make):
    trained = make(save_checkpoints_steps=None, save_checkpoints_secs=1e-9)
    trained.train(numbers(), steps=4)
    assert checkpoint_steps(trained.model_dir) == [0, 1, 2, 3, 4]


def test_checkpoint_step_reads_the_number_off_the_name():
    assert files.checkpoint_step("/a/model.ckpt-100") == 100
    assert files.checkpoint_step("/a-1/other") is None


def test_a_directory_that_is_not_there_has_no_checkpoints(tmp_path):
    assert files.checkpoints_newest_first(str(tmp_path / "nowhere")) == []
    assert files.latest_checkpoint(str(tmp_path)) is None


def test_a_checkpoint_of_another_model_names_what_differs(make, tmp_path):
    make().train(numbers(), steps=2)

    def model_fn(features, mode):
        v1 = tf.compat.v1
        v1.get_variable("w", [3])
        v1.get_variable("extra", [])
        step = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=step)

    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ValueError, match=r"(?s)another model's.*extra.*w: \(3,\).*\[\]"):
        make(model_fn).train(numbers(), steps=1)
    assert [name for name in sorted(os.listdir(tmp_path)) if "ckpt" in name] == [
        name for name in before if "ckpt" in name
    ]


def test_a_resume_leaves_alone_what_is_kept_for_good(make):
    config = {"keep_checkpoint_max": 1, "keep_checkpoint_every_n_hours": 1e-9}
    make(**config).train(numbers(), steps=6)
    trained = make(**config)
    assert checkpoint_steps(trained.model_dir) == [0, 2, 4, 6]
    trained.train(numbers(), steps=2)
    assert checkpoint_steps(trained.model_dir) == [0, 2, 4, 8]  # 6 was only the newest.


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate_data, "Read less bytes than requested"),
        (delete_data, "No such file or directory"),
        (garble_data, "Checksum does not match"),
    ],
)
def test_the_warning_says_what_is_wrong_with_the_file(make, damage, reason, caplog):
    trained = make()
    trained.train(numbers(), steps=6)
    damage(trained.model_dir)
    with caplog.at_level(logging.WARNING, "estimator"):
        trained.evaluate(numbers(1))
    (message,) = warnings_of(caplog)
    assert reason in message


def test_what_is_wrong_is_found_where_a_restore_failed_on_several_devices():
    """As TensorFlow says it if a variable is on a GPU."""
    error = tf.errors.DataLossError(
        None,
        None,
        "Graph execution error:\n\nDetected at node 'save/RestoreV2' defined at (...)\n"
        "2 root error(s) found.\n"
        "  (0) DATA_LOSS: TensorBundle at model.ckpt-6: Checksum does not match\n"
        "\t [[{{node save/RestoreV2}}]]\n"
        "  (1) DATA_LOSS: TensorBundle at model.ckpt-6: Checksum does not match\n"
        "\t [[{{node save/RestoreV2}}]]\n"
        "0 successful operations.\n"
        "0 derived errors ignored.",
    )
    assert errors.restore_error(error) == "TensorBundle at model.ckpt-6: Checksum does not match"


def saved_by(make_saver):
    """`Model`, whose Scaffold has a saver of its own."""

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        w = tf.compat.v1.global_variables("w")[0]
        scaffold = tf.compat.v1.train.Scaffold(saver=make_saver(w))
        return spec.replace(scaffold=scaffold)

    return model_fn


def test_the_saver_of_a_scaffold_decides_what_is_kept(make):
    model_fn = saved_by(lambda w: tf.compat.v1.train.Saver(max_to_keep=2, save_relative_paths=True))
    trained = make(model_fn)
    trained.train(numbers(), steps=6)
    trained.train(numbers(), steps=2)
    assert checkpoint_steps(trained.model_dir) == [6, 8]
    assert trained.evaluate(numbers(1))["global_step"] == 8


def test_a_scaffold_may_have_a_tf_train_checkpoint_for_its_saver(make):
    def make_saver(w):
        step = tf.compat.v1.train.get_global_step()
        return tf.train.Checkpoint(weight=w, step=step)

    trained = make(saved_by(make_saver))
    input_fn = numbers()
    trained.train(input_fn, steps=4)
    trained.train(input_fn, steps=2)
    w6 = weight_after([[i] for i in range(6)])
    assert checkpoint_steps(trained.model_dir) == [0, 2, 4, 6]
    assert "weight/.ATTRIBUTES/VARIABLE_VALUE" in trained.get_variable_names()
    assert next(trained.predict(numbers(start=1))) == w6
    assert trained.evaluate(numbers(1))["global_step"] == 6


def test_another_model_with_a_saver_of_its_own_is_not_taken_back_to_an_older_checkpoint(make):
    def with_extra(features, labels, mode):
        tf.compat.v1.get_variable("extra", [2])
        return saved_by(lambda w: tf.compat.v1.train.Saver(save_relative_paths=True))(
            features, labels, mode
        )

    plain = saved_by(lambda w: tf.compat.v1.train.Saver(save_relative_paths=True))
    make(with_extra).train(numbers(), steps=2)
    make_plain = make(plain)
    make_plain.train(numbers(), steps=2)
    again = make(with_extra)
    for verb in (again.evaluate, lambda input_fn: again.train(input_fn, steps=1)):
        with pytest.raises(ValueError, match=r"(?s)ckpt-4 is another model's.*: extra$"):
            verb(numbers(1))
    assert checkpoint_steps(again.model_dir) == [0, 2, 4]
    assert make_plain.evaluate(numbers(1))["global_step"] == 4


@pytest.mark.parametrize("damage", [delete_data, truncate_data])
def test_a_saver_of_the_model_passes_over_a_damaged_checkpoint_too(make, damage):
    trained = make(saved_by(lambda w: tf.compat.v1.train.Saver(save_relative_paths=True)))
    trained.train(numbers(), steps=6)
    damage(trained.model_dir)
    assert trained.evaluate(numbers(1))["global_step"] == 4


def test_a_saver_that_does_not_say_what_it_wants_is_no_sign_of_damage(make):
    class Strict:
        """Not a v1 Saver, and it wants what is not there."""

        def __init__(self, saver):
            self.saver = saver

        def restore(self, session, path):
            raise tf.errors.NotFoundError(None, None, "Key extra not found in checkpoint")

        def __getattr__(self, name):
            return getattr(self.saver, name)

    model_fn = saved_by(lambda w: Strict(tf.compat.v1.train.Saver(save_relative_paths=True)))
    trained = make(model_fn)
    trained.train(numbers(), steps=4)
    with pytest.raises(ValueError, match=r"(?s)ckpt-4 is another model's.*Key extra not found"):
        trained.evaluate(numbers(1))


@pytest.fixture
def opened(monkeypatch):
    """The steps of the checkpoints that were opened, in order."""
    steps = []
    open_checkpoint = files.open_checkpoint

    def counted(path):
        steps.append(files.checkpoint_step(path))
        return open_checkpoint(path)

    monkeypatch.setattr(files, "open_checkpoint", counted)
    return steps


def test_a_warm_call_opens_one_checkpoint_however_many_there_are(make, opened):
    trained = make(keep_checkpoint_max=0)
    trained.train(numbers(), steps=20)
    list(trained.predict(numbers(1)))
    trained.evaluate(numbers(1))
    opened.clear()
    list(trained.predict(numbers(1)))
    assert opened == [20]
    trained.evaluate(numbers(1))
    assert opened == [20, 20]
    assert trained.latest_checkpoint().endswith("-20")
    assert opened == [20, 20, 20]
    assert [step for step, _ in checkpoints_oldest_first(trained.model_dir)] == [*range(0, 21, 2)]
    assert opened == [20, 20, 20, 20]


@pytest.mark.parametrize("damage", [empty_index, truncate_index, garble_index])
def test_a_restore_passes_over_an_index_that_is_damaged_behind_the_newest(make, damage, caplog):
    """Step 8 has damaged data, step 6 a damaged index, which is found out when 8 has failed."""
    trained = make()
    trained.train(numbers(), steps=8)
    damage(trained.model_dir)
    (data,) = glob.glob(os.path.join(trained.model_dir, "model.ckpt-8.data-*"))
    os.truncate(data, 1)
    with caplog.at_level(logging.WARNING, "estimator"):
        assert make().evaluate(numbers(1))["global_step"] == 4
    assert ["-8 is damaged" in m or "-6 cannot be read" in m for m in warnings_of(caplog)] == [
        True
    ] * 2


def plain_saver(w):
    return tf.compat.v1.train.Saver(max_to_keep=2)


def test_training_in_a_copy_leaves_the_checkpoints_of_the_original_alone(make, tmp_path, caplog):
    """A plain Saver writes absolute paths, which in the copy are still those of the original."""
    original = make(saved_by(plain_saver)).train(numbers(), steps=4)
    copy = str(tmp_path) + "_copy"
    shutil.copytree(tmp_path, copy)
    copied = est.Estimator(original._model_fn, copy, original.config.replace(model_dir=copy))
    assert copied.latest_checkpoint() == os.path.join(copy, "model.ckpt-4")
    copied.train(numbers(), steps=4)
    assert checkpoint_steps(original.model_dir) == [2, 4]
    assert checkpoint_steps(copy) == [6, 8]
    assert original.evaluate(numbers(1))["global_step"] == 4


def test_a_checkpoint_in_a_folder_inside_that_the_file_names_is_restored(make, tmp_path):
    make().train(numbers(), steps=2)
    (tmp_path / "best").mkdir()
    for path in tmp_path.glob("model.ckpt-*"):
        path.rename(tmp_path / "best" / path.name)
    tf.compat.v1.train.update_checkpoint_state(str(tmp_path), "best/model.ckpt-2")
    trained = make()
    assert trained.latest_checkpoint() == str(tmp_path / "best" / "model.ckpt-2")
    trained.train(numbers(start=2), steps=2)
    assert trained.get_variable_value("w") == weight_after([0, 1, 2, 3])


def test_a_checkpoint_elsewhere_that_the_file_names_is_restored_and_never_removed(make, tmp_path):
    there = make(saved_by(plain_saver)).train(numbers(), steps=4)
    model_dir = str(tmp_path) + "_new"
    os.makedirs(model_dir)
    shutil.copy(os.path.join(there.model_dir, "checkpoint"), model_dir)
    new = est.Estimator(there._model_fn, model_dir, there.config.replace(model_dir=model_dir))
    new.train(numbers(), steps=6)
    assert new.train_result.global_step == 10
    assert checkpoint_steps(there.model_dir) == [2, 4]
    assert checkpoint_steps(model_dir) == [8, 10]


@pytest.mark.parametrize("is_relative", [False, True])
def test_absolute_paths_of_a_plain_saver_name_no_checkpoint_twice(
    make, tmp_path, is_relative, monkeypatch
):
    trained = make(saved_by(plain_saver)).train(numbers(), steps=4)
    monkeypatch.chdir(tmp_path.parent)
    directory = tmp_path.name if is_relative else trained.model_dir
    found = files.checkpoints_newest_first(directory)
    assert found == [os.path.join(directory, f"model.ckpt-{step}") for step in (4, 2)]


def test_without_hours_no_checkpoint_is_kept_for_good(tmp_path):
    config = est.RunConfig(
        str(tmp_path),
        save_checkpoints_steps=1,
        keep_checkpoint_max=1,
        keep_checkpoint_every_n_hours=None,
    )
    with est.Estimator(Model(), config=config) as model:
        model.train(numbers(), steps=3)
    assert checkpoint_steps(tmp_path) == [3]


def test_a_model_dir_need_not_be_in_the_local_file_system(tmp_path):
    """In that of TensorFlow's memory, every verb does what it does in a local directory."""
    outcomes = []
    for model_dir in (str(tmp_path / "model"), f"ram://{tmp_path.name}/model"):
        config = est.RunConfig(save_checkpoints_steps=2, keep_checkpoint_max=2)
        with est.Estimator(Model(), model_dir, config) as model:
            input_fn = numbers()
            for steps in (3, 2):
                model.train(input_fn, steps=steps)
            assert model.get_variable_value("w") == weight_after(range(5))
            left = [name for name in tf.io.gfile.listdir(model_dir) if "ckpt" in name]
            evaluated = model.evaluate(numbers(3)), list(model.predict(numbers(2)))
            outcomes.append((*evaluated, model.get_variable_names(), sorted(left)))
    assert outcomes[0] == outcomes[1]
    assert {name.split(".")[1] for name in outcomes[1][-1]} == {"ckpt-4", "ckpt-5"}
    assert files.checkpoint_step(model.latest_checkpoint()) == 5
    assert not os.path.exists("ram:")


def test_a_checkpoint_is_removed_whole_though_its_directory_looks_like_a_pattern(tmp_path):
    folder = tmp_path / "run[1]"
    folder.mkdir()
    for name in ("model.ckpt-2", "model.ckpt-20"):
        for ending in (".index", ".data-00000-of-00001", ".meta"):
            (folder / f"{name}{ending}").touch()
    removal.remove_checkpoint(str(folder / "model.ckpt-2"))
    assert {path.stem for path in folder.iterdir()} == {"model.ckpt-20"}
