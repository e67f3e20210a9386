"""A loop that is asked to last a time lasts it, within 30 %, once that time is calibrated."""

import functools

import pytest
import tensorflow as tf

import estimator as est
from estimator.training.loop_autotuner import LoopAutotuner
from estimator.training.request import TrainRequest
from tests.toy import checkpoint_steps, events

v1 = tf.compat.v1


def run(pace, secs_of, num_loops):
    """The lengths of loops, where `secs_of` says how long one of so many steps takes."""
    lengths = []
    for _ in range(num_loops):
        lengths.append(pace.num_steps())
        pace.record(lengths[-1], secs_of(lengths[-1]))
    return lengths


@pytest.mark.parametrize("secs", [1, 2, 30])
@pytest.mark.parametrize("step_secs", [1e-5, 1e-3, 0.3, 2.0])
@pytest.mark.parametrize("call_secs", [0.0, 1e-3, 0.05])
def test_loops_come_to_last_the_time_asked(secs, step_secs, call_secs):
    def secs_of(num_steps):
        return call_secs + num_steps * step_secs

    # A first call is slow; 8 times as long each, from 1 to 3,000,000 steps, are 8 loops and a few.
    pace = LoopAutotuner(f"{secs}s")
    assert pace.num_steps() == 1
    pace.record(1, 5.0)
    for num_steps in run(pace, secs_of, 20)[12:]:
        assert num_steps == 1 or secs_of(num_steps) == pytest.approx(secs, rel=0.3)
        assert num_steps > 1 or secs_of(2) > secs


def test_the_first_call_says_nothing_of_the_next():
    pace = LoopAutotuner("10s")
    pace.record(1, 100.0)
    assert run(pace, lambda n: n * 0.1, 5) == [1, 8, 64, 100, 100]


def test_a_loop_grows_by_eight_at_most():
    pace = LoopAutotuner("3600s")
    pace.record(1, 1.0)
    assert run(pace, lambda n: 0.0, 12)[:4] == [1, 8, 64, 512]
    assert pace.num_steps() <= 10**9


def test_a_step_that_gets_slower_gets_shorter_loops():
    pace = LoopAutotuner("1s")
    pace.record(1, 1.0)
    assert run(pace, lambda n: n * 0.001, 6)[-1] == 1000
    assert run(pace, lambda n: n * 0.01, 6)[-1] == pytest.approx(100, rel=0.3)


def test_loops_that_something_cuts_short_do_not_mislead():
    pace = LoopAutotuner("1s")
    pace.record(1, 1.0)
    run(pace, lambda n: 0.01 + n * 0.001, 6)
    pace.record(3, 0.013)
    assert 0.01 + pace.num_steps() * 0.001 == pytest.approx(1, rel=0.3)


def test_a_number_of_steps_is_just_that():
    pace = LoopAutotuner(7)
    assert run(pace, lambda n: 100.0, 3) == [7, 7, 7]


class Clock:
    """A clock that StepTime sets forward."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class StepTime(v1.train.SessionRunHook):
    """Makes each step take a time; notes that of each session call."""

    def __init__(self, clock, step_secs):
        self._clock, self._step_secs = clock, step_secs
        self.secs = []

    def after_create_session(self, session, coord):
        self._step = session.run(v1.train.get_global_step(session.graph))

    def after_run(self, run_context, run_values):
        step = run_context.session.run(v1.train.get_global_step(run_context.session.graph))
        self.secs.append(float(step - self._step) * self._step_secs)
        self._clock.now += self.secs[-1]
        self._step = step


def input_fn():
    return tf.data.Dataset.range(10**9).batch(1)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    request = functools.partial(TrainRequest, clock=clock)
    monkeypatch.setattr("estimator.estimators.estimator.TrainRequest", request)
    return clock


def model_fn(features, mode):
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.square(w - tf.reduce_mean(tf.cast(features, tf.float32)) / 1e6)
    train_op = v1.train.GradientDescentOptimizer(0.01).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.mark.parametrize(("length", "secs"), [("auto", 1), ("2s", 2), ("1m", 60)])
def test_loops_of_training_last_the_time_asked(length, secs, clock, tmp_path):
    config = est.RunConfig(iterations_per_loop=length, save_checkpoints_steps=None)
    steps = StepTime(clock, secs / 90)
    model = est.Estimator(model_fn, str(tmp_path), config.replace(save_summary_steps=None))
    model.train(input_fn, [steps], max_steps=1000)
    whole = steps.secs[5:-1]
    assert len(whole) >= 5
    assert whole == pytest.approx([secs] * len(whole), rel=0.3)


def test_intervals_stay_exact_and_the_graph_is_built_once(clock, tmp_path):
    built = []

    def counting(features, mode):
        built.append(mode)
        return model_fn(features, mode)

    config = est.RunConfig(
        iterations_per_loop="2s",
        save_checkpoints_steps=70,
        save_summary_steps=30,
        keep_checkpoint_max=None,
    )
    model = est.Estimator(counting, str(tmp_path), config)
    model.train(input_fn, [StepTime(clock, 0.05)], max_steps=230)
    assert checkpoint_steps(model.model_dir) == [0, 70, 140, 210, 230]
    written = [step for step, tag, _ in events(model.model_dir) if tag == "loss"]
    assert written == [1, 30, 60, 90, 120, 150, 180, 210]
    assert built == ["train"]


def test_the_weights_do_not_depend_on_the_pace(clock, tmp_path):
    weights = []
    for length in (1, "auto", "1h"):
        config = est.RunConfig(iterations_per_loop=length)
        model = est.Estimator(model_fn, str(tmp_path / str(length)), config)
        model.train(input_fn, [StepTime(clock, 0.01)], max_steps=100)
        weights.append(model.get_variable_value("w"))
    assert weights[0] == weights[1] == weights[2]


# Stopping after a time.


@pytest.mark.parametrize(("loop", "stop"), [(1, 51), (10, 60), (100, 100)])
def test_training_stops_at_the_first_loop_end_after_the_time(loop, stop, clock, tmp_path):
    config = est.RunConfig(iterations_per_loop=loop, max_time_secs=50.5)
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(input_fn, [StepTime(clock, 1.0)], max_steps=1000)
    assert model.train_result.reason == "max_time"
    assert model.train_result.global_step == stop
    assert checkpoint_steps(model.model_dir) == [0, stop]
    model.train(input_fn, [StepTime(clock, 1.0)], max_steps=1000)  # The time is that of one call.
    assert model.train_result.global_step == 2 * stop


def test_a_limit_that_is_reached_with_the_time_is_the_reason(clock, tmp_path):
    config = est.RunConfig(iterations_per_loop=10, max_time_secs=20)
    model = est.Estimator(model_fn, str(tmp_path), config)
    model.train(input_fn, [StepTime(clock, 1.0)], max_steps=20)
    assert model.train_result.reason == "max_steps"
    model.train(input_fn, [StepTime(clock, 1.0)], max_steps=25)
    assert model.train_result.reason == "max_steps"
    assert model.train_result.global_step == 25
