"""The launcher and the library together: workers that train, crash and are stopped."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from tests.launch import train_in_cluster
from tests.launch.launching import LIMIT_SECS, ROOT, environment, lines_of, run, started
from tests.toy import checkpoint_steps, weight_after

PROGRAM = ["--", "-m", train_in_cluster.__name__]


def weights_of(out):
    """By worker, the (step, weight) that it printed."""
    words = {name: lines_of(out, name)[-1].split() for name in ("worker 0", "worker 1")}
    return {name: (int(step), float(weight)) for name, (_, step, weight) in words.items()}


def expected_weight(num_steps):
    """Of one process with the batches of both workers."""
    return weight_after([[2 * step, 2 * step + 1] for step in range(num_steps)])


def launch(*arguments):
    return run(*arguments, env=environment(PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="3"))


@pytest.mark.full  # By default, a test below trains two workers until a signal stops them.
@pytest.mark.slow
def test_two_workers_train_as_one_process_would(tmp_path):
    finished = launch("--workers=2", *PROGRAM, str(tmp_path), "30")
    assert finished.returncode == 0, finished.stderr[-2000:]
    weights = weights_of(finished.stdout)
    assert weights["worker 0"] == weights["worker 1"]
    step, weight = weights["worker 0"]
    assert step == 30
    np.testing.assert_allclose(weight, expected_weight(30), rtol=1e-6)


# By default, test_launch.py restarts programs without TensorFlow, and integration/test_workers.py
# shows the weights after a kill.
@pytest.mark.full
@pytest.mark.slow
def test_after_a_crash_the_restarted_job_ends_as_if_there_had_been_none(tmp_path):
    finished = launch("--workers=2", "--restarts=1", *PROGRAM, str(tmp_path), "30", "kill")
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert "worker 1 was ended by SIGKILL" in finished.stderr
    assert finished.stderr.count("Started worker 0") == 2
    for step, weight in weights_of(finished.stdout).values():
        assert step == 30
        np.testing.assert_allclose(weight, expected_weight(30), rtol=1e-6)


@pytest.mark.full  # By default, test_launch.py shows it with programs without TensorFlow.
@pytest.mark.slow
def test_a_crash_without_restarts_is_the_exit_code(tmp_path):
    finished = launch("--workers=2", *PROGRAM, str(tmp_path), "30", "kill")
    assert finished.returncode == 137
    assert checkpoint_steps(tmp_path)[-1] >= 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "goes_on"),
    [
        (signal.SIGTERM, False),  # That a next run goes on, integration/test_workers.py shows.
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.full),
        pytest.param(signal.SIGKILL, True, marks=pytest.mark.full),
    ],
    ids=["SIGTERM", "SIGTERM and again", "SIGKILL and again"],
)
def test_a_signal_to_the_launcher_saves_the_step_that_was_reached(
    tmp_path, monkeypatch, number, goes_on
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with started("--workers=2", "--grace_secs=60", *PROGRAM, str(tmp_path), "0") as process:
        assert process.stdout.readline().endswith("trains\n")
        process.send_signal(number)
        _, err = process.communicate(timeout=LIMIT_SECS)
    assert process.returncode == (143 if number == signal.SIGTERM else -number)
    assert "SIGKILL" not in err
    step = checkpoint_steps(tmp_path)[-1]
    assert step > 0
    weight = tf.train.load_variable(f"{tmp_path}/model.ckpt-{step}", "w")
    np.testing.assert_allclose(weight, expected_weight(step), rtol=1e-6)
    if goes_on:
        finished = launch("--workers=2", *PROGRAM, str(tmp_path), str(step + 10))
        assert finished.returncode == 0, finished.stderr[-2000:]
        for last_step, weight in weights_of(finished.stdout).values():
            assert last_step == step + 10
            np.testing.assert_allclose(weight, expected_weight(step + 10), rtol=1e-6)
