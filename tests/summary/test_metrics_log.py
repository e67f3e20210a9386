import fcntl
import json
import logging
import math
import multiprocessing
import os
import time

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.config.cluster import Cluster
from estimator.summary import metrics_log
from estimator.summary.metrics_log import MetricsLog, metrics_in_words
from tests.full_disk import no_file_larger_than
from tests.toy import Model, numbers


def read(model_dir):
    with open(os.path.join(model_dir, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file]


def steps(model_dir):
    return [(line["kind"], line["step"]) for line in read(model_dir)]


@pytest.fixture
def log(tmp_path):
    return MetricsLog(str(tmp_path), clock=lambda: 1234.5678)


def test_a_line_of_a_training_and_of_an_evaluation(log, tmp_path):
    log.write_train(100, 0.25, 1234.56789)
    log.write_eval("dev", 100, {"loss": np.float32(0.5), "accuracy": 1, "global_step": 100})
    assert read(tmp_path) == [
        {"kind": "train", "step": 100, "loss": 0.25, "steps_per_sec": 1234.568}
        | {"wall_time": 1234.568},
        {"kind": "eval", "name": "dev", "step": 100, "loss": 0.5, "metrics": {"accuracy": 1}}
        | {"wall_time": 1234.568},
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.float32(0.1), pytest.approx(0.1)),
        (np.int64(2**53), 2**53),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.nan, -np.inf]), [1.0, None, None]),
        (math.nan, None),
        ("as it is", "as it is"),
        (b"an image", "left out"),
        (np.zeros(1001), "left out"),
        (np.array([b"bytes"]), "left out"),
    ],
    ids=str,
)
def test_every_metric_is_json_or_left_out(value, said, log, tmp_path):
    log.write_eval(None, 1, {"loss": 0.0, "metric": value})
    assert read(tmp_path)[0]["metrics"].get("metric", "left out") == said


def test_a_second_evaluation_of_a_step_by_a_name_takes_the_place_of_the_first(log, tmp_path):
    for loss in (1.0, 2.0):
        for name in (None, "dev"):
            log.write_eval(name, 5, {"loss": loss})
            log.write_train(6, loss, 1.0)
    evaluations = [line for line in read(tmp_path) if line["kind"] == "eval"]
    assert [(line["name"], line["loss"]) for line in evaluations] == [(None, 2.0), ("dev", 2.0)]
    assert len(read(tmp_path)) == 2 + 4


@pytest.mark.parametrize("torn", ['{"kind": "train", "st', '{"kind": "train", "step": 7}', "\0\0"])
@pytest.mark.parametrize("kind", ["train", "eval"])
def test_half_a_line_is_gone_before_the_next_is_written(torn, kind, log, tmp_path):
    log.write_train(5, 1.0, 1.0)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(torn)
    if kind == "train":
        log.resume_from(5)
        log.write_train(6, 1.0, 1.0)
    else:
        log.write_eval(None, 6, {"loss": 1.0})
    assert steps(tmp_path) == [("train", 5), (kind, 6)]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]


def test_what_lies_beyond_the_step_that_training_goes_on_from_is_forgotten(log, tmp_path):
    for step in (1, 2, 3):
        log.write_train(step, 1.0, 1.0)
        log.write_eval(None, step, {"loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"note": "of another program"}\n')
    log.resume_from(2)
    *lines, note = read(tmp_path)
    assert [(line["kind"], line["step"]) for line in lines] == [
        ("train", 1), ("eval", 1), ("train", 2), ("eval", 2),
    ]  # fmt: skip
    assert note == {"note": "of another program"}


def test_a_file_without_anything_to_forget_is_not_written_again(log, tmp_path):
    log.write_train(1, 1.0, 1.0)
    before = os.stat(tmp_path / "metrics.jsonl").st_ino
    log.resume_from(1)
    assert os.stat(tmp_path / "metrics.jsonl").st_ino == before


def write_many(model_dir, name, count):
    log = MetricsLog(model_dir)
    for step in range(count):
        log.write_eval(name, step % 7, {"loss": step})
        log.write_train(step, 0.0, 1.0)


def test_processes_beside_each_other_lose_no_line(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=write_many, args=(str(tmp_path), name, 60)) for name in ("a", "b")
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    lines = read(tmp_path)
    assert len([line for line in lines if line["kind"] == "train"]) == 120
    for name in ("a", "b"):
        kept = [line["step"] for line in lines if line.get("name") == name]
        assert sorted(kept) == list(range(7))


def test_a_program_may_run_under_a_lock_of_its_directory(log, tmp_path, monkeypatch):
    """As by `flock DIR COMMAND`. It waits for the lock once."""
    monkeypatch.setattr(metrics_log, "_LOCK_PATIENCE_SECS", 0.05)
    polls = []
    monkeypatch.setattr(time, "sleep", polls.append)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        log.write_train(0, 0.25, 1.0)
        num_polls = len(polls)
        for step in range(1, 10):
            log.write_train(step, 0.25, 1.0)
            log.write_eval(None, step, {"loss": 1.0})
    finally:
        os.close(descriptor)
    assert len(polls) == num_polls > 0
    assert len(read(tmp_path)) == 19


def test_metrics_in_words_are_the_numbers_with_the_step_first():
    metrics = {"loss": np.float32(0.25), "b": True, "image": b"", "global_step": 3, "row": [1, 2]}
    assert metrics_in_words(metrics) == "global_step = 3, b = 1, loss = 0.25"


@pytest.mark.parametrize(("loop", "told"), [(1, [4, 8, 10, 12, 14]), (100, [10, 14])])
def test_a_training_and_its_evaluations_have_their_lines(loop, told, tmp_path):
    """Logs do not cut loops: one that crosses an interval has its line at its end."""
    config = est.RunConfig(iterations_per_loop=loop, log_step_count_steps=4)
    model = est.Estimator(Model(), str(tmp_path), config)
    model.train(numbers(), steps=10)
    model.evaluate(numbers(4))
    model.evaluate(numbers(4), name="again")
    model.evaluate(numbers(4))
    model.train(numbers(), steps=4)
    train = [("train", step) for step in told]
    last = told.index(10) + 1
    assert steps(tmp_path) == [*train[:last], *[("eval", 10)] * 2, *train[last:]]
    names = [line["name"] for line in read(tmp_path) if line["kind"] == "eval"]
    assert names == ["again", None]
    result = model.evaluate(numbers(4))
    *_, last_train, evaluation = read(tmp_path)
    assert last_train["loss"] == model.train_result.loss
    assert evaluation["loss"] == pytest.approx(float(result["loss"]))
    assert evaluation["metrics"] == {"mean": 1.5}


def test_a_line_that_does_not_fit_on_the_disk_costs_nothing_but_itself(log, tmp_path, caplog):
    log.write_train(1, 0.5, 1.0)
    size = os.path.getsize(tmp_path / "metrics.jsonl")
    with no_file_larger_than(size + 20):
        for step in (2, 3):
            log.write_train(step, 0.5, 1.0)
        log.write_eval(None, 3, {"loss": 0.5})
        log.resume_from(2)
    log.write_train(4, 0.5, 1.0)
    assert steps(tmp_path) == [("train", 1), ("train", 4)]
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path / 'metrics.jsonl'} cannot be written: ")


def test_an_evaluation_of_an_old_step_replaces_its_line_far_from_the_end(log, tmp_path):
    log.write_eval("dev", 1, {"loss": 0.5})
    log.write_eval(None, 1, {"loss": 0.25})
    for step in range(2, 1000):
        log.write_train(step, 0.0, 1.0)
    log.write_eval("dev", 1, {"loss": 0.75})
    log.write_eval("dev", 999, {"loss": 0.75})
    found = [line for line in read(tmp_path) if line["kind"] == "eval"]
    assert [(line["name"], line["step"], line["loss"]) for line in found] == [
        (None, 1, 0.25),
        ("dev", 1, 0.75),
        ("dev", 999, 0.75),
    ]


def test_a_training_that_is_evaluated_on_the_way_and_run_again_has_no_step_twice(tmp_path):
    config = est.RunConfig(save_checkpoints_steps=4, log_step_count_steps=2)
    for max_steps in (8, 8, 12):
        model = est.Estimator(Model(), str(tmp_path), config)
        train_spec = est.TrainSpec(numbers(), max_steps=max_steps)
        eval_specs = [
            est.EvalSpec(numbers(3), name=name, throttle_secs=0) for name in ("dev", "test")
        ]
        est.train_and_evaluate(model, train_spec, eval_specs)
    lines = read(tmp_path)
    keys = [(line["kind"], line.get("name"), line["step"]) for line in lines]
    trained = [("train", None, step) for step in range(2, 13, 2)]
    evaluated = [("eval", name, step) for name in ("dev", "test") for step in (4, 8, 12)]
    assert sorted(keys, key=str) == sorted([*trained, *evaluated], key=str)


def test_a_worker_beside_the_chief_writes_and_says_none(tmp_path, caplog):
    chief = est.Estimator(Model(), str(tmp_path / "chief")).train(numbers(), steps=2)
    addresses = {"chief": ("localhost:1",), "worker": ("localhost:2",)}
    cluster = Cluster(addresses, "worker", 0, session_master="")
    model = est.Estimator(Model(), str(tmp_path / "worker"), est.RunConfig(cluster=cluster))
    path = tf.train.latest_checkpoint(str(tmp_path / "chief"))
    assert model.evaluate(numbers(2), checkpoint_path=path)["global_step"] == 2
    assert not os.path.exists(tmp_path / "worker" / "metrics.jsonl")
    with caplog.at_level(logging.INFO, "estimator"):
        for each, is_telling in ((model, False), (chief, True)):
            assert len(list(each.predict(numbers(2), checkpoint_path=path))) == 2
            assert (f"Predicting with {path}" in caplog.text) == is_telling


def test_a_nan_step_that_training_stops_at_has_no_line(tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, 2.0, math.nan, 4.0]).batch(1)

    config = est.RunConfig(nan_policy="stop", log_step_count_steps=1)
    model = est.Estimator(Model(), str(tmp_path), config)
    model.train(input_fn)
    assert model.train_result.reason == "nan loss"
    assert steps(tmp_path) == [("train", 1), ("train", 2)]
