"""What a training tells people, on a clock that the test turns."""

import dataclasses
import os
import re
import sys

import pytest
import tensorflow as tf

import estimator as est
from estimator import console
from estimator.config.cluster import Cluster
from estimator.input.input_calls import Input
from estimator.runtime.local import make_plain_runtime
from estimator.summary.event_writer import EventWriter
from estimator.training import report
from estimator.training.open_training import OpenTraining
from estimator.training.progress_bar import ProgressBar
from estimator.training.report import Span, TrainReport
from estimator.training.request import TrainRequest
from tests.toy import Model, events, numbers


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def __call__(self):
        return self.now


class FakeProgram:
    """What a report reads of a program."""

    def __init__(self, batch_size=None):
        spec = tf.TensorSpec([batch_size, 2])
        self.input = Input(None, None, (), (spec, spec))
        self.runtime = make_plain_runtime(est.RunConfig(), est.ModeKeys.TRAIN)
        self.accumulation = None


@pytest.fixture
def said(monkeypatch):
    """The lines, as they come."""
    assert est.Estimator  # Imports every module first, so that none keeps the replaced `say`.
    lines = []
    monkeypatch.setattr(console, "say", lambda message, *args: lines.append(message % args))
    return lines


def make_report(tmp_path, clock, first_step=0, last_step=1000, checkpoint=None, **fields):
    config = est.RunConfig(model_dir=str(tmp_path), **fields)
    request = TrainRequest(config, None, None, (), (), is_same_input=True, clock=clock)
    training = OpenTraining(FakeProgram(), None, request, None, None, None)
    span = Span(first_step, last_step, checkpoint)
    return TrainReport(training, span, EventWriter(str(tmp_path)))


def test_the_rate_and_the_time_left_are_those_of_the_interval(tmp_path, said):
    clock = Clock()
    with make_report(tmp_path, clock, first_step=100) as told:
        clock.now = 10.0
        told.tell(200, 0.5)
        clock.now = 11.0
        told.tell(400, 0.25)
        clock.now = 12.0
        told.end(450, 0.125, "signal")
    assert said[1:3] == [
        "step 200 of 1,000: loss 0.5, 10 steps/s, 1:20 left",
        "step 400 of 1,000: loss 0.25, 200 steps/s, 3.0 s left",
    ]
    assert said[3].startswith(
        "Training stopped at step 450 (signal): 350 steps in 0:12, 29.2 steps/s, loss 0.125. "
        "Checkpoint: none\nTensorBoard: "
    )
    EventWriter(str(tmp_path)).flush()
    rates = [
        (step, v.simple_value) for step, tag, v in events(tmp_path) if tag == "global_step/sec"
    ]
    assert rates == [(200, 10.0), (400, 200.0)]


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(0, 1000, None), "from step 0 to 1,000"),
        (Span(1500, None, "a/model.ckpt-1500"), "from step 1,500 (model.ckpt-1500) to the end of"),
    ],
)
def test_the_span_in_words(span, words):
    assert str(span).startswith(words)


@pytest.mark.parametrize(
    ("fields", "num_batches", "batch_size", "words"),
    [
        ({}, 1, 5, "1 step a session call, 1 replica, 5 examples a step"),
        ({}, 1, None, "1 step a session call, 1 replica"),
        ({}, 2, None, "1 step a session call, 1 replica, 2 batches a step"),
        ({"iterations_per_loop": "auto"}, 1, 5, "about 1 s a session call, 1 replica, 5 examples"),
        ({"iterations_per_loop": 20}, 3, 5, "3 steps a session call, 1 replica, 3 batches of 5 ex"),
        (
            {"strategy": "mirrored", "num_replicas": 2},
            3,
            5,
            "1 step a session call, 2 replicas (mirrored), 3 batches of 2 x 5 = 10 examples a step",
        ),
    ],
)
def test_the_start_says_how_a_step_is_made(fields, num_batches, batch_size, words, tmp_path, said):
    def model_fn(features, mode):
        loss = tf.compat.v1.get_variable("w", []) * tf.reduce_sum(tf.cast(features, tf.float32))
        sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        optimizer = est.CrossShardOptimizer(sgd, accumulate_steps=num_batches)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.counter().batch(5, drop_remainder=batch_size is not None)

    est.Estimator(model_fn, str(tmp_path), est.RunConfig(**fields)).train(input_fn, steps=3)
    start = f"Training in {tmp_path} from step 0 to 3: {words}"
    assert said[0].startswith(start) if words.endswith((" ex", "examples")) else said[0] == start


@pytest.mark.parametrize(
    ("last_step", "step", "line"),
    [
        (None, 300, "step 300: loss 0.5, 150 steps/s"),
        (1000, 0, "step 0 of 1,000: loss 0.5, 0 steps/s"),
    ],
)
def test_without_a_last_step_or_a_speed_there_is_no_time_left(
    last_step, step, line, tmp_path, said
):
    clock = Clock()
    with make_report(tmp_path, clock, last_step=last_step) as told:
        clock.now = 2.0
        told.tell(step, 0.5)
    assert said[1] == line


def test_beyond_the_last_step_there_is_no_time_left(tmp_path, said):
    clock = Clock()
    with make_report(tmp_path, clock, last_step=300) as told:
        clock.now = 2.0
        told.tell(301, 0.5)
        told.end(301, 0.5, "max_steps")
    assert said[1] == "step 301: loss 0.5, 150 steps/s"
    assert "at step 301 (max_steps; each worker that shares variables may make one" in said[2]


def test_a_run_that_is_shorter_than_a_loop_says_how_long_its_call_is(tmp_path, said):
    for fields in ({"last_step": 12}, {"first_step": 990}, {"last_step": None}):
        with make_report(tmp_path, Clock(), iterations_per_loop=1000, **fields):
            pass
    words = [line.partition(": ")[2].partition(" a session")[0] for line in said]
    assert words == ["12 steps", "10 steps", "1,000 steps"]


@pytest.mark.parametrize(
    ("secs", "words"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (9.99, "0:10"), (75, "1:15"), (3600, "1:00:00")],
)
def test_times_in_words(secs, words):
    assert report._clock_time(secs) == words


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({}, True),
        ({"cluster": Cluster({"chief": ("a:1",), "worker": ("b:1",)}, "chief", 0)}, True),
        ({"cluster": Cluster({"chief": ("a:1",), "worker": ("b:1",)}, "worker", 0)}, False),
        ({"cluster": Cluster({"worker": ("a:1", "b:1")}, "worker", 0)}, True),
        ({"cluster": Cluster({"worker": ("a:1", "b:1")}, "worker", 1)}, False),
    ],
)
def test_of_a_cluster_only_the_chief_tells_more_than_start_and_end(fields, is_told, tmp_path, said):
    clock = Clock()
    with make_report(tmp_path, clock, **fields) as told:
        clock.now = 1.0
        told.advance(50, 0.5)
        told.tell(100, 0.5)
        told.end(100, 0.5, "steps")
    assert said[0].startswith("Training in " if is_told else "Worker ")
    assert len(said) == (3 if is_told else 2)
    if not is_told:
        own = f"Worker {fields['cluster'].task_id}"
        assert said[0] == f"{own} trains from step 0 to 1,000"
        assert said[1] == f"{own} stopped at step 100 (steps): 100 steps in 1.0 s"
    assert os.path.exists(tmp_path / "metrics.jsonl") == is_told
    EventWriter(str(tmp_path)).flush()
    assert [tag for _, tag, _ in events(tmp_path)] == ["global_step/sec"]


class Screen:
    """A terminal that counts its drawings."""

    encoding = "utf-8"

    def __init__(self):
        self.drawn = []

    def write(self, text):
        self.drawn.append(text)

    def flush(self):
        pass


def test_a_bar_is_drawn_ten_times_a_second_however_many_calls_there_are():
    clock, screen = Clock(), Screen()
    bar = ProgressBar(0, 10_000, clock=clock, file=screen)
    before = len([text for text in screen.drawn if "%|" in text])
    for step in range(1, 10_001):
        clock.now = step / 5000
        bar.advance(step, 0.5)
    drawn = [text for text in screen.drawn if "%|" in text]
    assert 18 <= len(drawn) - before <= 20
    assert "/10000 [" in drawn[-1]
    assert "loss=0.5" in drawn[-1]
    bar.clear()
    assert re.search(r"\r {60,}\r$", "".join(screen.drawn))
    bar.close()
    assert screen.drawn[-1] == "\r"


def test_no_interval_of_logs_means_no_bar_and_no_lines(tmp_path, monkeypatch, said):
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    config = est.RunConfig(log_step_count_steps=None)
    est.Estimator(Model(), str(tmp_path), config).train(numbers(), max_steps=300)
    assert [line.split(" ")[:2] for line in said] == [["Training", "in"], ["Training", "stopped"]]


@pytest.mark.parametrize("is_beside", [True, False])
def test_the_command_is_the_one_that_the_shell_finds(is_beside, tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    script = tmp_path / ("bin" if is_beside else "other") / "tensorboard"
    for path in (python, script):
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(script.parent))
    command = report.tensorboard_command("runs/a model")
    start = "tensorboard" if is_beside else f"{python} -m tensorboard.main"
    assert command == f"{start} --logdir 'runs/a model'"


@pytest.mark.parametrize(
    ("element", "size"),
    [
        (tf.TensorSpec([5, 2]), 5),
        ((tf.TensorSpec([5]), {"a": tf.TensorSpec([5, 1])}), 5),
        ((tf.TensorSpec([5]), tf.TensorSpec([4])), None),
        (tf.TensorSpec([None, 2]), None),
        (tf.TensorSpec([]), None),
        (tf.TensorSpec(None), None),
        (tf.SparseTensorSpec([5, 9]), 5),
        (tf.RaggedTensorSpec([5, None]), 5),
    ],
    ids=str,
)
def test_the_batch_size_is_what_all_tensors_agree_on(element, size):
    whole = Input(None, None, (), (element, None))
    assert whole.batch_size == size
    assert dataclasses.replace(whole, is_split=True).batch_size is None
