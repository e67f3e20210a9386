import os
import signal
import subprocess
import sys

import pytest

import estimator as est
from estimator.checkpoint.trainer_lock import FILE_NAME, trainer_lock
from tests.toy import Model, numbers

# Holds the lock of a directory until a line comes.
_HOLD = """
import sys
from estimator.checkpoint.trainer_lock import trainer_lock
with trainer_lock(sys.argv[1], 0):
    print("holds", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that trains in `tmp_path`."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "holds\n"
        yield process
        process.kill()


def test_a_second_trainer_is_told_of_the_first_and_writes_nothing(tmp_path, holder):
    config = est.RunConfig(session_creation_timeout_secs=0.1)
    with (
        est.Estimator(Model(), str(tmp_path), config) as second,
        pytest.raises(RuntimeError, match=rf"`model_dir` .* by process {holder.pid} on .*: end"),
    ):
        second.train(numbers(), steps=1)
    assert os.listdir(tmp_path) == [FILE_NAME]
    holder.communicate("\n")  # The first comes to its end.
    assert os.listdir(tmp_path) == []


def test_a_trainer_that_was_killed_holds_no_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert os.listdir(tmp_path) == [FILE_NAME]
    with est.Estimator(Model(), str(tmp_path)) as second:
        second.train(numbers(), steps=1)
    assert FILE_NAME not in os.listdir(tmp_path)


def test_a_trainer_waits_for_one_that_is_ending(tmp_path, holder, caplog):
    waits = []

    def sleep(secs):
        waits.append(secs)
        holder.communicate("\n")

    caplog.set_level("INFO", "estimator")
    with trainer_lock(str(tmp_path), 10, clock=lambda: 0.0, sleep=sleep):
        assert len(waits) == 1
    assert caplog.messages[0].endswith(": waiting for it to end")


def test_one_process_cannot_train_twice_at_once_in_a_directory(tmp_path):
    with (
        trainer_lock(str(tmp_path), 0),
        pytest.raises(RuntimeError, match="by this process already"),
        trainer_lock(str(tmp_path), 1000),
    ):
        pass


def test_a_directory_that_training_made_and_left_empty_is_removed(tmp_path):
    with trainer_lock(str(tmp_path / "new"), 0):
        assert os.listdir(tmp_path / "new") == [FILE_NAME]
    assert os.listdir(tmp_path) == []
