"""Accumulated batches, and what counts, saves or reads beside it, on one replica."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import checkpoint_steps, events

V1 = tf.compat.v1
LOOPS = pytest.mark.parametrize("loop", [1, 100])


def train(model_dir, model_fn, input_fn, max_steps=None, hooks=None, **config):
    model = est.Estimator(model_fn, str(model_dir), cases.make_config(**config))
    return model.train(input_fn, hooks, max_steps=max_steps)


def make_weight_model_fn(make_rate=lambda features: 1.0, **options):
    """w moves by the mean of the features, and the loss is that times w, plus the mean."""

    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        mean = tf.reduce_mean(features)
        loss = mean - w * mean
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(make_rate(features)), **options
        )
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def numbers(*values):
    return lambda: tf.data.Dataset.from_tensor_slices(np.float32(values)).batch(1)


def test_it_accumulates_in_a_session_of_the_program_too():
    with tf.Graph().as_default(), V1.Session() as session:
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        x = V1.placeholder(tf.float32, [])
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.MomentumOptimizer(1.0, 0.5), accumulate_steps=2
        )
        step = V1.train.get_or_create_global_step()
        train_op = optimizer.minimize(-w * x, step)
        session.run(V1.global_variables_initializer())
        seen = []
        for value in (1, 3, 5, 7):
            session.run(train_op, {x: value})
            seen.append(session.run((w, step)))
    # The means are 2 and 6, and the velocity after the second is 0.5 * 2 + 6.
    assert seen == [(0, 0), (2, 1), (2, 1), (9, 2)]


@LOOPS
def test_intervals_loops_and_host_calls_count_updates(loop, tmp_path):
    calls, noted = [], []

    class Count(V1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            calls.append(1)

    def host_fn(step):
        return [tf.py_function(lambda s: noted.append(int(s[0])), [step], [])]

    def input_fn():
        return tf.data.Dataset.range(1, 1000).map(lambda i: tf.cast(i, tf.float32)).batch(1)

    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        step = V1.train.get_global_step()
        before = tf.reshape(step, [1])
        loss = w * tf.reduce_mean(features)
        V1.summary.scalar("feature", features[0])
        rate = V1.train.piecewise_constant(step, [1, 3], [1.0, 10.0, 100.0])
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(rate), accumulate_steps=3
        )
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=optimizer.minimize(loss, step),
            host_call=(host_fn, [before]),
        )

    config = {"save_checkpoints_steps": 2, "save_summary_steps": 2, "keep_checkpoint_max": None}
    model = train(tmp_path, model_fn, input_fn, 5, [Count()], iterations_per_loop=loop, **config)
    assert checkpoint_steps(model.model_dir) == [0, 2, 4, 5]
    # Of the last batch of its step.
    shown = {s: v.simple_value for s, tag, v in events(model.model_dir) if tag == "feature"}
    assert shown == {**({1: 3.0} if loop == 1 else {}), 2: 6.0, 4: 12.0}
    # The means are 2, 5, 8, 11, 14; the rates those of the steps 0 to 4.
    assert model.get_variable_value("w") == -(2 + 5 + 80 + 110 + 1400)
    assert len(calls) == (15 if loop == 1 else 3)
    assert noted == [0, 1, 2, 3, 4]


@LOOPS
def test_stock_hooks_count_updates(loop, tmp_path):
    def model_fn(features, mode):
        spec = make_weight_model_fn(accumulate_steps=3)(features, mode)
        summary = V1.summary.scalar("feature", features[0])
        hook = V1.train.SummarySaverHook(2, output_dir=str(tmp_path), summary_op=summary)
        return spec._replace(training_hooks=[hook])

    config = cases.make_config(iterations_per_loop=loop, keep_checkpoint_max=None)
    model = est.Estimator(model_fn, str(tmp_path / "model"), config)
    save = V1.train.CheckpointSaverHook(model.model_dir, save_steps=2)
    model.train(numbers(*range(1, 100)), [save, V1.train.StopAtStepHook(num_steps=5)])
    assert model.train_result.global_step == 5
    assert checkpoint_steps(model.model_dir) == [0, 2, 4, 5]
    shown = {s: v.simple_value for s, tag, v in events(str(tmp_path)) if tag == "feature"}
    assert shown == {1: 3.0, 3: 9.0, 5: 15.0}  # Of each step's last batch.


@LOOPS
def test_an_accumulation_that_is_full_already_takes_one_batch(loop, tmp_path):
    config = {"iterations_per_loop": loop}
    model_fn = make_weight_model_fn(tf.reduce_mean, accumulate_steps=4)
    model = train(tmp_path, model_fn, numbers(2, 3, 4), **config)
    assert model.train_result.global_step == 0
    assert model.get_variable_value("CrossShardOptimizer/num_taken") == 3
    model_fn = make_weight_model_fn(tf.reduce_mean, accumulate_steps=2)
    model = train(tmp_path, model_fn, numbers(1, 10, 20), 2, **config)
    assert model.get_variable_value("w") == np.mean([2, 3, 4, 1]) + 20 * np.mean([10, 20])


@LOOPS
def test_the_batches_of_a_step_have_other_random_numbers(loop, tmp_path):
    def model_fn(features, mode):
        seen = V1.get_variable("seen", [40], initializer=V1.zeros_initializer(), trainable=False)
        count = V1.get_variable("count", [], tf.int32, V1.zeros_initializer(), trainable=False)
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        place = tf.reshape(count.read_value(), [1, 1])
        noted = seen.assign(
            tf.tensor_scatter_nd_update(seen.read_value(), place, tf.random.uniform([1], seed=5))
        )
        loss = w * tf.reduce_mean(tf.cast(features, tf.float32))
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(0.1), accumulate_steps=4
        )
        with tf.control_dependencies([noted]):
            counted = count.assign_add(1)
        train_op = tf.group(optimizer.minimize(loss, V1.train.get_global_step()), counted)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(
        tmp_path,
        model_fn,
        lambda: tf.data.Dataset.range(1000).batch(1),
        10,
        iterations_per_loop=loop,
        tf_random_seed=1,
    )
    assert len(np.unique(model.get_variable_value("seen"))) == 40


@LOOPS
def test_what_waits_for_the_train_op_sees_the_weights_after_it(loop, tmp_path):
    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        seen = V1.get_variable("seen", [], initializer=V1.zeros_initializer(), trainable=False)
        loss = -w * tf.reduce_mean(tf.cast(features, tf.float32))
        optimizer = est.tpu.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(1.0), accumulate_steps=3
        )
        train_op = optimizer.minimize(loss, V1.train.get_global_step())
        with tf.control_dependencies([train_op]):
            train_op = seen.assign_add(w.read_value())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(
        tmp_path,
        model_fn,
        lambda: tf.data.Dataset.from_tensors(tf.ones([1], tf.int64)).repeat(6),
        2,
        iterations_per_loop=loop,
    )
    # w is 0, 0, 1, 1, 1, 2 after each batch.
    assert model.get_variable_value("seen") == 5


@LOOPS
def test_a_nan_within_an_accumulation_names_its_step_and_is_not_saved(loop, tmp_path):
    model_fn = make_weight_model_fn(accumulate_steps=3)
    input_fn = numbers(1, 1, 1, 2, 2, 2, 3, np.nan, 3, 4, 4, 4)
    config = {"iterations_per_loop": loop, "save_checkpoints_steps": 1}
    with pytest.raises(V1.train.NanLossDuringTrainingError, match="loss of step 3 is nan"):
        train(tmp_path, model_fn, input_fn, **config)
    assert checkpoint_steps(str(tmp_path)) == [0, 1, 2]


@LOOPS
def test_a_skipped_batch_is_left_out_of_the_mean_of_its_step(loop, tmp_path):
    model_fn = make_weight_model_fn(accumulate_steps=3)
    # In the second step two are left; in the third the last is bad, so two wait for the fourth.
    values = [1, 2, 3, 4, np.nan, 6, 7, 8, np.nan, 10, 11, 12]
    config = {"iterations_per_loop": loop, "nan_policy": "skip"}
    model = train(tmp_path, model_fn, numbers(*values), 4, **config)
    assert model.train_result.skipped_steps == 2
    assert model.train_result.global_step == 4
    expected = 2 + 5 + np.mean([7, 8, 10, 11, 12])
    assert model.get_variable_value("w") == pytest.approx(expected, abs=1e-5)


@LOOPS
def test_a_rate_that_needs_a_batch_leaves_the_last_step_open(loop, tmp_path, caplog):
    model_fn = make_weight_model_fn(tf.reduce_mean, accumulate_steps=2)
    model = train(tmp_path, model_fn, numbers(1, 1, 1), iterations_per_loop=loop)
    assert model.train_result.global_step == 1
    assert "The input ends with 1 batches of a step of 2" in caplog.text
    model.train(numbers(1, 1, 1))
    assert model.train_result.global_step == 3
    assert model.get_variable_value("w") == 3


@LOOPS
def test_two_optimizers_that_accumulate_apart(loop, tmp_path):
    def model_fn(features, mode):
        a = V1.get_variable("a", [], initializer=V1.zeros_initializer())
        b = V1.get_variable("b", [], initializer=V1.zeros_initializer())
        mean = tf.reduce_mean(features)
        ops = []
        for variable, size, step in ((a, 2, None), (b, 4, V1.train.get_global_step())):
            optimizer = est.tpu.CrossShardOptimizer(
                V1.train.GradientDescentOptimizer(1.0), accumulate_steps=size
            )
            ops.append(optimizer.minimize(-variable * mean, step, var_list=[variable]))
        return est.EstimatorSpec(mode, loss=mean + 0 * a * b, train_op=tf.group(ops))

    model = train(tmp_path, model_fn, numbers(*range(1, 9)), 2, iterations_per_loop=loop)
    assert model.get_variable_value("a") == 1.5 + 3.5 + 5.5 + 7.5
    assert model.get_variable_value("b") == 2.5 + 6.5


@LOOPS
@pytest.mark.parametrize("strategy", [None, "mirrored"])
@pytest.mark.parametrize("waits_for", ["an update", "a draw", "nothing"])
def test_minimize_may_wait_for_what_depends_on_a_seed(waits_for, strategy, loop, tmp_path):
    """As a batch norm after a dropout has it: what is drawn depends on the batches so far."""

    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        moving = V1.get_variable(
            "moving", [], trainable=False, aggregation=tf.VariableAggregation.MEAN
        )
        drawn = tf.nn.dropout(tf.ones([8]) * tf.reduce_mean(features), rate=0.5)
        loss = -w * tf.reduce_mean(drawn)
        waits = {
            "an update": lambda: V1.assign_sub(moving, 0.1 * (moving - tf.reduce_mean(drawn))),
            "a draw": lambda: drawn,
            "nothing": tf.no_op,
        }[waits_for]()
        optimizer = est.CrossShardOptimizer(
            V1.train.GradientDescentOptimizer(1.0), accumulate_steps=2
        )
        with tf.control_dependencies([waits]):
            train_op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = {"tf_random_seed": 4, "iterations_per_loop": loop, "resume_input": True}
    if strategy:
        config |= {"strategy": strategy, "num_replicas": 2}
    data = numbers(*range(1, 9 if strategy is None else 17))
    made = [tmp_path / "a", tmp_path / "b"]
    train(made[0], model_fn, data, **config)
    for max_steps in (3, None):  # In two calls: the draws are those of the one call.
        train(made[1], model_fn, data, max_steps=max_steps, **config)
    weights = [tf.train.load_variable(str(path), "w") for path in made]
    assert [tf.train.load_variable(str(path), "global_step") for path in made] == [4, 4]
    assert weights[0] == weights[1] != 0
