"""Event files of an estimator that nothing refers to."""

import threading
import time

import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers

CACHE = tf.compat.v1.summary.FileWriterCache
LIMIT_SECS = 60


def test_collecting_an_estimator_waits_for_no_lock_and_closes_its_files(tmp_path):
    """A writer's thread starts while its maker holds the lock, and may collect garbage first."""
    held = [est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=1)]
    directory = str(tmp_path)
    collects = threading.Thread(target=held.clear, daemon=True)
    with CACHE._lock:
        assert directory in CACHE._cache
        collects.start()
        collects.join(LIMIT_SECS)
        assert not collects.is_alive()
    end = time.monotonic() + LIMIT_SECS
    while directory in CACHE._cache:
        assert time.monotonic() < end
        time.sleep(0.01)
