"""RunConfig(async_checkpoints=True): failed writes, errors, signals, kills, and what is refused."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.background import CheckpointCopy
from estimator.checkpoint.writer import CheckpointWriter, build_saver
from tests.checkpoint import async_run
from tests.checkpoint.async_training import AtStep, Calls, contents, make, model_with_saver
from tests.forked import Program
from tests.toy import Model, checkpoint_steps, ids_model_fn, ids_of, numbers, weight_after

v1 = tf.compat.v1


class Block(est.CheckpointSaverListener):
    """Makes the save of step 2 fail: its index cannot take the place of a folder."""

    def __init__(self, model_dir):
        self._folder = os.path.join(model_dir, "model.ckpt-2.index")

    def before_save(self, session, global_step_value):
        if global_step_value == 2:
            os.makedirs(os.path.join(self._folder, "inside"), exist_ok=True)

    def remove(self):
        os.rmdir(os.path.join(self._folder, "inside"))
        os.rmdir(self._folder)


# What goes wrong.


def test_a_failed_save_is_told_by_the_next_one_at_the_latest(tmp_path, caplog):
    block, listener = Block(tmp_path), Calls(tmp_path)
    with pytest.raises(tf.errors.OpError, match=r"model\.ckpt-2"):
        make(tmp_path).train(numbers(), steps=9, saving_listeners=[block, listener])
    assert "The checkpoint of step 2 could not be written" in caplog.text
    assert listener.calls == [("before", 0), ("after", 0), ("before", 2)]
    block.remove()
    assert checkpoint_steps(str(tmp_path)) == [0]
    with make(tmp_path) as model:
        model.train(numbers(), max_steps=9)
        assert model.get_variable_value("w") == weight_after(range(9))


@pytest.mark.parametrize("steps", [2, 3])
def test_a_failed_save_is_told_at_the_end_of_training(tmp_path, steps):
    with pytest.raises(tf.errors.OpError, match=r"model\.ckpt-2"):
        make(tmp_path).train(numbers(), steps=steps, saving_listeners=[Block(tmp_path)])


def test_the_last_step_is_saved_although_the_save_before_it_failed(tmp_path):
    """The hook stops training in the call after the save, before anything asks how that went."""
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        session.run(w.initializer)
        saver = build_saver()
        copy = CheckpointCopy(graph, saver)
        writer = CheckpointWriter(str(tmp_path), saver, listeners=[Block(tmp_path)], copy=copy)
        assert not writer.save(session, 2)
        with pytest.raises(tf.errors.OpError, match=r"model\.ckpt-2"):
            writer.end(session, 3)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")


@pytest.mark.parametrize("is_blocked", [False, True])
def test_an_error_of_training_is_raised_and_the_checkpoint_before_it_completed(
    tmp_path, caplog, is_blocked
):
    def fail():
        raise KeyError("of a hook")

    listeners = [Block(tmp_path)] if is_blocked else []
    with pytest.raises(KeyError, match="of a hook"):
        make(tmp_path).train(numbers(), [AtStep(3, fail)], steps=9, saving_listeners=listeners)
    assert ("step 2 could not be written" in caplog.text) == is_blocked
    newest = tf.train.latest_checkpoint(str(tmp_path))
    assert newest == str(tmp_path / ("model.ckpt-0" if is_blocked else "model.ckpt-2"))


def test_a_signal_ends_training_with_its_last_step_saved(tmp_path):
    hook = AtStep(3, lambda: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            make(tmp_path).train(numbers(), [hook], steps=9)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 3]


@pytest.fixture(scope="module")
def last_files(tmp_path_factory):
    """The last checkpoint of a run with synchronous saves that nothing breaks."""
    model_dir = str(tmp_path_factory.mktemp("unbroken"))
    async_run.run(model_dir, "never", is_async=False)
    return last_checkpoint(model_dir)


def last_checkpoint(model_dir):
    last = f"model.ckpt-{async_run.MAX_STEPS}."
    return {name: data for name, data in contents(model_dir).items() if name.startswith(last)}


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", ["data", "state"])
def test_a_kill_during_a_write_leaves_the_checkpoint_whole_or_absent(tmp_path, last_files, kill_at):
    killed = str(tmp_path)
    with Program(async_run.__file__, killed, kill_at) as program:
        assert program.status() == -signal.SIGKILL, program.err[-3000:]
    steps = checkpoint_steps(killed)
    assert steps in ([0], [0, 2])
    for step in steps:
        reader = tf.train.load_checkpoint(os.path.join(killed, f"model.ckpt-{step}"))
        assert reader.get_tensor("global_step") == step
        assert np.count_nonzero(reader.get_tensor("table")) <= step * 2 * async_run.NUM_COLUMNS
    with Program(async_run.__file__, killed, "never") as program:
        assert program.status() == 0, program.err[-3000:]
    assert len(last_files) == 2
    assert last_checkpoint(killed) == last_files


def test_a_run_resumes_with_the_next_element(tmp_path):
    with make(tmp_path / "broken", ids_model_fn) as model:
        model.train(shuffled_ids, steps=5)
        model.train(shuffled_ids, steps=5)
        ours = ids_of(model)
    with make(tmp_path / "unbroken", ids_model_fn, is_async=False) as model:
        model.train(shuffled_ids, steps=10)
        assert ours == ids_of(model)


def shuffled_ids():
    return tf.data.Dataset.range(40).shuffle(10, seed=5).repeat().batch(1)


# What it cannot do.


class OwnSave(v1.train.Saver):
    def save(self, *args, **kwargs):
        return super().save(*args, **kwargs)


class OwnExport(v1.train.Saver):
    def export_meta_graph(self, *args, **kwargs):
        return super().export_meta_graph(*args, **kwargs)


class NoSaver:
    """Saves, exports and restores as a Saver does, and is none."""

    def __init__(self):
        self._saver = v1.train.Saver()

    def __getattr__(self, name):
        return getattr(self._saver, name)


IS_OWN = r"`async_checkpoints` \(True\) needs a saver .*{}.* has a `save` or an `export_meta_graph`"


@pytest.mark.parametrize(
    ("make_saver", "message"),
    [
        (OwnSave, IS_OWN.format("OwnSave")),
        (OwnExport, IS_OWN.format("OwnExport")),
        (NoSaver, IS_OWN.format("NoSaver")),
        (
            lambda: v1.train.Saver(write_version=v1.train.SaverDef.V1),
            r"`async_checkpoints` \(True\) .* version 1\. Leave out its `write_version`",
        ),
    ],
)
def test_a_saver_that_cannot_be_copied_is_refused(tmp_path, make_saver, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, model_with_saver(make_saver)[0]).train(numbers(), steps=4)
    assert checkpoint_steps(str(tmp_path)) == []


def saver_of_list(iterator):
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    return v1.train.Saver([*v1.global_variables(), saveable])


def saver_of_objects(iterator):
    w, step = v1.global_variables()[1], v1.train.get_global_step()
    return tf.train.Checkpoint(w=w, step=step, iterator=iterator)


def saver_of_collection(iterator):
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    v1.add_to_collection(v1.GraphKeys.SAVEABLE_OBJECTS, saveable)


@pytest.mark.parametrize("make_saver", [saver_of_list, saver_of_objects, saver_of_collection])
def test_a_saver_of_an_iterator_is_refused_and_saves_without(tmp_path, make_saver):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        iterator = v1.data.make_initializable_iterator(tf.data.Dataset.range(5))
        init = tf.group(v1.train.Scaffold.default_local_init_op(), iterator.initializer)
        scaffold = v1.train.Scaffold(saver=make_saver(iterator), local_init_op=init)
        return spec.replace(scaffold=scaffold)

    message = (
        r"`async_checkpoints` \(True\) copies .* is a variant, .* Leave `async_checkpoints` out"
    )
    with pytest.raises(ValueError, match=message):
        make(tmp_path, model_fn).train(numbers(), steps=3)
    assert checkpoint_steps(str(tmp_path)) == []
    make(tmp_path, model_fn, is_async=False).train(numbers(), steps=3)
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 3]


def test_a_checkpoint_of_objects_is_saved(tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        saver = tf.train.Checkpoint(w=v1.global_variables()[1], step=v1.train.get_global_step())
        return spec.replace(scaffold=v1.train.Scaffold(saver=saver))

    for name in ("sync", "async"):
        make(tmp_path / name, model_fn, is_async=name == "async").train(numbers(), steps=5)
    expected, ours = contents(tmp_path / "sync"), contents(tmp_path / "async")
    assert len(ours) >= 8
    assert ours == expected


def test_a_hook_that_saves_is_refused(tmp_path):
    hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=2)
    with pytest.raises(ValueError, match=r"`async_checkpoints` .* Leave the hook out"):
        make(tmp_path).train(numbers(), [hook], steps=4)
