"""RunConfig(async_checkpoints=True): the files of a synchronous save, written beside training."""

import glob
import logging
import os
import signal
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.background import CheckpointCopy
from estimator.checkpoint.input_position import build_input_position
from estimator.checkpoint.meta_graph import MetaGraph
from estimator.checkpoint.writer import CheckpointWriter, build_saver
from tests.checkpoint import async_run
from tests.conformance import cases
from tests.forked import Program
from tests.toy import Model, checkpoint_steps, ids_model_fn, ids_of, numbers, weight_after

v1 = tf.compat.v1
SLOW_SECS = 120  # How long a thread of a test waits for another one before the test fails.


def make(model_dir, model_fn=None, *, strategy="no_strategy", loop=1, is_async=True, **config):
    config = {"save_checkpoints_steps": 2, "resume_input": True, **config}
    run_config = cases.make_config(
        **cases.STRATEGIES[strategy],
        iterations_per_loop=loop,
        async_checkpoints=is_async,
        **config,
    )
    return est.Estimator(model_fn or Model(), str(model_dir), run_config)


class Calls(est.CheckpointSaverListener):
    """Notes the calls, in which thread they come, and which checkpoints are there then."""

    def __init__(self, model_dir):
        self.model_dir = str(model_dir)
        self.calls, self.threads, self.newest = [], set(), {}

    def before_save(self, session, global_step_value):
        self._note("before", global_step_value)

    def after_save(self, session, global_step_value):
        self._note("after", global_step_value)
        self.newest[int(global_step_value)] = tf.train.latest_checkpoint(self.model_dir)

    def end(self, session, global_step_value):
        self._note("end", global_step_value)

    def _note(self, what, step):
        self.calls.append((what, int(step)))
        self.threads.add(threading.current_thread())


class AtStep(v1.train.SessionRunHook):
    """Calls a function in the session call that reaches a step."""

    def __init__(self, step, function):
        self._at, self._function = step, function

    def begin(self):
        self._step = v1.train.get_global_step().read_value()

    def after_run(self, run_context, run_values):
        if run_context.session.run(self._step) == self._at:
            self._function()


class WaitingSaver(v1.train.Saver):
    """Waits in its second save for an event, before it names the checkpoint as the newest."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.may_go_on, self.has_gone_on = threading.Event(), []

    @property
    def last_checkpoints(self):
        if len(super().last_checkpoints) == 2:
            self.has_gone_on.append(self.may_go_on.wait(SLOW_SECS))
        return super().last_checkpoints


def model_with_saver(make_saver):
    """A model_fn of one weight, and the list of the savers that it makes."""
    savers = []

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        savers.append(make_saver())
        return spec.replace(scaffold=v1.train.Scaffold(saver=savers[-1]))

    return model_fn, savers


def normalized_model_fn(features, labels, mode):
    """Moving statistics that each replica updates by itself, and Adam's slots."""
    x = tf.cast(tf.reshape(features, [-1, 1]), tf.float32)
    normalized = tf.keras.layers.BatchNormalization()(x, training=mode == est.ModeKeys.TRAIN)
    w = v1.get_variable("w", [1, 3])
    loss = tf.reduce_mean(tf.square(normalized @ w - x))
    step = v1.train.get_global_step()
    train_op = None
    if mode == est.ModeKeys.TRAIN:
        train_op = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.1)).minimize(loss, step)
    return est.EstimatorSpec(mode, predictions=normalized, loss=loss, train_op=train_op)


def shuffled():
    return tf.data.Dataset.range(40).shuffle(10, seed=5).repeat().batch(4, drop_remainder=True)


def contents(model_dir):
    """The files of checkpoints and of positions, but for the graphs, by name."""
    names = [*glob.glob(f"{model_dir}/model.ckpt-*"), *glob.glob(f"{model_dir}/input-position/*")]
    files = {}
    for name in names:
        if not name.endswith(".meta"):
            with open(name, "rb") as file:
                files[os.path.relpath(name, model_dir)] = file.read()
    return files


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


# What is written.


@pytest.mark.pairwise
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", ["no_strategy", "one_device", "mirrored_x2"])
@pytest.mark.parametrize("resume_input", [True, False])
def test_the_files_are_those_of_a_synchronous_save(tmp_path, loop, strategy, resume_input):
    how = {"loop": loop, "strategy": strategy, "resume_input": resume_input}
    config = {"tf_random_seed": 3, "keep_checkpoint_max": 2}
    for name in ("sync", "async"):
        with make(
            tmp_path / name, normalized_model_fn, is_async=name == "async", **how, **config
        ) as model:
            model.train(shuffled, steps=7)
    expected, ours = contents(tmp_path / "sync"), contents(tmp_path / "async")
    assert set(ours) == set(expected)
    assert sum(name.endswith(".index") for name in ours) == 2 + resume_input
    assert [name for name in ours if ours[name] != expected[name]] == []
    states = [tf.train.get_checkpoint_state(str(tmp_path / name)) for name in ("sync", "async")]
    names = [[os.path.basename(p) for p in s.all_model_checkpoint_paths] for s in states]
    assert names == [["model.ckpt-6", "model.ckpt-7"]] * 2
    with (
        tf.Graph().as_default(),
        v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session,
    ):
        path = str(tmp_path / "async" / "model.ckpt-6")
        v1.train.import_meta_graph(path + ".meta").restore(session, path)
        assert session.run("global_step/Read/ReadVariableOp:0") == 6


@pytest.mark.parametrize("size", [4, 200_000])
@pytest.mark.parametrize("kind", ["dense", "sparse", "ref", "table"])
def test_a_copy_holds_the_values_of_its_step_whatever_changes_them(tmp_path, kind, size):
    with tf.Graph().as_default() as graph:
        is_resource = kind != "ref"
        w = v1.get_variable(
            "w", [size], initializer=v1.ones_initializer(), use_resource=is_resource
        )
        change = w.assign_add(tf.ones([size]))
        if kind == "sparse":
            change = w.scatter_add(tf.IndexedSlices([1.0, 1.0], [0, 2]))
        if kind == "table":
            table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, -1.0)
            fill, change = table.insert([1], [10.0]), table.insert([1, 2], [11.0, 12.0])
        saver = v1.train.Saver()
        copy = CheckpointCopy(graph, saver)
        with v1.Session(graph=graph) as session:
            session.run([v1.global_variables_initializer(), *([fill] if kind == "table" else [])])
            session.run(change if kind == "sparse" else [])  # Its reads are copies from then on.
            saver.save(session, str(tmp_path / "now"), write_meta_graph=False)
            copied = copy.take(session)
            session.run(change)
            saver.save(copied, str(tmp_path / "copied"), write_meta_graph=False)
            saver.save(session, str(tmp_path / "later"), write_meta_graph=False)
    data = {
        name: (tmp_path / f"{name}.data-00000-of-00001").read_bytes()
        for name in ("now", "copied", "later")
    }
    assert data["copied"] == data["now"] != data["later"]


def test_a_copied_position_is_that_of_its_step(tmp_path):
    def ids(session, count):
        return [session.run(element) for _ in range(count)]

    with tf.Graph().as_default() as graph:
        data = tf.data.Dataset.range(100).shuffle(20, seed=1).prefetch(2)
        iterator = v1.data.make_initializable_iterator(data)
        element = iterator.get_next()
        position = build_input_position([iterator], iterator.initializer, is_copied=True)
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer)
            ids(session, 7)
            assert position.copy(session)  # Replaced by the next, and never written.
            ids(session, 3)
            assert position.copy(session)
            expected = ids(session, 30)
            position.write_copy(session, str(tmp_path), 10)
            assert position.restore(session, str(tmp_path), 10)
            assert ids(session, 30) == expected


def test_a_meta_file_is_exported_again_when_the_graph_has_changed():
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", [])
        meta = MetaGraph(build_saver())
        first = meta.content(graph)
        assert meta.content(graph) is first
        v1.add_to_collection("mine", w)
        with_collection = meta.content(graph)
        assert "mine" in v1.MetaGraphDef.FromString(with_collection).collection_def
        tf.constant(1, name="new")
        with_op = v1.MetaGraphDef.FromString(meta.content(graph))
        assert "new" in [node.name for node in with_op.graph_def.node]


# When it is written, and who hears of it.


@pytest.mark.parametrize("loop", [1, 100])
def test_listeners_hear_of_each_checkpoint_once_in_order_when_it_is_whole(tmp_path, loop):
    listener = Calls(tmp_path)
    make(tmp_path, loop=loop).train(numbers(), steps=5, saving_listeners=[listener])
    saves = [(what, step) for step in (0, 2, 4, 5) for what in ("before", "after")]
    assert listener.calls == [*saves, ("end", 5)]
    assert listener.threads == {threading.current_thread()}
    paths = {step: str(tmp_path / f"model.ckpt-{step}") for step in (0, 2, 4, 5)}
    assert listener.newest == paths


def test_training_goes_on_while_a_checkpoint_is_written_and_the_next_save_waits(tmp_path):
    """The save of step 2 cannot end before step 3 does, nor that of step 4 begin before it."""
    model_fn, savers = model_with_saver(WaitingSaver)
    listener, newest = Calls(tmp_path), []

    def let_go_on():
        newest.append(tf.train.latest_checkpoint(str(tmp_path)))
        savers[0].may_go_on.set()

    hook = AtStep(3, let_go_on)
    make(tmp_path, model_fn).train(numbers(), [hook], steps=6, saving_listeners=[listener])
    assert newest == [str(tmp_path / "model.ckpt-0")]
    assert savers[0].has_gone_on[0]
    assert listener.calls[2:5] == [("before", 2), ("after", 2), ("before", 4)]
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 4, 6]


def test_train_returns_when_the_last_checkpoint_is_whole(tmp_path):
    """It is the one of the interval, which a thread writes."""
    model_fn, savers = model_with_saver(WaitingSaver)

    class LetGoOn(est.CheckpointSaverListener):
        """Lets the thread end when it is waited for."""

        def before_save(self, session, global_step_value):
            if global_step_value == 2:
                threading.Timer(0.2, savers[0].may_go_on.set).start()

    make(tmp_path, model_fn).train(numbers(), steps=2, saving_listeners=[LetGoOn()])
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")


@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("is_async", [False, True])
def test_train_and_evaluate_evaluates_each_checkpoint_once(tmp_path, is_async, loop):
    class Steps(v1.train.SessionRunHook):
        steps = []

        def end(self, session):
            self.steps.append(int(session.run(v1.train.get_global_step())))

    hook = Steps()
    hook.steps = []
    model = make(tmp_path, loop=loop, is_async=is_async)
    eval_spec = est.EvalSpec(numbers(3), hooks=[hook], every_steps=2)
    est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=7), eval_spec)
    assert hook.steps == [2, 4, 6, 7]


def test_a_listener_stops_training(tmp_path):
    class Stop(est.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            return global_step_value == 2

    model = make(tmp_path)
    model.train(numbers(), steps=100, saving_listeners=[Stop()])
    assert model.train_result.reason == "listener"
    assert model.train_result.global_step in (3, 4)  # The next save at the latest.


def test_the_position_of_an_input_that_has_ended_is_not_left(tmp_path):
    make(tmp_path, save_checkpoints_steps=3).train(numbers(6))
    assert checkpoint_steps(str(tmp_path)) == [0, 3, 6]
    assert glob.glob(f"{tmp_path}/input-position/*") == []


def test_an_input_whose_position_cannot_be_saved_gives_a_warning(tmp_path, caplog):
    def input_fn():
        return numbers()().map(lambda x: tf.numpy_function(lambda x: x, [x], tf.int64))

    with caplog.at_level(logging.WARNING, "estimator"):
        make(tmp_path).train(input_fn, steps=4)
    assert len([r for r in caplog.records if "cannot be saved" in r.getMessage()]) <= 1
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 4]


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


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", ["data", "state"])
def test_a_kill_during_a_write_leaves_the_checkpoint_whole_or_absent(tmp_path, kill_at):
    killed, unbroken = str(tmp_path / "killed"), str(tmp_path / "unbroken")
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
    async_run.run(unbroken, "never", is_async=False)
    ours, expected = contents(killed), contents(unbroken)
    last = [name for name in expected if name.startswith(f"model.ckpt-{async_run.MAX_STEPS}.")]
    assert len(last) == 2
    assert all(ours[name] == expected[name] for name in last)


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


@pytest.mark.parametrize(
    ("make_saver", "message"),
    [
        (OwnSave, r"`async_checkpoints` \(True\) needs a saver .* has a `save`"),
        (
            lambda: v1.train.Saver(write_version=v1.train.SaverDef.V1),
            r"`async_checkpoints` \(True\) .* version 1\. Leave out its `write_version`",
        ),
    ],
)
def test_a_saver_that_cannot_be_copied_is_refused(tmp_path, make_saver, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, model_with_saver(make_saver)[0]).train(numbers(), steps=4)


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
