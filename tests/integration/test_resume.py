"""R4 on one machine: a run that was killed and resumed is the run that was not."""

import signal

import numpy as np
import pytest
import tensorflow as tf

from tests.forked import Program
from tests.integration import resumable_run
from tests.toy import checkpoint_steps


def run_process(model_dir, strategy, iterations_per_loop, dropout, kill_at_step=0):
    """Runs `resumable_run` in a process of its own; returns its exit status."""
    arguments = (model_dir, strategy, iterations_per_loop, dropout, kill_at_step)
    with Program(resumable_run.__file__, *arguments) as program:
        assert program.status() in (0, -signal.SIGKILL), program.err[-3000:]
        return program.status()


def values_of(model_dir):
    """Every value in the newest checkpoint: weights, Adam's slots, the global step, seeds."""
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(model_dir))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_bit_equal(ours, expected):
    assert set(ours) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


CASES = [
    ("none", 1, "none"),
    ("none", 5, "keras"),
    ("mirrored", 1, "keras"),
    ("mirrored", 5, "none"),
    ("none", 1, "tf"),
    ("none", 5, "tf"),
    ("mirrored", 1, "tf"),
    ("mirrored", 5, "tf"),
    ("one_device", 5, "tf"),
    ("central_storage", 1, "tf"),
    ("central_storage", 5, "keras"),
    ("none", 1, "tf_x3"),
    ("mirrored", 5, "tf_x3"),
]


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "iterations_per_loop", "dropout"), CASES)
def test_a_killed_and_resumed_run_is_bit_equal_to_an_unbroken_one(
    tmp_path, strategy, iterations_per_loop, dropout
):
    case = (strategy, iterations_per_loop, dropout)
    broken, unbroken = str(tmp_path / "broken"), str(tmp_path / "unbroken")
    assert run_process(broken, *case, kill_at_step=17) == -signal.SIGKILL
    assert checkpoint_steps(broken)[-1] == 14
    assert run_process(broken, *case) == 0
    with resumable_run.run(unbroken, *case) as whole:
        assert whole.train_result.global_step == resumable_run.MAX_STEPS
    expected = values_of(unbroken)
    assert expected["global_step"] == resumable_run.MAX_STEPS
    assert len(expected) >= 9  # Two weights with two slots each, Adam's two powers, the step.
    assert_bit_equal(values_of(broken), expected)
    assert checkpoint_steps(broken) == checkpoint_steps(unbroken) == [0, 7, 14, 21, 25]


@pytest.mark.slow
def test_a_killed_run_without_v2_behavior_resumes_bit_equal(tmp_path):
    case = ("mirrored", 5, "tf_v1")
    broken, unbroken = str(tmp_path / "broken"), str(tmp_path / "unbroken")
    assert run_process(broken, *case, kill_at_step=17) == -signal.SIGKILL
    assert run_process(broken, *case) == 0
    assert run_process(unbroken, *case) == 0
    expected = values_of(unbroken)
    assert expected["global_step"] == resumable_run.MAX_STEPS
    assert_bit_equal(values_of(broken), expected)
