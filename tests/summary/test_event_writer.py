"""Event files of an estimator that nothing refers to, and those that cannot be written."""

import os
import shutil
import threading
import time

import pytest
import tensorflow as tf

import estimator as est
from estimator.summary.event_writer import EventWriter
from tests.full_disk import no_file_larger_than
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


def events_in(directory):
    paths = sorted(tf.io.gfile.glob(f"{directory}/*tfevents*"))
    events = [e for path in paths for e in tf.compat.v1.train.summary_iterator(path)]
    return [(e.step, v.simple_value) for e in events for v in e.summary.value]


# TensorFlow's thread ends by the error.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_events_that_do_not_fit_on_the_disk_are_lost_and_later_ones_are_not(tmp_path, caplog):
    writer = EventWriter(str(tmp_path))
    for start in (0, 10):  # Two times.
        with no_file_larger_than(0):
            for step in range(start, start + 5):
                writer.write_scalars({"a": 0.5}, step)
                writer.flush()
                writer.write_scalars({"a": 0.25}, step)
        writer.flush()
        writer.write_scalars({"a": 0.5}, start + 5)
        writer.flush()
    assert events_in(tmp_path) == [(5, 0.5), (15, 0.5)]
    messages = [m for m in caplog.messages if "writer thread" not in m]
    assert len(messages) == 2
    assert messages[0].startswith(f"Events cannot be written in {tmp_path}: ")
    assert len(os.listdir(tmp_path)) <= 12
    CACHE.clear()


def test_what_is_removed_between_two_calls_takes_no_later_event_with_it(tmp_path):
    directory = tmp_path / "model"
    with est.Estimator(Model(), str(directory)) as model:
        model.train(numbers(), steps=2)
        model.evaluate(numbers(3))
        shutil.rmtree(directory / "eval")
        model.evaluate(numbers(3))
        assert events_in(directory / "eval")
        shutil.rmtree(directory)
        model.train(numbers(), steps=2)
        (path,) = directory.glob("*tfevents*")
        assert any(event.graph_def for event in tf.compat.v1.train.summary_iterator(str(path)))


def test_an_evaluation_needs_no_event_file(tmp_path, caplog):
    with est.Estimator(Model(), str(tmp_path)).train(numbers(), steps=2) as model:
        (tmp_path / "eval").write_text("not a directory")
        assert model.evaluate(numbers(3))["global_step"] == 2
    assert f"Events cannot be written in {tmp_path}/eval: " in caplog.text
