"""Early stopping at the same step everywhere, and over a restart."""

import glob
import json
import logging

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.config.cluster import parse_tf_config
from estimator.hooks.early_stopping import EarlyStoppingHook
from estimator.session.schedule import Schedule
from estimator.summary.event_writer import EventWriter, close_event_files
from tests.conformance.cases import STRATEGIES
from tests.toy import Clock, Model, Scripted, checkpoint_steps, events, numbers

v1 = tf.compat.v1
experimental = est.experimental

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 7, 100])

# By the step divided by 10. The lowest until step 90 is that of step 30.
SCORES = [9, 5, 4, 3, 3.5, 3, 3.2, 8, 7, 2, 1, 1, 1, 1]


@pytest.fixture
def make(tmp_path):
    """Makes Estimators in one directory, with scripted evaluations, and closes them."""
    made = []

    def make(scores=SCORES, iterations_per_loop=1, **config):
        config = {"save_summary_steps": None, "save_checkpoints_steps": 10, **config}
        run_config = est.RunConfig(iterations_per_loop=iterations_per_loop, **config)
        made.append(est.Estimator(Scripted(scores), str(tmp_path / "model"), run_config))
        return made[-1]

    yield make
    for model in made:
        model.close()


def run(model, hook, max_steps=130, name=None):
    """Trains and evaluates at every tenth step; returns where it stopped and why."""
    hooks = [] if hook is None else [hook]
    spec = est.EvalSpec(numbers(2), throttle_secs=0, name=name)
    result = est.train_and_evaluate(model, est.TrainSpec(numbers(), max_steps, hooks), spec)
    assert result.metrics["global_step"] == result.train_result.global_step
    return result.train_result.global_step, result.train_result.reason


def patience(model, steps=30, **arguments):
    return experimental.stop_if_no_decrease_hook(model, "score", steps, **arguments)


# At which step.


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_stops_at_the_same_step_under_every_strategy_and_loop(
    make, strategy, iterations_per_loop
):
    model = make(iterations_per_loop=iterations_per_loop, **STRATEGIES[strategy])
    assert run(model, patience(model)) == (60, "hook")
    assert checkpoint_steps(model.model_dir)[-1] == 60


HOOKS = {
    "higher": (lambda m: experimental.stop_if_higher_hook(m, "score", 7.5), 70),
    "higher, strictly": (lambda m: experimental.stop_if_higher_hook(m, "score", 8), 130),
    "lower": (lambda m: experimental.stop_if_lower_hook(m, "score", 4), 30),
    "lower, later": (lambda m: experimental.stop_if_lower_hook(m, "score", 4, min_steps=35), 40),
    "no decrease": (lambda m: experimental.stop_if_no_decrease_hook(m, "score", 20), 50),
    "no decrease, later": (
        lambda m: experimental.stop_if_no_decrease_hook(m, "score", 20, min_steps=40),
        70,
    ),
    "no decrease, at once": (
        lambda m: experimental.stop_if_no_decrease_hook(m, "score", 0, min_steps=35),
        40,
    ),
    "no increase, at once": (
        lambda m: experimental.stop_if_no_increase_hook(m, "score", 0, min_steps=35),
        40,
    ),
    "no increase": (lambda m: experimental.stop_if_no_increase_hook(m, "score", 50), 60),
    "no increase for long": (
        lambda m: experimental.stop_if_no_increase_hook(m, "score", 60),
        130,
    ),
    "the loss": (lambda m: experimental.stop_if_higher_hook(m, "loss", 0.0), 10),
}


@pytest.mark.parametrize("case", HOOKS)
def test_each_hook_stops_at_the_first_evaluation_that_says_so(make, case):
    make_hook, step = HOOKS[case]
    model = make(iterations_per_loop=100)
    assert run(model, make_hook(model)) == (step, "hook" if step < 130 else "max_steps")


@pytest.mark.parametrize(
    ("scores", "step"),
    [
        ([9, np.nan, 4, 5, 6, 7], 40),  # NaN is skipped: step 20 is the best.
        ([9, 4, np.nan, np.nan, 1, 1], 30),  # Steps without a new best count, NaN or not.
        ([np.nan] * 14, 30),  # It is not waited for a first number for ever.
    ],
)
def test_nan_is_no_best_value(make, scores, step):
    model = make(scores)
    assert run(model, patience(model, 20), max_steps=50) == (step, "hook")


@pytest.mark.parametrize("name", ["held out", "fold[1]", "a\\b", "*"])
def test_an_evaluation_with_a_name_has_a_directory_of_its_own(make, name):
    model = make()
    hook = patience(model, eval_dir=model.eval_dir(name))
    assert run(model, hook, name=name) == (60, "hook")


def test_a_hook_that_reads_where_nobody_writes_is_warned_of(make, caplog):
    model = make()
    with caplog.at_level(logging.WARNING, "estimator"):
        assert run(model, patience(model), name="held out") == (130, "max_steps")
    (message,) = [m for m in caplog.messages if "early-stopping" in m]
    assert model.eval_dir() in message
    assert model.eval_dir("held out") in message


# Restarts.


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("first", [20, 30, 40, 55])
def test_patience_and_the_best_value_survive_a_restart(make, iterations_per_loop, first):
    model = make(iterations_per_loop=iterations_per_loop)
    assert run(model, patience(model), max_steps=first) == (first, "max_steps")
    again = make(iterations_per_loop=iterations_per_loop)
    # The evaluation of step 55 is one more, whose score is that of step 50.
    assert run(again, patience(again)) == (60, "hook")


def test_a_run_that_was_stopped_stays_stopped(make):
    model = make(iterations_per_loop=100)
    run(model, patience(model))
    again = make(iterations_per_loop=100)
    assert run(again, patience(again)) == (60, "hook")
    assert again.train_result == est.TrainResult(60, None, "hook")
    assert run(again, patience(again, 10**6)) == (130, "max_steps")  # Unless told otherwise.


def test_evaluations_of_steps_that_were_taken_back_do_not_count(make):
    model = make()
    writer = EventWriter(model.eval_dir())
    writer.write_metrics({"score": -1.0, "loss": 0.0}, step=35)  # By a run that crashed later.
    hook = experimental.stop_if_lower_hook(model, "score", 0)
    assert run(model, hook, max_steps=30) == (30, "max_steps")


def test_an_event_that_a_killed_process_left_half_written_is_passed_over(make):
    model = make()
    run(model, None, max_steps=50)
    close_event_files([model.eval_dir()])
    (path,) = glob.glob(model.eval_dir() + "/*tfevents*")
    with open(path, "rb") as file:
        whole = file.read()
    with open(path, "wb") as file:
        file.write(whole[:-5])  # Cuts the evaluation of step 50.
    again = make()
    assert run(again, patience(again)) == (60, "hook")


# Without `train_and_evaluate`.


@LOOPS
def test_a_function_is_called_at_exactly_its_steps(make, iterations_per_loop):
    model, calls = make(iterations_per_loop=iterations_per_loop), []

    class Steps(v1.train.CheckpointSaverListener):
        def end(self, session, global_step_value):
            calls.append("end")

    def should_stop():
        calls.append("asked")
        return len(calls) == 3

    hook = experimental.make_early_stopping_hook(
        model, should_stop, run_every_secs=None, run_every_steps=6
    )
    model.train(numbers(), [hook], max_steps=100, saving_listeners=[Steps()])
    assert model.train_result.global_step == 18
    assert model.train_result.reason == "hook"
    assert calls == ["asked", "asked", "asked", "end"]


@LOOPS
def test_by_time_a_function_is_called_at_the_end_of_the_first_loop(make, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop, save_checkpoints_steps=50)
    hook = experimental.make_early_stopping_hook(model, lambda: True)
    model.train(numbers(), [hook], max_steps=300)
    assert model.train_result.global_step == min(iterations_per_loop, 50)


def test_by_time_a_function_is_called_after_so_many_seconds_each_time(make):
    model, clock, steps = make(), Clock(), []

    class TakeSeconds(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            clock.now += 10

    def should_stop_fn(step):
        steps.append(step)
        return False

    hook = EarlyStoppingHook(
        should_stop_fn, Schedule(every_secs=30, clock=clock, is_due_at_once=True)
    )
    model.train(numbers(), [TakeSeconds(), hook], max_steps=12)
    assert steps == [1, 4, 7, 10]


def test_it_reads_what_another_process_evaluates(make):
    """`train` alone: the event file is all that it has in common with an evaluation."""
    model = make(iterations_per_loop=4, save_checkpoints_steps=1000)
    hook = experimental.stop_if_higher_hook(
        model, "score", 0.5, run_every_secs=None, run_every_steps=3
    )

    class Evaluator(v1.train.SessionRunHook):
        def begin(self):
            self.step = v1.train.get_global_step().read_value()

        def after_run(self, run_context, run_values):
            if run_context.session.run(self.step) == 9:
                EventWriter(model.eval_dir()).write_metrics({"score": 0.6}, step=5)

    model.train(numbers(), [Evaluator(), hook], max_steps=50)
    close_event_files([model.eval_dir()])
    assert model.train_result.global_step == 9


def test_the_hooks_work_in_a_session_of_tensorflow_too(make):
    hook = experimental.make_early_stopping_hook(make(), lambda: True)
    with tf.Graph().as_default():
        train_op = v1.train.create_global_step().assign_add(1)
        with v1.train.SingularMonitoredSession([hook]) as session:
            session.run(train_op)
            assert session.should_stop()


def test_an_unknown_metric_is_named_when_there_are_evaluations_without_it(make):
    model = make()
    hook = experimental.stop_if_higher_hook(model, "scores", 0.5)
    with pytest.raises(ValueError, match=r"`metric_name` \('scores'\).*Did you mean 'score'\?"):
        run(model, hook)
    assert checkpoint_steps(model.model_dir) == [0, 10]


def test_a_metric_that_earlier_runs_did_not_have_yet_is_waited_for(make, tmp_path):
    with est.Estimator(Model(), str(tmp_path / "model")) as before:
        before.train(numbers(), steps=20)
        before.evaluate(numbers(2))
    model = make()
    assert run(model, experimental.stop_if_higher_hook(model, "score", 7.5)) == (70, "hook")


# The step of a checkpoint.


@LOOPS
def test_the_chief_stops_at_the_step_itself(make, iterations_per_loop):
    model = make(iterations_per_loop=iterations_per_loop, save_checkpoints_steps=None)
    hook = experimental.make_stop_at_checkpoint_step_hook(model, 23)
    model.train(numbers(), [hook], max_steps=300)
    assert model.train_result == est.TrainResult(23, model.train_result.loss, "hook")
    assert checkpoint_steps(model.model_dir) == [23]


WORKER = json.dumps(
    {
        "cluster": {"chief": ["localhost:1"], "worker": ["localhost:2"]},
        "task": {"type": "worker", "index": 0},
    }
)


def test_in_a_cluster_the_chiefs_hook_alone_asks(make):
    model = make(cluster=parse_tf_config(WORKER))
    asked = []
    hook = experimental.make_early_stopping_hook(model, lambda: asked.append(1) or True)
    assert not hook.should_stop_at(5)
    assert asked == []
    chief = make()
    run(chief, None, max_steps=10)
    for one, should_stop in ((chief, True), (model, False)):
        hook = experimental.stop_if_lower_hook(one, "score", 1e9)
        assert hook.should_stop_at(10) == should_stop


def test_the_evaluations_are_what_is_in_the_event_file(make):
    model = make()
    run(model, None, max_steps=30)
    scores = [v.simple_value for _, tag, v in events(model.eval_dir()) if tag == "score"]
    assert scores == SCORES[1:4]
