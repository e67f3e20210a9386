"""The thread that writes a checkpoint."""

import os
import subprocess
import sys

import pytest

from estimator.checkpoint.background import call_in_thread

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AFTER_MAIN = """
import threading
from estimator.checkpoint.background import call_in_thread

def train():
    threading.main_thread().join()
    call_in_thread(lambda: print("written")).result()

threading.Thread(target=train).start()
"""


def test_an_error_of_the_call_is_that_of_its_future():
    def fail():
        raise KeyError("disk")

    assert call_in_thread(lambda: None).result() is None
    with pytest.raises(KeyError, match="disk"):
        call_in_thread(fail).result()


def test_a_thread_may_train_on_when_the_main_thread_has_ended():
    environment = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run(
        [sys.executable, "-c", AFTER_MAIN],
        env=environment,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, b"written\n")
