"""Without a checkpoint, evaluate and predict use the values that training would start with."""

import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers, weight_after

V1 = tf.compat.v1
TWO = {"strategy": "mirrored", "num_replicas": 2}


class Starting:
    """A model_fn that predicts its weight `w`, at first 8 unless `start` gives it a value."""

    def __init__(self, start=None, initializer=None):
        self.start = start
        self.initializer = initializer or V1.constant_initializer(8.0)
        self.modes = []

    def __call__(self, features, labels, mode):
        self.modes.append(mode)
        w = V1.get_variable("w", [], initializer=self.initializer)
        scaffold = self.start and self.start(w)
        features = tf.cast(features, tf.float32)
        step, train_op = V1.train.get_global_step(), None
        if mode == est.ModeKeys.TRAIN:
            train_op = V1.train.AdamOptimizer(0.1).minimize(tf.square(w), step)
        return est.EstimatorSpec(
            mode,
            predictions=w + 0 * features,
            loss=w + 0,
            train_op=train_op,
            eval_metric_ops={"x": V1.metrics.mean(features)},
            scaffold=scaffold,
        )


@pytest.fixture(scope="module")
def old_dir(tmp_path_factory):
    """A directory with a checkpoint whose `w` is 3, and its slots of Adam."""
    path = str(tmp_path_factory.mktemp("old"))
    model_fn = Starting(initializer=V1.constant_initializer(3.1))
    est.Estimator(model_fn, path).train(numbers(), steps=1)
    return path


def from_checkpoint(old_dir):
    def start(w):
        V1.train.init_from_checkpoint(old_dir, {"w": w})

    return {"model_fn": Starting(start)}, 3.0


def warm(settings=None):
    def make(old_dir):
        start = settings and est.WarmStartSettings(old_dir, settings)
        return {"model_fn": Starting(), "warm_start_from": start or old_dir}, 3.0

    return make


def by_init_fn(old_dir):
    def start(w):
        place = V1.placeholder(w.dtype, w.shape)
        assign = w.assign(place)
        return V1.train.Scaffold(init_fn=lambda _, session: session.run(assign, {place: 5.0}))

    return {"model_fn": Starting(start)}, 5.0


def by_init_op(old_dir):
    def start(w):
        return V1.train.Scaffold(
            init_op=tf.group(w.assign(6.0), V1.train.get_global_step().initializer)
        )

    return {"model_fn": Starting(start)}, 6.0


STARTS = {
    "initializer": lambda old_dir: ({"model_fn": Starting()}, 8.0),
    "init_from_checkpoint": from_checkpoint,
    "warm_start_from": warm(),
    # It names the optimizer's variables too, which only training has.
    "warm_start_from_with_slots": warm(["w$", "w/Adam", "beta1_power"]),
    "warm_start_from_slots_alone": lambda old_dir: (warm(["w/Adam"])(old_dir)[0], 8.0),
    "init_fn": by_init_fn,
    "init_op": by_init_op,
}


@pytest.mark.parametrize(
    ("start", "config"),
    [*((name, {}) for name in STARTS), ("warm_start_from", TWO), ("init_from_checkpoint", TWO)],
    ids=str,
)
def test_evaluate_and_predict_begin_where_training_would(start, config, old_dir, tmp_path):
    arguments, value = STARTS[start](old_dir)
    with est.Estimator(
        model_dir=str(tmp_path / "model"), config=est.RunConfig(**config), **arguments
    ) as model:
        for _ in range(2):
            results = model.evaluate(numbers(3))
            assert results["global_step"] == 0
            assert results["loss"] == pytest.approx(value)
            assert results["x"] == 1
            np.testing.assert_allclose(list(model.predict(numbers(3))), [value] * 3)
        assert model.latest_checkpoint() is None
        num_builds = len(model._model_fn.modes)
        assert num_builds == 2 * (config.get("num_replicas") or 1)


def test_it_is_said_in_one_line(tmp_path, caplog):
    with est.Estimator(Model(), str(tmp_path)) as model, caplog.at_level("INFO", "estimator"):
        for _ in range(2):
            list(model.predict(numbers(2)))
        model.evaluate(numbers(2))
    said = [record.message for record in caplog.records if "no checkpoint" in record.message]
    assert said == [
        "Predicting with the initial values (there is no checkpoint yet)",
        "Evaluated the initial values (there is no checkpoint yet): global_step = 0, "
        "loss = 0.25, mean = 0.5",
    ]


def test_random_initial_values_stay_from_call_to_call(tmp_path):
    model_fn = Starting(initializer=V1.random_normal_initializer())
    with est.Estimator(model_fn, str(tmp_path)) as model:
        first = model.evaluate(numbers(2))["loss"]
        assert model.evaluate(numbers(5))["loss"] == first
        predicted = list(model.predict(numbers(1)))
        assert list(model.predict(numbers(1))) == predicted


def test_a_checkpoint_counts_as_soon_as_it_is_there(tmp_path):
    path = str(tmp_path / "model")
    with est.Estimator(Model(), path) as model:
        going_on = model.predict(numbers(3, start=1))
        assert next(going_on) == 0
        assert model.evaluate(numbers(1, start=5))["loss"] == 12.5
        model.train(numbers(), steps=5)
        w = weight_after([[i] for i in range(5)])
        assert list(model.predict(numbers(1, start=1))) == [w]
        assert model.evaluate(numbers(1))["global_step"] == 5
        assert list(going_on) == [0, 0]  # It was begun with the initial values.
        assert model._model_fn.modes == ["infer", "eval", "train"]
        shutil.rmtree(path)
        assert list(model.predict(numbers(1, start=1))) == [0]
        assert model.evaluate(numbers(1))["global_step"] == 0


def test_after_a_checkpoint_is_gone_the_old_model_counts_again(old_dir, tmp_path):
    path = str(tmp_path / "model")
    with est.Estimator(Starting(), path, warm_start_from=old_dir) as model:
        model.train(numbers(), steps=10)
        trained = model.evaluate(numbers(1))["loss"]
        assert trained == pytest.approx(2.0, abs=0.1)
        shutil.rmtree(path)
        assert model.evaluate(numbers(1))["loss"] == pytest.approx(3.0)


def test_a_checkpoint_that_is_named_must_be_there(tmp_path):
    model = est.Estimator(Model(), str(tmp_path))
    missing = str(tmp_path / "model.ckpt-7")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        model.evaluate(numbers(1), checkpoint_path=missing)
    with pytest.raises(ValueError, match="is not a checkpoint"):
        model.predict(numbers(1), checkpoint_path=missing)
    # The value of a flag that nobody sets names none.
    assert model.evaluate(numbers(1), checkpoint_path="")["global_step"] == 0
    model.close()


def test_checkpoints_that_cannot_be_read_are_not_passed_over(tmp_path):
    path = str(tmp_path)
    with est.Estimator(Model(), path) as model:
        model.train(numbers(), steps=1)
        for name in os.listdir(path):
            if name.endswith(".index"):
                (tmp_path / name).write_bytes(b"")
        with pytest.raises(ValueError, match=r"None of the checkpoints .* can be read"):
            model.evaluate(numbers(1))
        with pytest.raises(ValueError, match=r"None of the checkpoints .* can be read"):
            model.predict(numbers(1))
        with pytest.raises(ValueError, match=r"None of the checkpoints .* can be read"):
            model.train(numbers(), steps=1)


def test_an_old_model_that_is_not_there_is_an_error(tmp_path):
    old = str(tmp_path / "old")
    model = est.Estimator(Starting(), str(tmp_path / "model"), warm_start_from=old)
    with pytest.raises(ValueError, match="warm_start_from"):
        model.evaluate(numbers(1))
    assert model._model_fn.modes == []


def test_a_hook_may_make_variables_before_there_is_a_checkpoint(tmp_path):
    class Counting(V1.train.SessionRunHook):
        def begin(self):
            self.count = V1.get_variable("count", [], initializer=V1.zeros_initializer())
            self.update = self.count.assign_add(1)

        def before_run(self, run_context):
            return V1.train.SessionRunArgs(self.update)

        def after_run(self, run_context, run_values):
            self.last = run_values.results

    counting = Counting()
    with est.Estimator(Model(), str(tmp_path)) as model:
        model.evaluate(numbers(3), hooks=[counting])
    assert counting.last == 3
