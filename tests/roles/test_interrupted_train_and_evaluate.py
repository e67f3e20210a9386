"""Errors and signals end `train_and_evaluate`, and nothing is evaluated after them."""

import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.config.cluster import parse_tf_config
from estimator.roles.train_and_evaluate import run_evaluator
from estimator.session import retries
from estimator.training.end_record import NAME
from tests.roles.evaluations import Recorder, eval_spec, evaluated_steps
from tests.toy import checkpoint_steps, numbers

v1 = tf.compat.v1


def failing(error):
    def input_fn():
        raise error

    return input_fn


class FailAt(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        raise ZeroDivisionError("a hook")


class FailingExporter(Recorder):
    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        raise ZeroDivisionError("an exporter")


@pytest.mark.parametrize(
    ("train", "evaluate", "says"),
    [
        ({"input_fn": failing(ZeroDivisionError("training"))}, {}, "training"),
        ({"hooks": [FailAt()]}, {}, "a hook"),
        ({}, {"input_fn": failing(ZeroDivisionError("evaluation"))}, "evaluation"),
        ({}, {"hooks": [FailAt()]}, "a hook"),
        ({}, {"exporters": FailingExporter()}, "an exporter"),
    ],
    ids=["training input", "training hook", "evaluation input", "evaluation hook", "exporter"],
)
def test_no_error_is_swallowed(make, train, evaluate, says):
    train = est.TrainSpec(**{"input_fn": numbers(), "max_steps": 100, **train})
    evaluate = est.EvalSpec(**{"input_fn": numbers(4), "throttle_secs": 0, **evaluate})
    with pytest.raises(ZeroDivisionError, match=says):
        est.train_and_evaluate(make(), train, evaluate)


class InTheWay(FailAt):
    """Fails after it has put a directory where the record of the end is written."""

    def __init__(self, model_dir):
        self._path = os.path.join(model_dir, NAME)

    def after_run(self, run_context, run_values):
        os.mkdir(self._path)
        super().after_run(run_context, run_values)


def test_the_error_that_ends_training_is_told_if_its_end_cannot_be_recorded(make, caplog):
    cluster = {"chief": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]}
    tf_config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    model = make(cluster=parse_tf_config(json.dumps(tf_config)))
    train = est.TrainSpec(numbers(), max_steps=3, hooks=[InTheWay(model.model_dir)])
    with pytest.raises(ZeroDivisionError, match="a hook"):
        est.train_and_evaluate(model, train, eval_spec())
    assert "The evaluator is not told that training has ended" in caplog.text


class IsAway(v1.train.SessionRunHook):
    """Fails so many times."""

    def __init__(self, num_failures):
        self._failures = iter(range(num_failures))

    def after_run(self, run_context, run_values):
        if next(self._failures, None) is not None:
            raise tf.errors.UnavailableError(None, None, "the server is away")


@pytest.fixture
def no_waits(monkeypatch):
    monkeypatch.setattr(retries, "WAITS_SECS", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("num_failures", [3, 4])
def test_an_evaluation_that_fails_for_a_moment_is_made_again(make, no_waits, caplog, num_failures):
    """The fourth failure is one of the training, whose next session makes the evaluation."""
    model, exporter = make(), Recorder()
    evaluate = eval_spec(hooks=[IsAway(num_failures)], exporters=exporter, throttle_secs=600)
    metrics, _ = est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps=100), evaluate)
    assert evaluated_steps(model) == [50, 100]
    assert [step for step, _ in exporter.calls] == [50, 100]
    assert (metrics["mean"], metrics["global_step"]) == (2.5, 100)
    assert caplog.text.count("The evaluation failed: the server is away. It is tried again") == 3
    assert caplog.text.count("Training failed: the server is away. It goes on") == num_failures - 3


def test_an_evaluation_that_does_not_work_ends_training(make, no_waits):
    model = make()
    with pytest.raises(tf.errors.UnavailableError, match="the server is away"):
        est.train_and_evaluate(
            model, est.TrainSpec(numbers(), max_steps=500), eval_spec(hooks=[IsAway(100)])
        )
    assert checkpoint_steps(model.model_dir) == [0, 50]


@pytest.mark.parametrize("num_failures", [3, 4])
def test_an_evaluator_tries_again(make, no_waits, caplog, num_failures):
    model, exporter = make(), Recorder()
    model.train(numbers(), max_steps=100)
    spec = eval_spec(hooks=[IsAway(num_failures)], exporters=exporter, start_delay_secs=0)
    train = est.TrainSpec(numbers(), max_steps=100)
    if num_failures == 4:
        with pytest.raises(tf.errors.UnavailableError, match="the server is away"):
            run_evaluator(model, train, [spec])
        assert evaluated_steps(model) == []
    else:
        assert run_evaluator(model, train, [spec]).metrics["global_step"] == 100
        assert evaluated_steps(model) == [50, 100]
        assert exporter.calls == [(50, False), (100, True)]
    assert caplog.text.count("The evaluation failed: the server is away. It is tried again") == 3


class InterruptedOnce(Recorder):
    """Is interrupted in the export of step 100, at first."""

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        if eval_result["global_step"] == 100 and not self.paths:
            self.paths.append(export_path)
            raise KeyboardInterrupt
        self.calls.append((int(eval_result["global_step"]), is_the_final_export))


@pytest.mark.parametrize("role", ["local", "evaluator"])
def test_an_interrupted_evaluation_is_made_up_for(make, role):
    first, second = InterruptedOnce("first"), Recorder("second")
    train = est.TrainSpec(numbers(), max_steps=150)
    specs = [eval_spec(exporters=first, name="a"), eval_spec(exporters=second, name="b")]
    specs = [spec._replace(start_delay_secs=0) for spec in specs]
    if role == "evaluator":
        make(keep_checkpoint_max=None).train(numbers(), max_steps=150)
    for _ in range(2):
        model = make(keep_checkpoint_max=None)
        run = est.train_and_evaluate if role == "local" else run_evaluator
        try:
            run(model, train, specs)
        except KeyboardInterrupt:
            first.calls.clear()
            second.calls.clear()
    assert first.calls == [(100, False), (150, True)]
    before = [(50, False)] if role == "evaluator" else []  # It follows one spec after the other.
    assert second.calls == [*before, (100, False), (150, True)]
    for name in ("a", "b"):
        assert set(evaluated_steps(model, name)) == {50, 100, 150}
        assert "unfinished-step" not in os.listdir(model.eval_dir(name))


class FullDisk(Recorder):
    """Fails so many times to export step 100."""

    def __init__(self, num_failures):
        super().__init__()
        self._failures = iter(range(num_failures))

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        if eval_result["global_step"] == 100 and next(self._failures, None) is not None:
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")
        self.calls.append((int(eval_result["global_step"]), is_the_final_export))


@pytest.mark.parametrize("role", ["local", "evaluator"])
@pytest.mark.parametrize("num_failures", [1, 2])
def test_an_export_that_fails_is_tried_again_by_one_more_process(make, role, num_failures):
    """What always fails does not keep those after it from their work."""
    exporter = FullDisk(num_failures)
    train = est.TrainSpec(numbers(), max_steps=150)
    spec = eval_spec(exporters=exporter, start_delay_secs=0)
    if role == "evaluator":
        make(keep_checkpoint_max=None).train(numbers(), max_steps=150)

    def run():
        model = make(keep_checkpoint_max=None)
        if role == "local":
            return est.train_and_evaluate(model, train, spec)
        return run_evaluator(model, train, [spec])

    for _ in range(num_failures):
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left"):
            run()
    assert exporter.calls == [(50, False)]
    run()
    made_up_for = [(100, False)] if num_failures == 1 else []
    assert exporter.calls == [(50, False), *made_up_for, (150, True)]
    assert "unfinished-step" not in os.listdir(make().eval_dir())


def test_an_interrupted_evaluation_is_made_up_for_after_a_later_one_of_the_chief(make):
    model, exporter = make(keep_checkpoint_max=None), InterruptedOnce()
    model.train(numbers(), max_steps=200)
    train = est.TrainSpec(numbers(), max_steps=200)
    spec = eval_spec(exporters=exporter)._replace(start_delay_secs=0)
    with pytest.raises(KeyboardInterrupt):
        run_evaluator(model, train, [spec])
    model.evaluate(numbers(), steps=1)
    run_evaluator(make(keep_checkpoint_max=None), train, [spec])
    assert exporter.calls == [(50, False), (100, False), (150, False), (200, True)]
    assert "unfinished-step" not in os.listdir(model.eval_dir())


def test_a_checkpoint_whose_evaluation_had_not_begun_is_evaluated_by_the_next_process(make):
    class Uploads(v1.train.CheckpointSaverListener):
        is_killed = True

        def after_save(self, session, global_step_value):
            if global_step_value == 100 and self.is_killed:
                raise KeyboardInterrupt

    uploads, exporter = Uploads(), Recorder()
    train = est.TrainSpec(numbers(), max_steps=150, saving_listeners=[uploads])
    with pytest.raises(KeyboardInterrupt):
        est.train_and_evaluate(make(), train, eval_spec(exporters=exporter))
    uploads.is_killed = False
    est.train_and_evaluate(make(), train, eval_spec(exporters=exporter))
    assert exporter.calls == [(50, False), (100, False), (150, True)]
    assert evaluated_steps(make()) == [50, 100, 150]


def test_the_final_model_of_an_evaluator_is_the_last_that_it_followed(make):
    """The chief may have begun its next call meanwhile."""
    model = make(keep_checkpoint_max=None)
    model.train(numbers(), max_steps=100)

    class TrainsOn(Recorder):
        def export(self, estimator, *arguments, **keywords):
            if model.train_result.global_step == 100:
                model.train(numbers(), max_steps=250)
            return super().export(estimator, *arguments, **keywords)

    exporter = TrainsOn()
    evaluate = eval_spec(exporters=exporter, start_delay_secs=0)
    for max_steps in (100, 250):
        run_evaluator(model, est.TrainSpec(numbers(), max_steps), [evaluate])
    assert exporter.calls == [(50, False), (100, True), (150, False), (200, False), (250, True)]


def test_a_nan_raises(make):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, np.nan]).batch(1)

    with pytest.raises(v1.train.NanLossDuringTrainingError, match="step 2"):
        est.train_and_evaluate(make(), est.TrainSpec(input_fn), eval_spec())


@pytest.fixture
def _sigint_interrupts():
    """A process that a shell started with `&` ignores SIGINT, and so does this one then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class SignalAt(v1.train.SessionRunHook):
    """Sends SIGINT to this process after some calls."""

    def __init__(self, call):
        self._left = call

    def after_run(self, run_context, run_values):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("_sigint_interrupts")
def test_a_signal_ends_it_without_another_evaluation(make):
    model = make()
    with pytest.raises(KeyboardInterrupt):
        est.train_and_evaluate(model, est.TrainSpec(numbers(), 200, [SignalAt(70)]), eval_spec())
    assert checkpoint_steps(model.model_dir) == [0, 50, 70]
    assert evaluated_steps(model) == [50]


@pytest.mark.usefixtures("_sigint_interrupts")
def test_a_signal_while_evaluating_takes_effect_after_it(make):
    model = make()
    with pytest.raises(KeyboardInterrupt):
        est.train_and_evaluate(model, est.TrainSpec(numbers(), 200), eval_spec(hooks=[SignalAt(2)]))
    assert checkpoint_steps(model.model_dir) == [0, 50]
    assert evaluated_steps(model) == [50]
