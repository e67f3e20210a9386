"""TensorFlow's own hooks do their documented jobs on the same steps, whatever a loop's length."""

import glob
import json
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, checkpoint_steps, events, ids_model_fn, ids_of, numbers

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("loop", [1, 100])
STRATEGIES = pytest.mark.parametrize("strategy", [None, "mirrored"])


def make(model_dir, loop=1, strategy=None, model_fn=None, **config):
    if strategy is not None:
        config.update(strategy=strategy, num_replicas=2)
    quiet = {"save_summary_steps": None, "log_step_count_steps": None}
    config = est.RunConfig(**{**quiet, "iterations_per_loop": loop, **config})
    return est.Estimator(model_fn or Model(), str(model_dir), config)


def with_hooks(make_hooks):
    """`Model`, whose spec has the hooks that are made of its features, a scalar, and its spec."""

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        x = tf.cast(features[0], tf.float32, name="x")
        return spec.replace(training_hooks=make_hooks(x, spec))

    return model_fn


def steps_of(directory, tag):
    return [step for step, name, _ in events(str(directory)) if name == tag]


def test_the_hooks_are_those_of_tensorflow():
    names = est._NAMES["tensorflow.compat.v1.train"].split()
    assert len(names) == 17
    assert all(getattr(est, name) is getattr(v1.train, name) for name in names)


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_hook_of_the_user_gets_what_it_asks_for(tmp_path, loop, strategy):
    class Steps(est.SessionRunHook):
        def __init__(self):
            self.seen = []

        def begin(self):
            self.step = v1.train.get_global_step()

        def before_run(self, run_context):
            assert isinstance(run_context, est.SessionRunContext)
            return est.SessionRunArgs({"ten": tf.constant(10)})

        def after_run(self, run_context, run_values):
            assert isinstance(run_values, est.SessionRunValues)
            step = int(run_context.session.run(self.step))
            self.seen.append((step, int(run_values.results["ten"])))
            if step >= 7:
                run_context.request_stop()

    hook = Steps()
    trained = make(tmp_path, loop, strategy, save_checkpoints_steps=3)
    trained.train(numbers(), hooks=[hook])
    ends = range(1, 8) if loop == 1 else [3, 6, 9]
    assert hook.seen == [(step, 10) for step in ends]
    assert trained.train_result.reason == "hook"


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_stop_at_step_hook_stops_at_its_step(tmp_path, loop, strategy):
    trained = make(tmp_path, loop, strategy)
    trained.train(numbers(), hooks=[est.StopAtStepHook(last_step=7)])
    assert trained.train_result.global_step == 7
    trained.train(numbers(), hooks=[est.StopAtStepHook(num_steps=2)])
    assert trained.train_result.global_step == 9
    assert trained.train_result.reason == "hook"


# --- Those that save -----------------------------------------------------------------------------


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


def nan_at(step):
    """An input_fn of ones with a NaN at a step."""
    return lambda: tf.data.Dataset.from_tensor_slices(
        np.where(np.arange(1, 21) == step, np.nan, 1.0).astype(np.float32)
    ).batch(1)


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


# --- Those that look -----------------------------------------------------------------------------


def logging_hook(tensors, logged, every_n_iter=1, at_end=False):
    return est.LoggingTensorHook(
        tensors,
        every_n_iter=every_n_iter,
        at_end=at_end,
        formatter=lambda values: logged.append(dict(values)) or "",
    )


@LOOPS
@STRATEGIES
def test_hooks_of_the_model_may_look_at_what_is_around_the_loop(tmp_path, loop, strategy):
    logged = []

    def make_hooks(x, spec):
        with tf.init_scope():
            seven = tf.constant(7.0)
            summary = v1.summary.scalar("seven", seven, collections=[])
        eight = v1.get_variable("eight", initializer=8.0, trainable=False)
        saver = est.SummarySaverHook(5, output_dir=str(tmp_path / "own"), summary_op=summary)
        return [saver, logging_hook({"seven": seven, "eight": eight}, logged, 5)]

    make(tmp_path, loop, strategy, with_hooks(make_hooks)).train(numbers(), steps=20)
    written = [(step, v.simple_value) for step, _, v in events(str(tmp_path / "own"))]
    assert written == [(step, 7.0) for step in (1, 6, 11, 16)]
    assert logged == [{"seven": 7.0, "eight": 8.0}] * len(logged) != []


@STRATEGIES
@pytest.mark.parametrize("name", ["x", "x:0"])
def test_a_logging_tensor_hook_of_the_caller_logs_a_tensor_by_its_name(tmp_path, strategy, name):
    logged = []
    trained = make(tmp_path, 1, strategy, with_hooks(lambda x, spec: []))
    trained.train(numbers(), steps=5, hooks=[logging_hook({"x": name}, logged, 2)])
    scale = 2 if strategy else 1
    assert [values["x"] for values in logged] == [0, 2 * scale, 4 * scale]


@pytest.mark.each_value
@STRATEGIES
@pytest.mark.parametrize(
    ("loop", "every", "expected"),
    [
        (1, 10, [0, 10, 20]),
        (5, 10, [4, 14, 24]),
        (20, 10, [19, 24]),
        (100, 10, [24]),
        (5, 7, [4, 14, 24]),
    ],
)
def test_a_logging_tensor_hook_of_the_model_counts_steps(tmp_path, strategy, loop, every, expected):
    """It logs the last step of the first loop, and then that of a loop every n steps."""
    logged = []
    model_fn = with_hooks(lambda x, spec: [logging_hook({"x": x}, logged, every)])
    make(tmp_path, loop, strategy, model_fn).train(numbers(), steps=25)
    scale = 2 if strategy else 1
    assert [values["x"] for values in logged] == [scale * x for x in expected]


@pytest.mark.parametrize("name", ["x", "x:0"])
def test_a_logging_tensor_hook_of_the_model_may_name_its_tensor_in_loops(tmp_path, name):
    logged = []
    model_fn = with_hooks(lambda x, spec: [logging_hook([name, "global_step"], logged)])
    make(tmp_path, 5, model_fn=model_fn).train(numbers(), steps=10)
    assert logged == [{name: 4, "global_step": 5}, {name: 9, "global_step": 10}]


@pytest.mark.parametrize("strategy", [None, "mirrored", "central_storage"])
def test_a_logging_tensor_hook_of_the_model_may_name_what_its_loop_updates(tmp_path, strategy):
    logged = []

    def model_fn(features, labels, mode):
        steps = v1.get_variable(
            "steps",
            [],
            initializer=v1.zeros_initializer(),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        spec = Model()(features, labels, mode)
        train_op = tf.group(spec.train_op, steps.assign_add(1.0))
        return spec.replace(train_op=train_op, training_hooks=[logging_hook(["steps"], logged)])

    make(tmp_path, 5, strategy, model_fn).train(numbers(), steps=10)
    assert logged == [{"steps": 5}, {"steps": 10}]


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 5])
@STRATEGIES
def test_the_name_of_a_variable_stands_for_its_value(tmp_path, loop, strategy):
    logged = []

    def model_fn(features, labels, mode):
        v1.get_variable("seven", initializer=7.0, trainable=False)
        return Model()(features, labels, mode)

    hook = logging_hook(["global_step", "seven:0"], logged, 5)
    make(tmp_path, loop, strategy, model_fn).train(numbers(), steps=10, hooks=[hook])
    steps = [1, 6] if loop == 1 else [5, 10]
    assert logged == [{"global_step": step, "seven:0": 7} for step in steps]


def test_a_name_that_does_not_exist_is_an_error_in_loops_too(tmp_path):
    model_fn = with_hooks(lambda x, spec: [logging_hook(["y"], [])])
    with pytest.raises(ValueError, match="asks for the tensor 'y', which does not exist"):
        make(tmp_path, 5, model_fn=model_fn).train(numbers(), steps=10)


@LOOPS
def test_a_logging_tensor_hook_logs_at_the_end(tmp_path, loop):
    logged = []

    def make_hooks(x, spec):
        # Without a loop, fetching `x` again would take another batch.
        tensors = {"step": v1.train.get_global_step()} if loop == 1 else {"x": x}
        return [est.LoggingTensorHook(tensors, at_end=True, formatter=logged.append)]

    trained = make(tmp_path, loop, model_fn=with_hooks(make_hooks))
    trained.train(numbers(), steps=7)
    assert logged == [{"step": 7} if loop == 1 else {"x": 6.0}]
    assert trained.train_result.global_step == 7


@pytest.mark.pairwise
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("fails", [True, False])
def test_a_nan_tensor_hook_ends_training_on_the_loss(tmp_path, loop, strategy, fails):
    def make_hooks(x, spec):
        return [est.NanTensorHook(spec.loss, fail_on_nan_loss=fails)]

    config = {"nan_policy": "ignore", "save_checkpoints_steps": 4}
    trained = make(tmp_path, loop, strategy, with_hooks(make_hooks), **config)
    if fails:
        with pytest.raises(est.NanLossDuringTrainingError):
            trained.train(nan_at(3), max_steps=10)
        return
    trained.train(nan_at(3), max_steps=10)
    assert trained.train_result.reason == "hook"
    first_bad = 2 if strategy else 3
    assert trained.train_result.global_step == (first_bad if loop == 1 else 4)


@pytest.mark.each_value
@LOOPS
@STRATEGIES
def test_a_final_ops_hook_runs_its_ops_at_the_end(tmp_path, loop, strategy):
    class Final(est.FinalOpsHook):
        def begin(self):
            self._final_ops = {"step": v1.train.get_global_step()}

    hook = Final(None)
    make(tmp_path, loop, strategy).train(numbers(), steps=7, hooks=[hook])
    assert hook.final_ops_values == {"step": 7}


def test_a_final_ops_hook_that_wants_a_tensor_of_the_loop_is_told_the_ways_out(tmp_path):
    model_fn = with_hooks(lambda x, spec: [est.FinalOpsHook({"x": x})])
    with pytest.raises(ValueError, match=r"FinalOpsHook asks for x:0, which lives inside") as error:
        make(tmp_path / "loop", 5, model_fn=model_fn).train(numbers(), steps=5)
    assert "iterations_per_loop=1" in str(error.value)
    assert not (tmp_path / "loop").exists()
    make(tmp_path, 1, model_fn=model_fn).train(numbers(), steps=2)


# --- Those that feed and wait --------------------------------------------------------------------


@pytest.mark.pairwise
@LOOPS
@STRATEGIES
@pytest.mark.parametrize("is_named", [True, False])
def test_a_feed_fn_hook_feeds_the_input(tmp_path, loop, strategy, is_named):
    fed, made = iter(range(100, 200)), []

    def input_fn():
        made.append(v1.placeholder(tf.float32, [2], "fed"))
        return made[0]

    def feed_fn():
        key = "fed:0" if is_named else made[0]
        return {key: np.full(2, next(fed), np.float32)}

    trained = make(tmp_path, loop, strategy, save_checkpoints_steps=2)
    trained.train(input_fn, steps=4, hooks=[est.FeedFnHook(feed_fn)])
    # A session call has one value, however many steps it runs.
    values = [100, 101, 102, 103] if loop == 1 else [100, 100, 101, 101]
    w = np.float32(0)
    for value in values:
        w -= np.float32(0.25) * (w - np.float32(value))
    np.testing.assert_allclose(trained.get_variable_value("w"), w, rtol=1e-6)


def test_a_feed_of_a_tensor_of_the_loop_is_told_the_ways_out(tmp_path):
    trained = make(tmp_path, 5, model_fn=with_hooks(lambda x, spec: []))
    with pytest.raises(ValueError, match=r"FeedFnHook fails: .*x:0.* inside the loop") as error:
        trained.train(numbers(), steps=5, hooks=[est.FeedFnHook(lambda: {"x:0": 1.0})])
    assert "iterations_per_loop=1" in str(error.value)


@LOOPS
@STRATEGIES
def test_a_global_step_waiter_hook_lets_no_step_run_before_its_step(tmp_path, loop, strategy):
    class Elsewhere(est.SessionRunHook):
        """Another worker, which takes three steps as soon as this one waits."""

        def begin(self):
            self.advance = v1.train.get_global_step().assign_add(3)
            self.thread = None

        def before_run(self, run_context):
            if self.thread is None:
                run = run_context.session.run
                self.thread = threading.Thread(target=run, args=(self.advance,))
                self.thread.start()

    other = Elsewhere()
    trained = make(tmp_path, loop, strategy, save_checkpoints_steps=2, keep_checkpoint_max=9)
    trained.train(numbers(), max_steps=6, hooks=[other, est.GlobalStepWaiterHook(3)])
    other.thread.join()
    assert trained.train_result.global_step >= 6
    start, first, *_ = checkpoint_steps(trained.model_dir)
    assert start == 0
    assert first > 3


@LOOPS
def test_a_timer_tells_a_hook_of_the_user_when_it_is_due(tmp_path, loop):
    class Timed(est.SessionRunHook):
        def __init__(self):
            self.timer = est.SecondOrStepTimer(every_steps=6)
            self.fired = []

        def begin(self):
            self.step = v1.train.get_global_step()

        def after_run(self, run_context, run_values):
            step = int(run_context.session.run(self.step))
            if self.timer.should_trigger_for_step(step):
                self.timer.update_last_triggered_step(step)
                self.fired.append(step)

    hook = Timed()
    make(tmp_path, loop, save_checkpoints_steps=4).train(numbers(), steps=20, hooks=[hook])
    assert hook.fired == ([1, 7, 13, 19] if loop == 1 else [4, 12, 20])
