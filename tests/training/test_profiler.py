"""`profile_steps`: what the profiler of TensorBoard reads, for any loop size."""

import collections
import glob
import os

import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import estimator as est
from tests.toy import Model, numbers


def count_events(model_dir):
    """How often each op and each step ran, in the one profile that there is."""
    (path,) = glob.glob(os.path.join(model_dir, "plugins", "profile", "*", "*.xplane.pb"))
    space = xplane_pb2.XSpace()
    with open(path, "rb") as file:
        space.ParseFromString(file.read())
    counts = collections.Counter()
    for plane in space.planes:
        names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            counts.update(names[event.metadata_id].partition(":")[0] for event in line.events)
    return counts


def train(model_dir, loop, max_steps=30, hooks=(), **fields):
    config = est.RunConfig(iterations_per_loop=loop, **fields)
    model = est.Estimator(Model(), str(model_dir), config)
    model.train(numbers(), hooks=list(hooks), max_steps=max_steps)
    return model


class CallsHook(est.SessionRunHook):
    """Keeps the step that each session call ended on."""

    def __init__(self):
        self.steps = []

    def after_run(self, run_context, run_values):
        step = tf.compat.v1.train.get_global_step()
        self.steps.append(int(run_context.session.run(step)))


@pytest.mark.parametrize("loop", [1, 4, 100])
def test_exactly_the_steps_asked_for_are_in_the_profile(loop, tmp_path):
    train(tmp_path, loop, profile_steps=(10, 17))
    counts = count_events(tmp_path)
    # The model squares the difference once a step; a loop's body has it under a name of its own.
    squares = [name for name in counts if name.endswith("Square")]
    assert sum(counts[name] for name in squares) == 7
    assert counts["train"] == {1: 7, 4: 2, 100: 1}[loop]


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "central_storage"])
def test_every_replicas_ops_are_in_the_profile(strategy, loop, tmp_path):
    num_replicas = 1 if strategy == "one_device" else 2
    train(tmp_path, loop, strategy=strategy, num_replicas=num_replicas, profile_steps=(10, 17))
    counts = count_events(tmp_path)
    squares = [name for name in counts if name.endswith("Square")]
    assert sum(counts[name] for name in squares) == 7 * num_replicas


@pytest.mark.parametrize(
    ("loop", "ends"), [(1, list(range(1, 31))), (4, [4, 8, 10, 14, 17, 21, 25, 29, 30])]
)
def test_loops_end_where_the_profile_begins_and_ends(loop, ends, tmp_path):
    hook = CallsHook()
    train(tmp_path, loop, hooks=[hook], profile_steps=(10, 17))
    assert hook.steps == ends


@pytest.mark.parametrize(("window", "count"), [((0, 2), 2), ((25, 99), 5)])
def test_a_training_shorter_than_the_window_has_a_profile_of_its_steps(window, count, tmp_path):
    train(tmp_path, 100, profile_steps=window)
    counts = count_events(tmp_path)
    assert sum(counts[name] for name in counts if name.endswith("Square")) == count


def test_a_resumed_training_profiles_what_is_left_of_the_window_and_no_more(tmp_path):
    train(tmp_path, 1, max_steps=12)
    model = train(tmp_path, 1, profile_steps=(10, 17))
    assert count_events(tmp_path)["train"] == 5
    model.train(numbers(), max_steps=40)
    assert count_events(tmp_path)["train"] == 5


def test_there_is_no_profile_unless_it_is_asked_for(tmp_path):
    train(tmp_path, 1)
    assert not os.path.exists(tmp_path / "plugins")


def test_an_error_inside_the_window_ends_the_profiler(tmp_path):
    class Stop(est.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise RuntimeError("Enough.")

    with pytest.raises(RuntimeError, match="Enough"):
        train(tmp_path, 1, hooks=[Stop()], profile_steps=(0, 10))
    train(tmp_path / "next", 1, profile_steps=(0, 3))
    assert count_events(tmp_path / "next")["train"] == 3


def test_another_profiler_is_left_alone_with_a_warning(tmp_path, caplog):
    tf.profiler.experimental.start(str(tmp_path / "other"))
    try:
        model = train(tmp_path / "model", 1, profile_steps=(10, 17))
    finally:
        tf.profiler.experimental.stop()
    assert model.train_result.global_step == 30
    messages = [record.getMessage() for record in caplog.records]
    assert [m for m in messages if m.startswith("`profile_steps` ((10, 17)): there will be no")]
    assert not os.path.exists(tmp_path / "model" / "plugins")
    assert glob.glob(str(tmp_path / "other" / "plugins" / "profile" / "*" / "*.xplane.pb"))
