"""R5 on one machine: SIGTERM and SIGINT save at the end of a loop and end the process."""

import os
import signal

import numpy as np
import pytest

import estimator as est
from tests.forked import Program
from tests.integration import signalled_run
from tests.toy import Model, checkpoint_steps, numbers, weight_after

EXIT_STATUS = {signal.SIGTERM: 143, signal.SIGINT: -signal.SIGINT}


def run_and_signal(model_dir, iterations_per_loop, phase, numbers_of_signals):
    """Sends the signals once the phase has begun; returns the exit status, stdout and stderr."""
    arguments = (model_dir, iterations_per_loop, phase)
    with Program(signalled_run.__file__, *arguments) as program:
        program.wait_for("begun\n")
        for number in numbers_of_signals:
            program.send(number)
        return program.status(), program.out, program.err


def assert_goes_on(model_dir):
    """The last checkpoint is whole steps of training, and another run goes on from it."""
    *_, step = checkpoint_steps(model_dir)
    with est.Estimator(Model(), str(model_dir)) as trained:
        ids = np.arange(step, dtype=np.float64)
        expected = weight_after([[i] for i in ids])
        np.testing.assert_allclose(trained.get_variable_value("w"), expected, rtol=1e-6)
        trained.train(numbers(), steps=5)
        assert trained.train_result.global_step == step + 5
        expected = weight_after([[i] for i in range(step + 5)])
        np.testing.assert_allclose(trained.get_variable_value("w"), expected, rtol=1e-6)
    return step


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("number", EXIT_STATUS)
@pytest.mark.parametrize("iterations_per_loop", [1, 500])
def test_a_signal_in_training_saves_at_the_end_of_a_loop(tmp_path, number, iterations_per_loop):
    status, out, err = run_and_signal(tmp_path, iterations_per_loop, "train", [number])
    assert status == EXIT_STATUS[number], err[-2000:]
    assert out.endswith("ended\n")  # Hooks were told.
    assert assert_goes_on(tmp_path) % iterations_per_loop == 0


@pytest.mark.slow
@pytest.mark.parametrize("second", EXIT_STATUS)
def test_a_second_signal_ends_it_and_harms_nothing(tmp_path, second):
    status, _, err = run_and_signal(tmp_path, 50, "train", [signal.SIGTERM, second, second])
    assert status in (143, -second), err[-2000:]
    if checkpoint_steps(tmp_path):
        assert_goes_on(tmp_path)
    else:
        with est.Estimator(Model(), str(tmp_path)) as trained:
            trained.train(numbers(), steps=5)
            assert trained.train_result.global_step == 5


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["evaluate", "export"])
def test_a_signal_outside_of_training_ends_the_process_at_once(tmp_path, phase):
    status, _, err = run_and_signal(tmp_path, 10, phase, [signal.SIGTERM])
    assert status == -signal.SIGTERM, err[-2000:]
    assert assert_goes_on(tmp_path) == 3
    assert not (tmp_path / "export").exists() or os.listdir(tmp_path / "export") == []


@pytest.mark.slow
def test_the_programs_own_handler_is_left_alone(tmp_path):
    status, out, err = run_and_signal(tmp_path, 10, "own handler", [signal.SIGTERM])
    assert status == 7, err[-2000:]
    assert "the program's own" in out


@pytest.mark.slow
def test_training_in_a_thread_leaves_signals_alone(tmp_path):
    status, _, err = run_and_signal(tmp_path, 10, "thread", [signal.SIGTERM])
    assert status == -signal.SIGTERM, err[-2000:]


def test_after_training_the_handlers_are_the_old_ones(tmp_path):
    before = {number: signal.getsignal(number) for number in EXIT_STATUS}
    with est.Estimator(Model(), str(tmp_path)) as trained:
        trained.train(numbers(), steps=2)
    assert {number: signal.getsignal(number) for number in EXIT_STATUS} == before
