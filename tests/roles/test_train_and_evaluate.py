"""One training, evaluated on the way, on one machine."""

import dataclasses
import json
import logging
import os

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.config.cluster import parse_tf_config
from estimator.roles.local_run import run_local
from tests.conformance.cases import STRATEGIES
from tests.roles.evaluations import Recorder, eval_spec, evaluated_steps
from tests.toy import (
    Clock,
    Model,
    checkpoint_steps,
    events,
    ids_model_fn,
    ids_of,
    modes,
    numbers,
    weight_after,
)

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 100])


# When it evaluates.


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_checkpoint_and_the_last_are_evaluated_exactly_once(
    make, strategy, iterations_per_loop
):
    model = make(iterations_per_loop=iterations_per_loop, **STRATEGIES[strategy])
    metrics, exports = est.train_and_evaluate(
        model, est.TrainSpec(numbers(), max_steps=220), eval_spec()
    )
    assert evaluated_steps(model) == [50, 100, 150, 200, 220]
    assert modes(model).count("train") + modes(model).count("eval") <= 6
    num_replicas = STRATEGIES[strategy].get("num_replicas", 1)
    batches = np.arange(220 * num_replicas).reshape(220, num_replicas)
    w = weight_after(batches)
    np.testing.assert_allclose(model.get_variable_value("w"), w, rtol=1e-6)
    loss = np.mean(np.square(w - np.arange(1, 5))) / 2
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-5)
    assert (metrics["mean"], metrics["global_step"], exports) == (2.5, 220, [])


@LOOPS
def test_each_evaluation_is_of_the_weights_of_its_step(make, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop, save_checkpoints_steps=3)
    est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=8), eval_spec())
    losses = {step: v.simple_value for step, tag, v in events(model.eval_dir()) if tag == "loss"}
    assert list(losses) == [3, 6, 8]
    for step, loss in losses.items():
        w = weight_after([[i] for i in range(step)])
        np.testing.assert_allclose(loss, np.mean(np.square(w - np.arange(1, 5))) / 2, rtol=1e-6)
    assert modes(model) == ["train", "eval"]  # One graph each.


def test_a_run_shorter_than_any_interval_is_evaluated_at_its_end(make):
    model = make(save_checkpoints_steps=None, save_checkpoints_secs=600)
    metrics, _ = est.train_and_evaluate(
        model, est.TrainSpec(numbers(), max_steps=3), est.EvalSpec(numbers(2))
    )
    assert evaluated_steps(model) == [3]
    assert metrics["global_step"] == 3


def test_without_checkpoints_on_the_way_only_the_last_is_evaluated(make):
    model = make(save_checkpoints_steps=None, save_checkpoints_secs=None)
    est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=30), eval_spec())
    assert evaluated_steps(model) == [30]


class TakeSeconds(v1.train.CheckpointSaverListener):
    """Every save takes ten seconds."""

    def __init__(self, clock):
        self._clock = clock

    def after_save(self, session, global_step_value):
        self._clock.now += 10


@pytest.mark.parametrize(
    ("throttle_secs", "expected"),
    [
        (0, [10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (10, [10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (25, [10, 40, 70, 90]),
        (60, [10, 70, 90]),
        (600, [10, 90]),
    ],
)
def test_a_checkpoint_is_passed_over_while_the_last_evaluation_is_recent(
    make, throttle_secs, expected
):
    model, clock = make(save_checkpoints_steps=10), Clock()
    train_spec = est.TrainSpec(numbers(), 90, saving_listeners=[TakeSeconds(clock)])
    run_local(model, train_spec, [eval_spec(throttle_secs=throttle_secs)], clock)
    assert evaluated_steps(model) == expected


@LOOPS
def test_every_steps_evaluates_at_its_multiples_whatever_the_time(make, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop, save_checkpoints_steps=10)
    train_spec = est.TrainSpec(numbers(), max_steps=75)
    est.train_and_evaluate(model, train_spec, est.EvalSpec(numbers(2), every_steps=30))
    assert evaluated_steps(model) == [30, 60, 75]
    assert checkpoint_steps(model.model_dir) == [40, 50, 60, 70, 75]


@LOOPS
def test_an_input_that_ends_at_a_checkpoint_is_not_evaluated_twice(make, iterations_per_loop):
    model, recorder = make(iterations_per_loop=iterations_per_loop), Recorder()
    metrics, exports = est.train_and_evaluate(
        model, est.TrainSpec(numbers(100)), eval_spec(exporters=recorder)
    )
    assert evaluated_steps(model) == [50, 100]
    assert metrics["global_step"] == 100
    # The exporter is told when it is known that there are no more.
    assert recorder.calls == [(50, False), (100, False), (100, True)]
    assert exports == ["recorder of step 100"]


class InParts(est.Estimator):
    """Trains in three parts, each by another Estimator, as AdaNet does."""

    def _assert_members_are_not_overridden(self):
        pass

    def train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None):
        for end in (8, 16, max_steps):
            part = est.Estimator(Model(), config=self.config)
            part.train(input_fn, hooks, max_steps=end, saving_listeners=saving_listeners)
        return self


def test_a_training_in_parts_is_evaluated_in_each(tmp_path):
    model = InParts(Model(), str(tmp_path), est.RunConfig(save_checkpoints_steps=4))
    est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=24), eval_spec())
    assert evaluated_steps(model) == [4, 8, 12, 16, 20, 24]


def test_a_checkpoint_saver_hook_of_the_user_is_followed(make):
    model, recorder = make(), Recorder()
    hook = v1.train.CheckpointSaverHook(model.model_dir, save_steps=20)
    est.train_and_evaluate(
        model, est.TrainSpec(numbers(), 50, [hook]), eval_spec(exporters=[recorder])
    )
    saved = checkpoint_steps(model.model_dir)
    assert saved[0] == 0  # It saves before the first step too, and that is not worth a look.
    assert evaluated_steps(model) == saved[1:]
    assert recorder.calls == [(step, step == saved[-1]) for step in saved[1:]]


def test_a_checkpoint_saver_hook_that_saves_elsewhere_is_an_error(make, tmp_path):
    hook = v1.train.CheckpointSaverHook(str(tmp_path / "elsewhere"), save_steps=20)
    message = "no checkpoint in `model_dir` .*just saved. Let the CheckpointSaverHook write to it"
    with pytest.raises(ValueError, match=message):
        est.train_and_evaluate(make(), est.TrainSpec(numbers(), 50, [hook]), eval_spec())


def test_a_directory_may_be_on_a_file_system_that_only_tensorflow_knows(tmp_path):
    """Here by a URL, which Python's own functions take for a relative path."""

    def serving_fn():
        x = v1.placeholder(tf.float32, [None], "x")
        return est.export.TensorServingInputReceiver(x, x)

    latest = est.LatestExporter("latest", serving_fn, exports_to_keep=1)
    exporters = [latest, est.BestExporter("best", serving_fn)]
    config = est.RunConfig(save_checkpoints_steps=5, resume_input=True)
    with est.Estimator(Model(), f"file://{tmp_path}/model", config) as model:
        hook = est.experimental.stop_if_lower_hook(
            model, "loss", 1e9, min_steps=10, run_every_secs=None, run_every_steps=5
        )
        for hooks in ([hook], []):
            train_spec = est.TrainSpec(numbers(), 20, hooks)
            est.train_and_evaluate(model, train_spec, eval_spec(exporters=exporters))
    assert checkpoint_steps(str(tmp_path / "model")) == [0, 5, 10, 15, 20]
    steps = [step for step, tag, _ in events(str(tmp_path / "model" / "eval")) if tag == "loss"]
    assert steps == [5, 10, 15, 20]
    assert len(os.listdir(tmp_path / "model" / "export" / "latest")) == 1
    assert os.listdir(tmp_path) == ["model"]
    assert not os.path.exists("file:")


# Training is unbroken.


@LOOPS
def test_training_is_one_unbroken_pass_over_its_input(make, iterations_per_loop):
    calls = []

    def input_fn():
        calls.append("train")
        return numbers(220)().shuffle(220, seed=3)

    model = make(ids_model_fn, iterations_per_loop=iterations_per_loop, save_checkpoints_steps=30)
    result = est.train_and_evaluate(model, est.TrainSpec(input_fn), eval_spec())
    assert sorted(ids_of(model)) == list(range(220))
    assert calls == ["train"]
    assert result.train_result == est.TrainResult(220, 0.0, "end of input")
    assert evaluated_steps(model) == [30, 60, 90, 120, 150, 180, 210, 220]


def test_a_second_run_goes_on_in_the_input(make):
    for max_steps in (70, 140):
        model = make(ids_model_fn)
        est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps), eval_spec())
    assert ids_of(model) == list(range(140))
    assert evaluated_steps(model) == [50, 70, 100, 140]


# Several EvalSpecs.


def test_each_set_has_a_directory_and_the_same_steps(make):
    model = make()
    specs = [eval_spec(), est.EvalSpec(numbers(3), 2, "first two", throttle_secs=0)]
    result = est.train_and_evaluate(model, est.TrainSpec(numbers(), 120), specs)
    assert evaluated_steps(model) == evaluated_steps(model, "first two") == [50, 100, 120]
    assert os.path.basename(model.eval_dir("first two")) == "eval_first two"
    means = {name: metrics["mean"] for name, metrics in result.metrics_by_name.items()}
    assert means == {None: 2.5, "first two": 0.5}
    assert result.metrics is result.metrics_by_name[None]


def test_each_set_has_its_own_schedule_and_exporters(make):
    model, one, two = make(), Recorder("one"), Recorder("two")
    specs = [
        eval_spec(exporters=one),
        eval_spec(name="rare", throttle_secs=10**6, exporters=[two]),
    ]
    _, exports = est.train_and_evaluate(model, est.TrainSpec(numbers(), 170), specs)
    assert one.calls == [(50, False), (100, False), (150, False), (170, True)]
    assert two.calls == [(50, False), (170, True)]
    assert exports == ["one of step 170", "two of step 170"]
    assert two.paths == [os.path.join(model.model_dir, "export", "two")] * 2


# What it returns.


def test_the_result_is_a_pair_that_also_says_why_training_stopped(make):
    model = make()
    result = est.train_and_evaluate(model, est.TrainSpec(numbers(), 60), eval_spec())
    metrics, exports = result
    assert (result[0], result[1], len(result)) == (metrics, exports, 2)
    assert result.train_result is model.train_result
    assert (result.train_result.global_step, result.train_result.reason) == (60, "max_steps")


def test_with_nothing_left_to_train_the_newest_checkpoint_is_evaluated_and_exported(make):
    make().train(numbers(), max_steps=60)
    model, recorder = make(), Recorder()
    result = est.train_and_evaluate(
        model, est.TrainSpec(numbers(), 60), eval_spec(exporters=recorder)
    )
    assert modes(model) == ["eval"]
    assert result.metrics["global_step"] == 60
    assert result.export_results == ["recorder of step 60"]
    assert recorder.calls == [(60, True)]
    assert result.train_result == est.TrainResult(60, None, "max_steps")


def test_after_a_nan_that_stops_the_last_good_checkpoint_counts(make):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, 2, 3, 4, np.nan, 6]).batch(1)

    model = make(nan_policy="stop", save_checkpoints_steps=2)
    spec = eval_spec(throttle_secs=10**6)
    result = est.train_and_evaluate(model, est.TrainSpec(input_fn), spec)
    assert result.train_result.reason == "nan loss"
    assert evaluated_steps(model) == [2, 4]
    assert result.metrics["global_step"] == 4


def test_a_nan_without_a_checkpoint_leaves_no_metrics(make, caplog):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, np.nan]).batch(1)

    model = make(nan_policy="stop", save_checkpoints_steps=None, save_checkpoints_secs=None)
    with caplog.at_level(logging.WARNING, "estimator"):
        metrics, exports = result = est.train_and_evaluate(
            model, est.TrainSpec(input_fn), eval_spec(exporters=Recorder())
        )
    assert (metrics, exports, result.metrics_by_name) == (None, [None], {})
    assert result.train_result.reason == "nan loss"
    assert [r for r in caplog.records if "nothing is evaluated" in r.getMessage()]


# The specs.


def test_what_the_specs_name_reaches_the_verbs(make):
    class Count(v1.train.SessionRunHook):
        calls = 0

        def after_run(self, run_context, run_values):
            self.calls += 1

    class Saves(v1.train.CheckpointSaverListener):
        def __init__(self):
            self.steps = []

        def after_save(self, session, global_step_value):
            self.steps.append(int(global_step_value))

    model, training, evaluating, saves = make(), Count(), Count(), Saves()
    est.train_and_evaluate(
        model,
        est.TrainSpec(numbers(), 120, [training], [saves]),
        est.EvalSpec(numbers(), steps=2, hooks=[evaluating], throttle_secs=0),
    )
    assert training.calls == 120
    assert evaluating.calls == 3 * 2
    assert saves.steps == [0, 50, 100, 120]


def test_specs_are_frozen_and_replaced_with_checks():
    train = est.TrainSpec(numbers(), 10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        train.max_steps = 20
    assert train.replace(max_steps=20).max_steps == 20
    assert train._replace(max_steps=None).input_fn is train.input_fn
    spec = est.EvalSpec(numbers())
    assert (spec.steps, spec.start_delay_secs, spec.throttle_secs) == (100, 120, 600)
    assert spec.replace(exporters=Recorder()).exporters[0].name == "recorder"
    with pytest.raises(ValueError, match=r"`throttle_secs` \(-1\) must be at least 0"):
        spec.replace(throttle_secs=-1)


def test_a_tpu_estimator_is_trained_and_evaluated(tmp_path):
    def input_fn(params):
        return tf.data.Dataset.range(params["batch_size"] * 40).batch(params["batch_size"])

    config = est.tpu.RunConfig(
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=100), save_checkpoints_steps=15
    )
    model = est.tpu.TPUEstimator(
        Model(), str(tmp_path), config, train_batch_size=2, eval_batch_size=4
    )
    with model:
        metrics, _ = est.train_and_evaluate(
            model, est.TrainSpec(input_fn, 40), est.EvalSpec(input_fn, None, throttle_secs=0)
        )
        assert evaluated_steps(model) == [15, 30, 40]
    assert metrics["mean"] == np.mean(np.arange(160))


# TF_CONFIG.


def test_a_tf_config_of_one_task_runs_here(make):
    for role, max_steps in (("chief", 10), ("master", 20)):
        text = {"cluster": {role: ["localhost:1"]}, "task": {"type": role, "index": 0}}
        model = make(cluster=parse_tf_config(json.dumps(text)))
        est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps), eval_spec())
        assert model.train_result.global_step == max_steps


@pytest.mark.parametrize("role", ["chief", "worker"])
def test_a_cluster_without_a_strategy_for_it_is_refused(make, role):
    cluster = {"chief": ["localhost:1"], "worker": ["localhost:2"]}
    text = {"cluster": cluster, "task": {"type": role, "index": 0}}
    model = make(cluster=parse_tf_config(json.dumps(text)))
    with pytest.raises(ValueError, match="names 1 chief, 1 worker, but the strategy .None."):
        est.train_and_evaluate(model, est.TrainSpec(numbers(), 10), eval_spec())
    assert modes(model) == []
