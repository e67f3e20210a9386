"""`InMemoryEvaluatorHook`: evaluates the weights of a training that runs, in memory."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est
from tests.conformance import test_layers as layers
from tests.conformance.cases import STRATEGIES
from tests.toy import Model, checkpoint_steps, events, modes, numbers, weight_after

v1 = tf.compat.v1
Hook = est.experimental.InMemoryEvaluatorHook

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 100])


@pytest.fixture
def make(tmp_path):
    """Makes Estimators in directories of one folder, and closes them."""
    made = []

    def make(model_fn=None, name="model", **config):
        config = {"save_summary_steps": None, "save_checkpoints_secs": None, **config}
        run_config = est.RunConfig(**config)
        made.append(est.Estimator(model_fn or Model(), str(tmp_path / name), run_config))
        return made[-1]

    yield make
    for model in made:
        model.close()


def evaluations(model, name=None):
    """The metrics by step, from the event file."""
    found = {}
    for step, tag, value in events(model.eval_dir(name)):
        found.setdefault(step, {})[tag] = value.simple_value
    return found


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_evaluates_the_weights_of_its_steps_and_of_the_last(make, strategy, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop, **STRATEGIES[strategy])
    hook = Hook(model, numbers(4, start=1), every_n_iter=8)
    model.train(numbers(), [hook], max_steps=20)
    found = evaluations(model)
    assert list(found) == [0, 8, 16, 20]
    num_replicas = STRATEGIES[strategy].get("num_replicas", 1)
    for step, metrics in found.items():
        w = weight_after(np.arange(step * num_replicas).reshape(step, num_replicas))
        loss = np.mean(np.square(w - np.arange(1, 5))) / 2
        np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
        assert metrics["mean"] == 2.5
    assert checkpoint_steps(model.model_dir) == [20]  # Of the end of training.


def test_it_changes_nothing_in_training_and_leaves_no_file_but_the_events(make):
    with_hook, without = make(name="with"), make(name="without")
    with_hook.train(numbers(), [Hook(with_hook, numbers(3), every_n_iter=5)], max_steps=12)
    without.train(numbers(), max_steps=12)
    assert with_hook.get_variable_value("w") == without.get_variable_value("w")
    assert set(os.listdir(with_hook.model_dir)) - set(os.listdir(without.model_dir)) == {
        "eval",
        *(n for n in os.listdir(with_hook.model_dir) if n.startswith("events")),
    }


def test_neither_graph_grows_with_the_evaluations(make):
    class CountOps(v1.train.SessionRunHook):
        def __init__(self):
            self.counts = []

        def end(self, session):
            self.counts.append(len(session.graph.get_operations()))

    model, evaluating = make(), CountOps()
    hook = Hook(model, numbers(3), hooks=[evaluating], every_n_iter=2)

    class Finalize(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            session.graph.finalize()

    model.train(numbers(), [Finalize(), hook], max_steps=10)
    assert len(evaluating.counts) == 6
    assert len(set(evaluating.counts[1:])) == 1


@LOOPS
def test_a_resumed_training_is_evaluated_where_it_starts(make, iterations_per_loop):
    for max_steps in (5, 12):
        model = make(iterations_per_loop=iterations_per_loop)
        model.train(numbers(), [Hook(model, numbers(2), every_n_iter=10)], max_steps=max_steps)
        model.close()
    steps = [step for step, tag, _ in events(model.eval_dir()) if tag == "loss"]
    assert steps == [0, 5, 5, 10, 12]


@LOOPS
def test_an_input_that_ends_within_a_loop_has_its_last_step_evaluated(make, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop)
    model.train(numbers(23), [Hook(model, numbers(2), every_n_iter=10)])
    assert list(evaluations(model)) == [0, 10, 20, 23]


def test_after_it_evaluate_restores_the_checkpoint_again(make):
    model = make()
    model.train(numbers(), max_steps=4)
    at_4 = model.evaluate(numbers(3))
    path = model.latest_checkpoint()
    model.train(numbers(), [Hook(model, numbers(3), every_n_iter=3)], max_steps=6)
    assert model.evaluate(numbers(3), checkpoint_path=path) == at_4
    in_memory = evaluations(model)[6]
    assert model.evaluate(numbers(3))["loss"] == np.float32(in_memory["loss"])
    assert modes(model) == ["train", "eval", "train"]


def test_name_steps_and_hooks_are_those_of_evaluate(make):
    class Count(v1.train.SessionRunHook):
        calls = 0

        def after_run(self, run_context, run_values):
            self.calls += 1

    model, count = make(), Count()
    hook = Hook(model, numbers(), steps=3, hooks=[count], name="quick", every_n_iter=6)
    model.train(numbers(), [hook], max_steps=12)
    assert count.calls == 3 * 3
    assert {step: row["mean"] for step, row in evaluations(model, "quick").items()} == {
        0: 1.0,
        6: 1.0,
        12: 1.0,
    }


FLAVOURS = {
    "by hand": layers.v1_logits,
    "Keras 3": layers.make_layers_logits(keras.layers),
    "tf-keras": layers.make_layers_logits(tf_keras.layers),
}


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("strategy", layers.REPLICAS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_moving_statistics_are_those_that_a_checkpoint_would_hold(
    make, flavour, strategy, iterations_per_loop
):
    def model_fn(features, labels, mode):
        logits, _, _ = FLAVOURS[flavour](features, mode == est.ModeKeys.TRAIN)
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        )
        train_op = None
        if mode == est.ModeKeys.TRAIN:
            train_op = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = make(
        model_fn,
        iterations_per_loop=iterations_per_loop,
        tf_random_seed=1,
        save_checkpoints_steps=4,
        **STRATEGIES[strategy],
    )
    hook = Hook(model, layers.input_fn, name="memory", every_n_iter=4)
    model.train(layers.input_fn, [hook], max_steps=7)
    found = evaluations(model, "memory")
    assert list(found) == [0, 4, 7]
    for step in (4, 7):
        path = os.path.join(model.model_dir, f"model.ckpt-{step}")
        expected = model.evaluate(layers.input_fn, checkpoint_path=path)
        assert np.float32(found[step]["loss"]) == expected["loss"]


def averaged(features, mode):
    """Trains `w`, and evaluates its moving average: the Scaffold's saver puts it in its place."""
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    average = tf.train.ExponentialMovingAverage(0.5)
    if mode == est.ModeKeys.TRAIN:
        step = v1.train.get_global_step()
        with (
            tf.control_dependencies([w.assign_add(1.0)]),
            tf.control_dependencies([average.apply([w])]),
        ):
            return est.EstimatorSpec(mode, loss=w * 1.0, train_op=step.assign_add(1))
    saver = v1.train.Saver({average.average_name(w): w, "global_step": v1.train.get_global_step()})
    scaffold = v1.train.Scaffold(saver=saver)
    return est.EstimatorSpec(mode, loss=w * 1.0, scaffold=scaffold)


def test_the_saver_of_a_scaffold_chooses_and_renames_the_variables(make):
    model = make(averaged)
    model.train(numbers(), [Hook(model, numbers(1), every_n_iter=2)], max_steps=4)
    losses = {step: row["loss"] for step, row in evaluations(model).items()}
    expected = [0.0]
    average = 0.0
    for w in range(1, 5):
        average = 0.5 * average + 0.5 * w
        expected.append(average)
    assert losses == {step: expected[step] for step in (0, 2, 4)}
    assert model.evaluate(numbers(1))["loss"] == expected[4]


def test_the_saver_of_a_scaffold_may_save_by_objects(make):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        w, step = v1.trainable_variables()[0], v1.train.get_global_step()
        checkpoint = tf.train.Checkpoint(weight=w, step=step)
        return spec.replace(scaffold=v1.train.Scaffold(saver=checkpoint))

    model = make(model_fn)
    model.train(numbers(), [Hook(model, numbers(1), every_n_iter=2)], max_steps=4)
    losses = {step: row["loss"] for step, row in evaluations(model).items()}
    expected = {step: weight_after(range(step)) ** 2 / 2 for step in (0, 2, 4)}
    assert losses == pytest.approx(expected, rel=1e-6)


def test_a_saver_of_the_users_own_is_refused(make):
    class OwnSaver:
        def __init__(self):
            saver = v1.train.Saver()
            self.saver_def, self.save, self.restore = saver.saver_def, saver.save, saver.restore

    def model_fn(features, labels, mode):
        scaffold = v1.train.Scaffold(saver=OwnSaver())
        return Model()(features, labels, mode).replace(scaffold=scaffold)

    model = make(model_fn)
    with pytest.raises(
        TypeError, match="saver of the Scaffold .*OwnSaver.* must be a tf.compat.v1"
    ):
        model.train(numbers(), [Hook(model, numbers(1))], max_steps=4)


def test_a_variable_of_evaluation_alone_is_named(make):
    def model_fn(features, mode):
        if mode == est.ModeKeys.EVAL:
            v1.get_variable("threshold", [])
        return Model()(features, None, mode)

    model = make(model_fn)
    with pytest.raises(ValueError, match="variables that the training lacks: threshold"):
        model.train(numbers(), [Hook(model, numbers(1), every_n_iter=2)], max_steps=4)


def test_an_init_fn_of_evaluation_is_refused(tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        if mode != est.ModeKeys.EVAL:
            return spec
        scaffold = tf.compat.v1.train.Scaffold(init_fn=lambda scaffold, session: None)
        return spec.replace(scaffold=scaffold)

    model = est.Estimator(model_fn, tmp_path)
    hook = est.experimental.InMemoryEvaluatorHook(model, numbers(3))
    with pytest.raises(ValueError, match="in mode EVAL has an `init_fn` .* does not run"):
        model.train(numbers(), hooks=[hook], steps=1)
