"""The hooks that stop a training early, and what they read."""

import os

import pytest

from tests.contract.names import est, forever, mean_model_fn, tf, v1, v1est

X = est.experimental


@pytest.mark.parametrize(
    "name",
    [
        "InMemoryEvaluatorHook",
        "build_raw_supervised_input_receiver_fn",
        "call_logit_fn",
        "make_early_stopping_hook",
        "make_stop_at_checkpoint_step_hook",
        "stop_if_higher_hook",
        "stop_if_lower_hook",
        "stop_if_no_decrease_hook",
        "stop_if_no_increase_hook",
    ],
)
def test_name_is_in_both_places(name):
    assert getattr(X, name) is getattr(v1est.experimental, name)


@pytest.fixture
def trained(tmp_path):
    """An estimator that each test trains for at most five steps."""
    return est.Estimator(mean_model_fn, os.fspath(tmp_path / "model"))


def write(directory, values):
    """Event files with a metric by step."""
    with tf.Graph().as_default():
        writer = v1.summary.FileWriter(os.fspath(directory))
        for step, value in values.items():
            summary = v1.Summary(value=[v1.Summary.Value(tag="score", simple_value=value)])
            writer.add_summary(summary, step)
        writer.close()
    return os.fspath(directory)


def stops(trained, hook):
    """Whether a training of five steps ends before the last."""
    trained.train(forever(), hooks=[hook], steps=5)
    return int(trained.get_variable_value("global_step")) < 5


FALLING = {1: 3.0, 2: 2.0, 3: 1.0}
RISING = {1: 1.0, 2: 2.0, 3: 3.0}
NOW = {"run_every_secs": None, "run_every_steps": 1}

CASES = {
    "decreases": (X.stop_if_no_decrease_hook, FALLING, (2,), {}, False),
    "does not decrease": (X.stop_if_no_decrease_hook, RISING, (2,), {}, True),
    "not yet": (X.stop_if_no_decrease_hook, RISING, (3,), {}, False),
    "did not decrease for less": (X.stop_if_no_decrease_hook, RISING, (1,), {}, True),
    "before min_steps": (X.stop_if_no_decrease_hook, RISING, (2,), {"min_steps": 10**6}, False),
    "stays the same": (X.stop_if_no_decrease_hook, {1: 1.0, 3: 1.0}, (2,), {}, True),
    "increases": (X.stop_if_no_increase_hook, RISING, (2,), {}, False),
    "does not increase": (X.stop_if_no_increase_hook, FALLING, (2,), {}, True),
    "is higher": (X.stop_if_higher_hook, RISING, (2.5,), {}, True),
    "is not higher": (X.stop_if_higher_hook, RISING, (3.0,), {}, False),
    "was higher": (X.stop_if_higher_hook, FALLING, (2.5,), {}, True),
    "higher before min_steps": (X.stop_if_higher_hook, RISING, (2.5,), {"min_steps": 10**6}, False),
    "is lower": (X.stop_if_lower_hook, FALLING, (1.5,), {}, True),
    "is not lower": (X.stop_if_lower_hook, FALLING, (1.0,), {}, False),
    "no evaluations": (X.stop_if_lower_hook, {}, (1.0,), {}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_stops_when_the_metric(trained, tmp_path, case):
    make, values, arguments, rest, expected = CASES[case]
    where = os.fspath(tmp_path / "evaluations")
    if values:
        write(where, values)
    hook = make(trained, "score", *arguments, eval_dir=where, **NOW, **rest)
    assert stops(trained, hook) is expected


def test_default_directory_is_that_of_evaluations(trained):
    write(trained.eval_dir(), RISING)
    assert stops(trained, X.stop_if_higher_hook(trained, "score", 2.5, **NOW))


MAKERS = {
    "no_decrease": lambda e, **rest: X.stop_if_no_decrease_hook(e, "score", 1, **rest),
    "no_increase": lambda e, **rest: X.stop_if_no_increase_hook(e, "score", 1, **rest),
    "higher": lambda e, **rest: X.stop_if_higher_hook(e, "score", 1, **rest),
    "lower": lambda e, **rest: X.stop_if_lower_hook(e, "score", 1, **rest),
    "floats": lambda e, **rest: X.stop_if_no_decrease_hook(e, "score", 1.0, min_steps=2e3, **rest),
    "a function": lambda e, **rest: X.make_early_stopping_hook(e, lambda: False, **rest),
}


@pytest.mark.parametrize("case", MAKERS)
def test_hook_is_a_session_run_hook(trained, case):
    assert isinstance(MAKERS[case](trained), v1.train.SessionRunHook)


@pytest.mark.parametrize("case", MAKERS)
def test_no_estimator_is_an_error(case):
    with pytest.raises((TypeError, AttributeError)):
        MAKERS[case]("estimator")


@pytest.mark.parametrize(
    "rest",
    [
        {"run_every_secs": None, "run_every_steps": None},
        {"run_every_secs": 1, "run_every_steps": 1},
    ],
    ids=["no interval", "two intervals"],
)
def test_wrong_intervals_are_a_value_error(trained, rest):
    with pytest.raises(ValueError):
        MAKERS["a function"](trained, **rest)


def test_a_function_of_the_program_decides(trained):
    calls = []

    def should_stop():
        calls.append(1)
        return True

    assert stops(trained, X.make_early_stopping_hook(trained, should_stop, **NOW))
    assert len(calls) == 1


def test_a_function_that_says_no_is_asked_again(trained):
    calls = []

    def should_stop():
        calls.append(1)

    assert not stops(trained, X.make_early_stopping_hook(trained, should_stop, **NOW))
    # 2.15 may read the step before it is counted, and then takes two steps for one.
    assert 2 <= len(calls) <= 5


def test_stopping_at_the_step_of_a_checkpoint(trained):
    hook = X.make_stop_at_checkpoint_step_hook(trained, last_step=2)
    trained.train(forever(), hooks=[hook], steps=5)
    assert int(trained.get_variable_value("global_step")) == 2


def resume_with_early_stopping(path):
    made = est.Estimator(mean_model_fn, os.fspath(path)).train(forever(), steps=1)
    hook = est.experimental.make_early_stopping_hook(made, lambda: False, run_every_secs=60)
    return made.train(forever(), hooks=[hook], steps=1).get_variable_value("global_step")


@pytest.mark.only_2_15("early stopping of a resumed run")
def test_a_checkpoint_without_the_hooks_variable_is_an_error(tmp_path):
    with pytest.raises(Exception, match="signal_early_stopping|STOP"):
        resume_with_early_stopping(tmp_path)


@pytest.mark.only_here("early stopping of a resumed run")
def test_a_checkpoint_without_the_hooks_variable_is_resumed(tmp_path):
    assert resume_with_early_stopping(tmp_path) == 2
