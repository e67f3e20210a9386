"""The thread that writes a checkpoint."""

import os
import subprocess
import sys

import pytest

from estimator.checkpoint.background import call_in_thread
from tests.toy import checkpoint_steps

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AFTER_MAIN = """
import sys
import threading
import tensorflow as tf
import estimator as est
from tests.toy import Model, numbers

has_begun = threading.Event()

class Wait(tf.compat.v1.train.SessionRunHook):
    step = 0

    def after_run(self, run_context, run_values):
        self.step += 1
        if self.step == 2:  # The event file, which has a thread, was opened with the first step.
            has_begun.set()
            threading.main_thread().join()

def train():
    config = est.RunConfig(save_checkpoints_steps=2, async_checkpoints=True)
    est.Estimator(Model(), sys.argv[1], config).train(numbers(), steps=5, hooks=[Wait()])
    print("trained")

threading.Thread(target=train).start()
has_begun.wait(60)
"""


def test_an_error_of_the_call_is_that_of_its_future():
    def fail():
        raise KeyError("disk")

    assert call_in_thread(lambda: None).result() is None
    with pytest.raises(KeyError, match="disk"):
        call_in_thread(fail).result()


def test_a_thread_may_train_on_when_the_main_thread_has_ended(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", AFTER_MAIN, tmp_path],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, b"trained\n"), done.stderr.decode()
    assert checkpoint_steps(tmp_path) == [0, 2, 4, 5]
