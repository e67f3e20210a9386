"""TensorFlow's own hooks that save, summarize and profile do so on the same steps in loops."""

import glob
import json

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.hooks.stock_hook_runs import LOOPS, STRATEGIES, make, nan_at, steps_of, with_hooks
from tests.toy import checkpoint_steps, events, ids_model_fn, ids_of, numbers

v1 = tf.compat.v1


class Saves(est.CheckpointSaverListener):
    """Keeps the steps of the saves it is told of."""

    def __init__(self):
        self.steps = []

    def after_save(self, session, global_step_value):
        self.steps.append(int(global_step_value))


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_checkpoint_saver_hook_is_the_one_that_saves(tmp_path, loop, strategy):
    own, given = Saves(), Saves()
    hook = est.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[own])
    trained = make(tmp_path, loop, strategy, save_checkpoints_steps=1, keep_checkpoint_max=9)
    trained.train(numbers(), steps=13, hooks=[hook], saving_listeners=[given])
    assert checkpoint_steps(trained.model_dir) == [0, 4, 8, 12, 13]
    assert own.steps == given.steps == [0, 4, 8, 12, 13]


def test_a_saver_hook_keeps_as_many_checkpoints_after_a_restart(tmp_path):
    for _ in range(3):  # Each as in a new process: a hook and an estimator of its own.
        hook = est.CheckpointSaverHook(str(tmp_path), save_steps=2)
        with make(tmp_path, 1, keep_checkpoint_max=3) as trained:
            trained.train(numbers(), steps=4, hooks=[hook])
    assert checkpoint_steps(tmp_path) == [8, 10, 12]
    kept = tf.train.get_checkpoint_state(str(tmp_path)).all_model_checkpoint_paths
    assert [path.rpartition("-")[2] for path in kept] == ["8", "10", "12"]


class ReadsEvents(est.CheckpointSaverListener):
    """Keeps which steps the event files have of each tag when a checkpoint has been written."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = {}

    def after_save(self, session, global_step_value):
        found = {}
        for step, tag, _ in events(self.folder):
            found.setdefault(tag, []).append(step)
        self.seen[int(global_step_value)] = found


@LOOPS
@pytest.mark.parametrize("is_async", [False, True])
def test_events_up_to_a_checkpoint_are_on_disk_before_it(tmp_path, is_async, loop):
    """A run that is killed and resumed does not write them again."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(w - tf.cast(features, tf.float32)))
        step = v1.train.get_global_step()

        def write(steps, losses):
            writer = tf.summary.create_file_writer(str(tmp_path))
            with writer.as_default(), tf.summary.record_if(True):
                tf.summary.scalar("of_host", losses[0], step=steps[0])
            return v1.summary.all_v2_summary_ops()

        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=v1.train.GradientDescentOptimizer(0.1).minimize(loss, step),
            host_call=(write, [tf.reshape(step, [1]), tf.reshape(loss, [1])]),  # After the step.
        )

    listener = ReadsEvents(tmp_path)
    config = est.RunConfig(
        iterations_per_loop=loop,
        save_checkpoints_steps=7,
        save_summary_steps=3,
        log_step_count_steps=None,
        async_checkpoints=is_async,
    )
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), steps=14, saving_listeners=[listener])
    for saved, losses in ((7, [3, 6]), (14, [3, 6, 9, 12])):
        seen = listener.seen[saved]  # And what followed, if it was written beside the next steps.
        assert seen["of_host"][:saved] == list(range(1, saved + 1))
        assert [step for step in seen["loss"] if step % 3 == 0][: len(losses)] == losses


@LOOPS
def test_a_checkpoint_saver_hook_can_be_used_again(tmp_path, loop):
    own, first, second = Saves(), Saves(), Saves()
    hook = est.CheckpointSaverHook(str(tmp_path), save_steps=4, listeners=[own])
    trained = make(tmp_path, loop, model_fn=ids_model_fn)
    for listener in (first, second):
        trained.train(numbers(), steps=6, hooks=[hook], saving_listeners=[listener])
    assert first.steps == [0, 4, 6]
    assert second.steps == [6, 10, 12]
    assert own.steps == [0, 4, 6, 6, 10, 12]
    assert ids_of(trained) == list(range(12))


@pytest.mark.parametrize("loop", [1, 3, 100])
@pytest.mark.parametrize("policy", ["raise", "stop"])
def test_a_checkpoint_saver_hook_saves_no_weights_that_are_not_finite(tmp_path, loop, policy):
    hook = est.CheckpointSaverHook(str(tmp_path), save_steps=2)
    trained = make(tmp_path, loop, nan_policy=policy)
    if policy == "raise":
        with pytest.raises(est.NanLossDuringTrainingError, match="step 6"):
            trained.train(nan_at(6), hooks=[hook])
    else:
        trained.train(nan_at(6), hooks=[hook])
        assert trained.train_result.reason == "nan loss"
        assert trained.train_result.global_step == 6
    assert checkpoint_steps(trained.model_dir) == [0, 2, 4]
    assert np.isfinite(trained.get_variable_value("w"))


@LOOPS
@STRATEGIES
def test_a_summary_saver_hook_of_the_model_writes_every_n_steps(tmp_path, loop, strategy):
    def make_hooks(x, spec):
        summary = v1.summary.scalar("feature", x, collections=[])
        return [est.SummarySaverHook(5, output_dir=str(tmp_path / "own"), summary_op=summary)]

    make(tmp_path, loop, strategy, with_hooks(make_hooks)).train(numbers(), steps=20)
    written = [(step, v.simple_value) for step, _, v in events(str(tmp_path / "own"))]
    scale = 2 if strategy else 1
    assert written == [(step, scale * (step - 1)) for step in (1, 6, 11, 16)]


@LOOPS
def test_a_summary_saver_hook_can_be_used_again(tmp_path, loop):
    class Late(est.SummarySaverHook):
        def begin(self):
            step = tf.cast(v1.train.get_global_step(), tf.float32)
            self._summary_op = v1.summary.scalar("step", step, collections=[])
            super().begin()

    hook = Late(40, output_dir=str(tmp_path / "own"), summary_op="later")
    trained = make(tmp_path, loop)
    for _ in range(2):
        trained.train(numbers(), steps=50, hooks=[hook])
    assert steps_of(tmp_path / "own", "step") == [1, 41, 51, 91]


@LOOPS
def test_a_summary_saver_hook_writes_the_summary_op_of_its_scaffold(tmp_path, loop):
    def make_hooks(x, spec):
        summaries = [v1.summary.scalar(name, x, collections=[]) for name in ("one", "two")]
        scaffold = v1.train.Scaffold(summary_op=summaries)
        return [est.SummarySaverHook(9, output_dir=str(tmp_path / "own"), scaffold=scaffold)]

    make(tmp_path, loop, model_fn=with_hooks(make_hooks)).train(numbers(), steps=20)
    assert steps_of(tmp_path / "own", "one") == steps_of(tmp_path / "own", "two") == [1, 10, 19]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_summary_saver_hook_of_the_caller_writes_every_n_steps(tmp_path, loop, strategy):
    class Late(est.SummarySaverHook):
        """Made before there is a graph: its summary is added in `begin`."""

        def begin(self):
            step = tf.cast(v1.train.get_global_step(), tf.float32)
            self._summary_op = v1.summary.scalar("ten_steps", 10 * step, collections=[])
            super().begin()

    hook = Late(5, output_dir=str(tmp_path / "own"), summary_op="later")
    make(tmp_path, loop, strategy).train(numbers(), steps=20, hooks=[hook])
    assert steps_of(tmp_path / "own", "ten_steps") == [1, 6, 11, 16]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_step_counter_hook_writes_the_speed_every_n_steps(tmp_path, loop, strategy):
    hook = est.StepCounterHook(every_n_steps=5, output_dir=str(tmp_path / "own"))
    make(tmp_path, loop, strategy).train(numbers(), steps=20, hooks=[hook])
    tf.compat.v1.summary.FileWriterCache.clear()  # The hook leaves its writer's thread to itself.
    assert steps_of(tmp_path / "own", "global_step/sec") == [6, 11, 16]
    assert all(value.simple_value > 0 for _, _, value in events(str(tmp_path / "own")))


def test_hooks_go_on_where_the_input_has_cut_a_loop(tmp_path):
    class Late(est.SummarySaverHook):
        def begin(self):
            step = tf.cast(v1.train.get_global_step(), tf.float32)
            self._summary_op = v1.summary.scalar("step", step, collections=[])
            super().begin()

    own = str(tmp_path / "own")
    hooks = [est.StepCounterHook(5, output_dir=own), Late(5, output_dir=own, summary_op="later")]
    trained = make(tmp_path, 100)
    for _ in range(2):
        trained.train(numbers(8), hooks=hooks)
    assert trained.train_result.global_step == 16
    assert steps_of(own, "step") == [1, 6, 9, 14]


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_profiler_hook_writes_a_timeline_every_n_steps(tmp_path, loop, strategy):
    with tf.Graph().as_default():  # It opens an event file when it is made.
        hook = est.ProfilerHook(save_steps=5, output_dir=str(tmp_path / "own"))
    make(tmp_path, loop, strategy).train(numbers(), steps=20, hooks=[hook])
    found = glob.glob(str(tmp_path / "own" / "timeline-*"))
    steps = sorted(int(path.removesuffix(".json").rsplit("-", 1)[1]) for path in found)
    assert steps == [5, 10, 15, 20]
    for path in found:
        with open(path) as file:
            assert len(json.load(file)["traceEvents"]) > 10


def test_stock_hooks_cut_loops_where_they_are_due_and_nowhere_else(tmp_path):
    ends = []

    class Ends(est.SessionRunHook):
        def begin(self):
            self.step = v1.train.get_global_step()

        def after_run(self, run_context, run_values):
            ends.append(int(run_context.session.run(self.step)))

    counter = est.StepCounterHook(every_n_steps=40, output_dir=str(tmp_path / "own"))
    by_time = est.StepCounterHook(None, every_n_secs=1e6, output_dir=str(tmp_path / "own"))
    make(tmp_path, 30).train(numbers(), steps=100, hooks=[counter, by_time, Ends()])
    assert ends == [1, 31, 41, 71, 81, 100]


def test_no_training_replaces_the_events_of_one_of_the_same_second(tmp_path):
    """The writer of a hook is the directory's. On 2.15 it stays open; here, a model closes it."""

    def model_fn(features, mode):
        tf.compat.v1.summary.scalar("number", tf.reduce_sum(features))
        loss = tf.zeros([])
        train_op = tf.compat.v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    for _ in range(8):
        with est.Estimator(model_fn, tmp_path, est.RunConfig(save_summary_steps=1)) as model:
            model.train(numbers(None), [est.CheckpointSaverHook(str(tmp_path), 10)], steps=1)
    steps = [step for step, tag, _ in events(tmp_path) if tag == "number"]
    assert sorted(steps) == list(range(1, 9))


def test_a_hook_with_a_directory_of_its_own_records_the_graph_there(tmp_path):
    own = tmp_path / "own"
    hook = est.StepCounterHook(every_n_steps=1, output_dir=str(own))
    with make(tmp_path / "model", 1) as trained:
        trained.train(numbers(), [hook], steps=2)
    (path,) = own.iterdir()
    written = list(v1.train.summary_iterator(str(path)))
    assert any(event.graph_def for event in written)
    assert any(event.meta_graph_def for event in written)
