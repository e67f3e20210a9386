"""TensorFlow's own hooks do their documented jobs on the same steps, whatever a loop's length."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.hooks.stock_hook_runs import LOOPS, STRATEGIES, make, nan_at, with_hooks
from tests.toy import Model, checkpoint_steps, events, numbers

v1 = tf.compat.v1


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


@pytest.mark.parametrize("loop", [1, 3, 100])
def test_a_loop_ends_where_a_stop_hook_with_an_after_run_of_its_own_asks_it_to_stop(loop, tmp_path):
    calls = []

    class Noting(est.StopAtStepHook):
        def after_run(self, run_context, run_values):
            calls.append(1)
            super().after_run(run_context, run_values)

    config = est.RunConfig(iterations_per_loop=loop)
    trained = est.Estimator(Model(), str(tmp_path), config)
    trained.train(numbers(), hooks=[Noting(last_step=7)])
    assert checkpoint_steps(tmp_path) == [0, 7]
    assert len(calls) == {1: 7, 3: 3, 100: 2}[loop]


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


@LOOPS
@STRATEGIES
def test_a_logging_tensor_hook_logs_a_variable_by_its_name_at_the_end(tmp_path, loop, strategy):
    logged = []
    hook = logging_hook(["w"], logged, every_n_iter=None, at_end=True)
    trained = make(tmp_path, loop, strategy)
    trained.train(numbers(), hooks=[hook], steps=7)
    assert logged == [{"w": trained.get_variable_value("w")}]


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
def test_a_feed_fn_hook_feeds_the_input(tmp_path, loop, strategy, is_named, caplog):
    fed, made = iter(range(100, 200)), []

    def input_fn():
        made.append(v1.placeholder(tf.float32, [2], "fed"))
        return made[0]

    def feed_fn():
        key = "fed:0" if is_named else made[0]
        return {key: np.full(2, next(fed), np.float32)}

    trained = make(tmp_path, loop, strategy, save_checkpoints_steps=2)
    trained.train(input_fn, steps=4, hooks=[est.FeedFnHook(feed_fn)])
    # A session call has one value, however many steps it runs, of which a warning tells.
    assert sum("feeds a value once for all" in text for text in caplog.messages) == (loop > 1)
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


@pytest.mark.each_value
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
