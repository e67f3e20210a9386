"""The last meeting of workers: whose error counts if another one has left already."""

import time
import types

import pytest
import tensorflow as tf

from estimator.cluster.task_health import TaskHealth
from estimator.cluster.worker_group import WorkerGroup
from estimator.training.joining import WatchedTasks
from estimator.training.shutdown import Shutdown, StallDetector
from tests.toy import Clock

LAST_STEP = 5


class WithoutAnswer(WorkerGroup):
    """Another worker has exited before its answer arrived, as no test can time it."""

    def meet(self, session, number=0):
        raise tf.errors.UnavailableError(None, None, "the other worker is gone")


def save(model_dir, step):
    tf.raw_ops.SaveV2(
        prefix=str(model_dir / f"model.ckpt-{step}"),
        tensor_names=["global_step"],
        shape_and_slices=[""],
        tensors=[tf.constant(step, tf.int64)],
    )


def leave(model_dir, is_chief, reason):
    tasks = WatchedTasks(TaskHealth({}, 1.0), TaskHealth({}, 1.0))
    training = types.SimpleNamespace(
        worker_group=WithoutAnswer(is_chief),
        session=types.SimpleNamespace(session=None),
        request=types.SimpleNamespace(clock=time.monotonic),
        config=types.SimpleNamespace(model_dir=model_dir),
        stop=types.SimpleNamespace(received=None),
    )
    Shutdown(training, types.SimpleNamespace(step=LAST_STEP), tasks).end(reason)


def test_a_step_that_nobody_advances_for_long_has_stalled():
    clock, steps = Clock(), [5]
    detector = StallDetector(lambda: steps[-1], clock)
    found = []
    for secs, step in ((0, 5), (29, 5), (0.5, 6), (29.5, 6), (0.5, 6), (0, 7)):
        clock.now += secs
        steps.append(step)
        found.append(detector.is_stalled())
    assert found == [False, False, False, False, True, False]


def test_the_chief_has_saved_and_needs_no_answer(tmp_path):
    leave(tmp_path, True, "max_steps")


def test_a_worker_that_finds_the_last_step_needs_no_answer(tmp_path):
    save(tmp_path, LAST_STEP)
    leave(tmp_path, False, "max_steps")


def test_after_a_nan_loss_a_worker_needs_no_answer_and_no_checkpoint(tmp_path):
    leave(tmp_path, False, "nan loss")


@pytest.mark.parametrize("steps", [[], [LAST_STEP - 1]])
def test_a_worker_that_does_not_find_the_last_step_says_that_the_chief_is_gone(steps, tmp_path):
    for step in steps:
        save(tmp_path, step)
    with pytest.raises(tf.errors.UnavailableError, match="is gone"):
        leave(tmp_path, False, "max_steps")
