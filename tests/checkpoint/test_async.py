"""RunConfig(async_checkpoints=True): the files of a synchronous save, written beside training."""

import glob
import logging
import os
import threading

import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.background import CheckpointCopy
from estimator.checkpoint.input_position import InputPosition
from estimator.checkpoint.meta_graph import MetaGraph
from estimator.checkpoint.writer import build_saver
from tests.checkpoint.async_training import AtStep, Calls, contents, make, model_with_saver
from tests.toy import checkpoint_steps, numbers

v1 = tf.compat.v1
SLOW_SECS = 120  # How long a thread of a test waits for another one before the test fails.


class WaitingSaver(v1.train.Saver):
    """Waits in its second save for an event, before it names the checkpoint as the newest."""

    waits_in = 2

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.may_go_on, self.has_gone_on = threading.Event(), []

    @property
    def last_checkpoints(self):
        if len(super().last_checkpoints) == self.waits_in:
            self.has_gone_on.append(self.may_go_on.wait(SLOW_SECS))
        return super().last_checkpoints


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


# What is written.


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", ["no_strategy", "one_device", "mirrored_x2"])
@pytest.mark.parametrize("resume_input", [True, False])
def test_the_files_are_those_of_a_synchronous_save(tmp_path, loop, strategy, resume_input):
    how = {"loop": loop, "strategy": strategy, "resume_input": resume_input}
    config = {"tf_random_seed": 3, "keep_checkpoint_max": 2, "checkpoint_save_graph_def": True}
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
        position = InputPosition(str(tmp_path), [iterator], iterator.initializer, is_copied=True)
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer)
            ids(session, 7)
            assert position.copy(session)  # Replaced by the next, and never written.
            ids(session, 3)
            assert position.copy(session)
            expected = ids(session, 30)
            position.write_copy(session, 10)
            assert position.restore(session, 10)
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


class WaitingAtStart(WaitingSaver):
    waits_in = 1


def test_the_first_step_does_not_wait_for_the_checkpoint_of_the_start(tmp_path):
    model_fn, savers = model_with_saver(WaitingAtStart)
    listener, newest = Calls(tmp_path), []

    def let_go_on():
        newest.append(tf.train.latest_checkpoint(str(tmp_path)))
        savers[0].may_go_on.set()

    hook = AtStep(1, let_go_on)
    make(tmp_path, model_fn).train(numbers(), [hook], steps=3, saving_listeners=[listener])
    assert newest == [None]
    assert savers[0].has_gone_on[0]
    assert listener.calls[:3] == [("before", 0), ("after", 0), ("before", 2)]
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 3]


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
        def generate():
            yield from range(100)

        spec = tf.TensorSpec([], tf.int64)
        return tf.data.Dataset.from_generator(generate, output_signature=spec).batch(1)

    with caplog.at_level(logging.WARNING, "estimator"):
        make(tmp_path).train(input_fn, steps=4)
    assert len([r for r in caplog.records if "cannot be saved" in r.getMessage()]) == 1
    assert checkpoint_steps(str(tmp_path)) == [0, 2, 4]
    assert glob.glob(f"{tmp_path}/input-position/*") == []
