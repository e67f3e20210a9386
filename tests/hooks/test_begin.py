"""What a hook or a listener adds to the graph in `begin` works as if the model had made it."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import RATE, Model, events, numbers

v1 = tf.compat.v1

TRAININGS = pytest.mark.parametrize(
    "config",
    [
        {},
        {"iterations_per_loop": 5},
        {"strategy": "mirrored", "num_replicas": 2},
        {"strategy": "mirrored", "num_replicas": 2, "iterations_per_loop": 5},
    ],
    ids=str,
)


class CountsCalls(est.SessionRunHook):
    """Adds 1 to a variable of its own in each session call; keeps what it then holds."""

    def __init__(self, collection=v1.GraphKeys.GLOBAL_VARIABLES):
        self.collection = collection
        self.counts = []

    def begin(self):
        counter = v1.get_variable(
            "calls",
            [],
            initializer=v1.zeros_initializer(),
            trainable=False,
            collections=[self.collection],
        )
        self.add = counter.assign_add(1.0)

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.add)

    def after_run(self, run_context, run_values):
        self.counts.append(run_values.results)


def make(tmp_path, model_fn=None, **config):
    return est.Estimator(model_fn or Model(), str(tmp_path), est.RunConfig(**config))


def train(trained, steps, hook):
    trained.train(numbers(), steps=steps, hooks=[hook])
    return hook.counts


@TRAININGS
def test_a_variable_of_a_hook_is_initialized_saved_and_restored(tmp_path, config):
    loop = config.get("iterations_per_loop", 1)
    assert train(make(tmp_path, **config), 2 * loop, CountsCalls()) == [1, 2]
    trained = make(tmp_path, **config)
    assert trained.get_variable_value("calls") == 2
    assert train(trained, 2 * loop, CountsCalls()) == [3, 4]


@TRAININGS
def test_a_variable_of_a_listener_is_initialized(tmp_path, config):
    class Counts(v1.train.CheckpointSaverListener):
        def begin(self):
            self.add = v1.get_variable("saves", initializer=5.0, trainable=False).assign_add(1.0)

        def before_save(self, session, global_step_value):
            session.run(self.add)

    trained = make(tmp_path, **config)
    trained.train(numbers(), steps=5, saving_listeners=[Counts()])
    assert trained.get_variable_value("saves") == 7  # Of steps 0 and 5.


@TRAININGS
def test_a_summary_of_a_hook_is_recorded_with_those_of_the_model(tmp_path, config):
    class Summarizes(est.SessionRunHook):
        def begin(self):
            v1.summary.scalar("of_hook", tf.constant(3.0))

    def model_fn(features, labels, mode):
        v1.summary.scalar("of_model", tf.constant(4.0))
        return Model()(features, labels, mode)

    for fn, expected in ((model_fn, {"of_hook", "of_model"}), (Model(), {"of_hook"})):
        directory = tmp_path / fn.__class__.__name__
        trained = make(directory, fn, save_summary_steps=5, **config)
        trained.train(numbers(), steps=10, hooks=[Summarizes()])
        found = [(s, t) for s, t, _ in events(str(directory)) if t.startswith("of_")]
        steps = (1, 5, 10) if config.get("iterations_per_loop", 1) == 1 else (5, 10)
        assert sorted(found) == sorted((s, t) for s in steps for t in expected)


def test_a_summary_op_of_the_scaffold_is_all_that_is_recorded(tmp_path):
    class Summarizes(est.SessionRunHook):
        def begin(self):
            v1.summary.scalar("of_hook", tf.constant(3.0))

    def model_fn(features, labels, mode):
        chosen = v1.summary.scalar("chosen", tf.constant(4.0))
        spec = Model()(features, labels, mode)
        return spec.replace(scaffold=v1.train.Scaffold(summary_op=chosen))

    trained = make(tmp_path, model_fn, save_summary_steps=1)
    trained.train(numbers(), steps=1, hooks=[Summarizes()])
    tags = {tag for _, tag, _ in events(str(tmp_path))}
    assert {"chosen"} == tags & {"chosen", "of_hook"}


def test_a_hook_finds_the_saver_of_the_model_among_the_savers(tmp_path):
    class Saves(est.SessionRunHook):
        def begin(self):
            (self.saver,) = v1.get_collection(v1.GraphKeys.SAVERS)

        def end(self, session):
            self.saver.save(session, str(tmp_path / "own"))

    make(tmp_path).train(numbers(), steps=2, hooks=[Saves(), CountsCalls()])
    names = {name for name, _ in tf.train.list_variables(str(tmp_path / "own"))}
    assert names == {"w", "calls", "global_step"}


def test_a_variable_of_a_hook_is_placed_like_those_of_the_model(tmp_path):
    devices = []

    class MakesVariable(est.SessionRunHook):
        def begin(self):
            devices.append(v1.get_variable("of_hook", initializer=1.0, trainable=False).device)

    trained = make(tmp_path, device_fn=lambda op: "/cpu:0" if op.type == "VarHandleOp" else "")
    trained.train(numbers(), steps=1, hooks=[MakesVariable()])
    assert [tf.DeviceSpec.from_string(d).device_type for d in devices] == ["CPU"]


def test_a_variable_of_a_hook_is_no_part_of_a_warm_start(tmp_path):
    make(tmp_path / "old").train(numbers(start=8), steps=1)

    class Trainable(est.SessionRunHook):
        def begin(self):
            v1.get_variable("of_hook", initializer=7.0)

    new = est.Estimator(Model(), str(tmp_path / "new"), warm_start_from=str(tmp_path / "old"))
    new.train(numbers(start=2), steps=1, hooks=[Trainable()])
    assert new.get_variable_value("of_hook") == 7
    assert new.get_variable_value("w") == 8 * RATE


@pytest.mark.each_value
@pytest.mark.parametrize("verb", ["evaluate", "predict"])
@pytest.mark.parametrize(
    "collection", [v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES]
)
def test_a_variable_of_a_hook_of_an_evaluation_or_prediction_is_initialized(
    tmp_path, verb, collection
):
    hook = CountsCalls(collection)
    list(getattr(make(tmp_path).train(numbers(), steps=2), verb)(numbers(3), hooks=[hook]))
    assert hook.counts == [1, 2, 3]


def test_a_variable_that_the_checkpoint_holds_is_restored_for_a_hook_of_an_evaluation(tmp_path):
    trained = make(tmp_path)
    train(trained, 4, CountsCalls())
    hook = CountsCalls()
    trained.evaluate(numbers(2), hooks=[hook])
    assert hook.counts == [5, 6]


def test_a_table_of_a_hook_of_an_evaluation_is_filled(tmp_path):
    class LooksUp(est.SessionRunHook):
        def begin(self):
            pairs = tf.lookup.KeyValueTensorInitializer(["a"], np.int64([7]))
            self.found = tf.lookup.StaticHashTable(pairs, -1).lookup(tf.constant("a"))

        def after_create_session(self, session, coord):
            self.value = session.run(self.found)

    hook = LooksUp()
    make(tmp_path).train(numbers(), steps=1).evaluate(numbers(2), hooks=[hook])
    assert hook.value == 7
