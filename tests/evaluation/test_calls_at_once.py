"""Calls of one estimator at once, from threads and from hooks: each as if it were alone."""

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1
NUM_STEPS = 6
NAMES = ("loss", "mean", "global_step")


def model_fn(features, labels, mode):
    """The loss is w, which grows by 1 a step; predictions are w and the feature."""
    w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"w": w + 0 * features, "x": features})
    train_op = tf.group(w.assign_add(1.0), V1.train.get_global_step().assign_add(1))
    metrics = {"mean": V1.metrics.mean(features)}
    return est.EstimatorSpec(mode, loss=w + 0, train_op=train_op, eval_metric_ops=metrics)


def constant(value, count=8, batch_size=2):
    def input_fn():
        return tf.data.Dataset.from_tensors(np.float32(value)).repeat(count).batch(batch_size)

    return input_fn


def training_input():
    return tf.data.Dataset.from_tensors(np.float32(0)).repeat().batch(1)


@pytest.fixture
def trained(tmp_path):
    config = est.RunConfig(str(tmp_path), save_checkpoints_steps=1, keep_checkpoint_max=None)
    with est.Estimator(model_fn, config=config) as model:
        yield model.train(training_input, max_steps=NUM_STEPS)


def path_of(trained, step):
    return f"{trained.model_dir}/model.ckpt-{step}"


def evaluated(trained, value, step, batch_size=2):
    found = trained.evaluate(
        constant(value, batch_size=batch_size), checkpoint_path=path_of(trained, step), name="x"
    )
    return [float(found[name]) for name in NAMES]


class Nested(est.SessionRunHook):
    """Makes a call after each batch."""

    def __init__(self, call):
        self.call, self.found = call, []

    def after_run(self, run_context, run_values):
        self.found.append(self.call())


@pytest.mark.parametrize("step", [2, NUM_STEPS], ids=["other weights", "the same weights"])
def test_a_hook_of_an_evaluation_may_evaluate(trained, step):
    hook = Nested(lambda: evaluated(trained, 50.0, step))
    found = trained.evaluate(constant(3.0), hooks=[hook])
    assert [float(found[name]) for name in NAMES] == [NUM_STEPS, 3.0, NUM_STEPS]
    assert hook.found == [[step, 50.0, step]] * 4
    assert evaluated(trained, 3.0, NUM_STEPS) == [NUM_STEPS, 3.0, NUM_STEPS]


def test_a_hook_of_an_evaluation_may_evaluate_more_kinds_of_input_than_are_kept(trained):
    def call():
        return [evaluated(trained, np.full([n], 2.0), NUM_STEPS) for n in range(1, 8)]

    hook = Nested(call)
    found = trained.evaluate(constant(3.0), hooks=[hook])
    assert [float(found[name]) for name in NAMES] == [NUM_STEPS, 3.0, NUM_STEPS]
    assert hook.found == [[[NUM_STEPS, 2.0, NUM_STEPS]] * 7] * 4


def test_a_hook_of_a_prediction_may_predict_with_other_weights(trained):
    def call():
        rows = trained.predict(constant(9.0), checkpoint_path=path_of(trained, 1))
        return [(row["w"], row["x"]) for row in rows]

    hook = Nested(call)
    rows = [(row["w"], row["x"]) for row in trained.predict(constant(4.0), hooks=[hook])]
    assert rows == [(NUM_STEPS, 4.0)] * 8
    assert hook.found == [[(1.0, 9.0)] * 8] * 4


def test_threads_evaluate_each_its_own_data_and_checkpoint(trained):
    def call(number):
        step = 1 + number % NUM_STEPS
        return evaluated(trained, float(number), step) == [step, number, step]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(24)))
    assert len(trained._warm_sessions.all()) <= 4


def test_threads_predict_each_with_its_own_checkpoint(trained):
    def call(number):
        step = 1 + number // 8 % 2
        rows = trained.predict(constant(number), checkpoint_path=path_of(trained, step))
        return [(row["w"], row["x"]) for row in rows] == [(step, number)] * 8

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(64)))


def test_threads_predict_and_evaluate_while_another_trains(trained):
    has_ended = threading.Event()

    def train():
        try:
            trained.train(training_input, max_steps=NUM_STEPS + 60)
        finally:
            has_ended.set()

    def predict(number):
        count = 0
        while not has_ended.is_set() or count < 3:
            rows = list(trained.predict(constant(number)))
            assert {row["x"] for row in rows} == {number}
            assert len({row["w"] for row in rows}) == 1
            count += 1

    def evaluate(number):
        count = 0
        while not has_ended.is_set() or count < 3:
            found = trained.evaluate(constant(number, batch_size=1 + count % 2), name=str(number))
            assert found["mean"] == number
            assert found["loss"] == found["global_step"]
            count += 1

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        calls = [pool.submit(train)]
        calls += [pool.submit(run, number) for run in (predict, evaluate) for number in (1, 2)]
        for call in calls:
            call.result()


def test_threads_that_predict_first_share_one_session(trained):
    calls = []

    def counted_model_fn(features, labels, mode):
        calls.append(mode)
        return model_fn(features, labels, mode)

    def call(number):
        return {row["x"] for row in model.predict(constant(number))} == {number}

    with (
        est.Estimator(counted_model_fn, trained.model_dir) as model,
        concurrent.futures.ThreadPoolExecutor(6) as pool,
    ):
        assert all(pool.map(call, range(12)))
        assert (calls, len(model._warm_sessions.all())) == (["infer"], 1)


def test_of_sessions_that_were_used_at_once_one_is_kept(trained):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        steps = pool.map(lambda _: evaluated(trained, 1.0, 2), range(18))
        assert {tuple(found) for found in steps} == {(2, 1.0, 2)}
    assert len(trained._warm_sessions.all()) == 1


def test_a_session_that_is_closed_while_it_is_used_ends_its_call(trained):
    hook = Nested(trained.close)
    found = trained.evaluate(constant(3.0), hooks=[hook])
    assert [float(found[name]) for name in NAMES] == [NUM_STEPS, 3.0, NUM_STEPS]
    assert trained._warm_sessions.all() == []


def test_a_model_fn_that_fails_blocks_no_other_call(trained):
    def failing_model_fn(features, labels, mode):
        raise ZeroDivisionError("model_fn")

    with est.Estimator(failing_model_fn, trained.model_dir) as model:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="model_fn"):
                model.predict(constant(1.0))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            assert isinstance(
                pool.submit(model.predict, constant(1.0)).exception(), ZeroDivisionError
            )
