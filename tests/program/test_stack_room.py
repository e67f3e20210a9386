"""However deep its caller is, a verb calls without mapping memory for the frames."""

import concurrent.futures
import resource
import sys

import pytest
import tensorflow as tf

import estimator as est
from estimator.program.stack_room import with_stack_room
from tests import toy

NUM_CALLS = 500
# Frames of `most_faults`' calls that are more than a chunk of 16 KiB together.
DEPTHS = range(200)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts page faults as Linux does")


def count_faults(depth):
    """The page faults of this thread while it calls a function `NUM_CALLS` times."""
    if depth > 0:
        return count_faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(NUM_CALLS):
        go_down()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def go_down(num_frames=4):
    return num_frames == 0 or go_down(num_frames - 1)


def most_faults():
    return max(map(count_faults, DEPTHS))


@with_stack_room
def most_faults_with_room():
    return most_faults()


def in_thread(function):
    """Calls a function on a stack of its own, as `tests/conftest.py` gives that of tests room."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_calls_at_no_depth_map_memory():
    assert in_thread(most_faults_with_room) < NUM_CALLS / 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its frames are not in chunks")
def test_without_room_they_do():
    if in_thread(most_faults) < NUM_CALLS:
        pytest.skip("this version of Python keeps the memory of a call for the next one")


class CountingModel(toy.Model):
    """Counts in each call of the model function."""

    def __init__(self):
        super().__init__()
        self.num_faults = []

    def __call__(self, features, labels, mode):
        self.num_faults.append(most_faults())
        return super().__call__(features, labels, mode)


def receive():
    return est.export.TensorServingInputReceiver(
        *[tf.compat.v1.placeholder(tf.float32, [None])] * 2
    )


def test_a_verb_has_room_for_the_calls_of_a_model_fn(tmp_path):
    model = CountingModel()

    def call_verbs():
        with est.Estimator(model, str(tmp_path)) as trained:
            trained.train(toy.numbers(), steps=1)
            trained.evaluate(toy.numbers(), steps=1)
            next(trained.predict(toy.numbers()))
            trained.export_saved_model(str(tmp_path / "export"), receive)

    in_thread(call_verbs)
    assert model.modes == ["train", "eval", "infer", "infer"]
    assert max(model.num_faults) < NUM_CALLS / 2
