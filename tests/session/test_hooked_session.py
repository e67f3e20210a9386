"""Hooks around session calls: the stock ones and a user's own, with and without a loop."""

import glob
import os

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.contract.loss_hooks import LossOfCall, Merged
from tests.toy import Model, checkpoint_steps, events, ids_model_fn, ids_of, numbers

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("iterations_per_loop", [1, 5])


class Recorder(v1.train.SessionRunHook):
    """Keeps the calls it gets, with the global step after each session call."""

    def __init__(self, calls=None, name=""):
        self.calls = [] if calls is None else calls
        self.name = name

    def begin(self):
        self.step = v1.train.get_global_step()
        self.calls.append(f"{self.name}begin")

    def after_create_session(self, session, coord):
        self.calls.append(f"{self.name}after_create_session {session.run(self.step)}")

    def before_run(self, run_context):
        self.calls.append(f"{self.name}before_run")

    def after_run(self, run_context, run_values):
        assert run_values.results is None
        self.calls.append(f"{self.name}after_run {run_context.session.run(self.step)}")

    def end(self, session):
        self.calls.append(f"{self.name}end {session.run(self.step)}")


def make(model_dir, iterations_per_loop=1, model_fn=None, **config):
    config = est.RunConfig(
        **{
            "save_summary_steps": None,
            "log_step_count_steps": None,
            "iterations_per_loop": iterations_per_loop,
            **config,
        }
    )
    return est.Estimator(model_fn or Model(), str(model_dir), config)


def with_hooks(make_hooks):
    """`Model`, whose spec has the hooks that are made from its features and its loss."""

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        return spec.replace(training_hooks=make_hooks(tf.cast(features[0], tf.float32), spec.loss))

    return model_fn


@pytest.mark.parametrize(("iterations_per_loop", "ends"), [(1, range(1, 9)), (5, [5, 8])])
def test_a_hook_is_called_once_around_each_session_call(tmp_path, iterations_per_loop, ends):
    hook = Recorder()
    make(tmp_path, iterations_per_loop).train(numbers(), steps=8, hooks=[hook])
    around = [call for end in ends for call in ("before_run", f"after_run {end}")]
    assert hook.calls == ["begin", "after_create_session 0", *around, "end 8"]


@LOOPS
def test_hooks_are_called_in_their_order(tmp_path, iterations_per_loop):
    calls = []
    hooks = [Recorder(calls, "first "), Recorder(calls, "second ")]
    model_fn = with_hooks(lambda x, loss: [Recorder(calls, "model's ")])
    trained = make(tmp_path, iterations_per_loop, model_fn)
    trained.train(numbers(), steps=iterations_per_loop, hooks=hooks)
    names = ["first", "second", "model's"]
    verbs = ["begin", "after_create_session", "before_run", "after_run", "end"]
    expected = [f"{name} {verb}" for verb in verbs for name in names]
    assert [call.rstrip(" 0123456789") for call in calls] == expected


@LOOPS
def test_a_session_call_without_wishes_of_hooks_fetches_no_more(tmp_path, iterations_per_loop):
    """`results` is None for a hook whose `before_run` returned nothing, fetches or none."""

    class Asks(v1.train.SessionRunHook):
        def __init__(self, make_fetches):
            self.make_fetches = make_fetches
            self.results = []

        def begin(self):
            self.fetches = self.make_fetches()

        def before_run(self, run_context):
            return v1.train.SessionRunArgs(self.fetches)

        def after_run(self, run_context, run_values):
            self.results.append(run_values.results)

    nested = Asks(lambda: {"a": [tf.constant(1)], "b": (tf.constant(2.0), tf.constant("x"))})
    nothing = Recorder()
    make(tmp_path, iterations_per_loop).train(
        numbers(), steps=iterations_per_loop, hooks=[nested, nothing]
    )
    assert nested.results == [{"a": [1], "b": (2.0, b"x")}]


@LOOPS
def test_an_error_in_training_keeps_end_from_being_called(tmp_path, iterations_per_loop):
    class Fails(Recorder):
        def after_run(self, run_context, run_values):
            raise ZeroDivisionError

    hook = Fails()
    with pytest.raises(ZeroDivisionError):
        make(tmp_path, iterations_per_loop).train(numbers(), steps=8, hooks=[hook])
    assert hook.calls == ["begin", "after_create_session 0", "before_run"]


@pytest.mark.each_value
@LOOPS
@pytest.mark.parametrize("limit", [{}, {"steps": 100}, {"max_steps": 50}])
@pytest.mark.parametrize("kind", ["num_steps", "last_step"])
def test_stop_at_step_hook_stops_at_exactly_its_step(tmp_path, iterations_per_loop, limit, kind):
    trained = make(tmp_path, iterations_per_loop)
    hook = v1.train.StopAtStepHook(**{kind: 7})
    trained.train(numbers(), hooks=[hook], **limit)
    assert trained.train_result.global_step == 7
    assert trained.train_result.reason == "hook"
    hook = v1.train.StopAtStepHook(**{kind: {"num_steps": 2, "last_step": 9}[kind]})
    trained.train(numbers(), hooks=[hook], **limit)
    assert trained.train_result.global_step == 9


@LOOPS
def test_steps_before_the_stop_of_a_hook_come_first(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(), steps=3, hooks=[v1.train.StopAtStepHook(last_step=7)])
    assert trained.train_result.global_step == 3
    assert trained.train_result.reason == "steps"


@LOOPS
def test_request_stop_ends_training_after_the_session_call(tmp_path, iterations_per_loop):
    class Stop(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(), hooks=[Stop()])
    assert trained.train_result.global_step == iterations_per_loop
    assert trained.train_result.reason == "hook"
    assert checkpoint_steps(trained.model_dir) == [0, iterations_per_loop]


class StopsCoordinator(v1.train.SessionRunHook):
    """Asks the coordinator to stop after the first call, because of an error or of none."""

    def __init__(self, error=None):
        self.error = error
        self.calls = 0

    def after_create_session(self, session, coord):
        self.coordinator = coord

    def after_run(self, run_context, run_values):
        self.calls += 1
        try:
            if self.error is not None:
                raise self.error
            self.coordinator.request_stop()
        except ZeroDivisionError as error:
            self.coordinator.request_stop(error)


@LOOPS
def test_request_stop_of_the_coordinator_ends_training_likewise(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop)
    trained.train(numbers(), hooks=[StopsCoordinator()], max_steps=20)
    assert trained.train_result.global_step == iterations_per_loop
    assert trained.train_result.reason == "hook"
    assert checkpoint_steps(trained.model_dir) == [0, iterations_per_loop]
    trained.train(numbers(), max_steps=20)  # A coordinator is one training's.
    assert trained.train_result.global_step == 20


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_request_stop_of_the_coordinator_ends_evaluation_and_prediction(tmp_path, verb):
    trained = make(tmp_path).train(numbers(), steps=1)
    hook = StopsCoordinator()
    list(getattr(trained, verb)(numbers(5), hooks=[hook]))
    assert hook.calls == 1


@LOOPS
def test_an_error_that_the_coordinator_is_told_of_is_raised_and_not_saved(
    tmp_path, iterations_per_loop
):
    with pytest.raises(ZeroDivisionError):
        make(tmp_path, iterations_per_loop).train(
            numbers(), hooks=[StopsCoordinator(ZeroDivisionError())], steps=20
        )
    assert checkpoint_steps(str(tmp_path)) == [0]


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", [None, "mirrored"])
@pytest.mark.parametrize(
    ("iterations_per_loop", "expected"),
    [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (5, [4, 7]), (3, [2, 5, 7])],
)
def test_a_logging_hook_of_the_model_sees_the_last_step_of_each_loop(
    tmp_path, strategy, iterations_per_loop, expected
):
    logged = []

    def make_hooks(x, loss):
        hook = v1.train.LoggingTensorHook(
            {"x": x, "double": 2 * x, "loss": loss},
            every_n_iter=1,
            formatter=lambda values: logged.append(dict(values)) or "",
        )
        return [hook]

    config = {"strategy": strategy, "num_replicas": 2} if strategy else {}
    trained = make(tmp_path, iterations_per_loop, with_hooks(make_hooks), **config)
    trained.train(numbers(), steps=8)
    scale = 2 if strategy else 1
    assert [values["x"] for values in logged] == [scale * x for x in expected]
    assert [values["double"] for values in logged] == [2 * scale * x for x in expected]
    assert all(np.isfinite(values["loss"]) for values in logged)


@LOOPS
def test_a_logging_hook_of_the_caller_sees_the_global_step_by_name(tmp_path, iterations_per_loop):
    logged = []
    hook = v1.train.LoggingTensorHook(
        ["global_step"],
        every_n_iter=1,
        at_end=False,
        formatter=lambda values: logged.append(values["global_step"]) or "",
    )
    make(tmp_path, iterations_per_loop).train(numbers(), steps=10, hooks=[hook])
    assert len(logged) == 10 // iterations_per_loop


@LOOPS
def test_a_nan_tensor_hook_sees_the_models_loss(tmp_path, iterations_per_loop):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices([1.0, 1.0, np.nan, 1.0, 1.0]).batch(1)

    def make_hooks(x, loss):
        return [v1.train.NanTensorHook(loss, fail_on_nan_loss=False)]

    trained = make(tmp_path, iterations_per_loop, with_hooks(make_hooks), nan_policy="ignore")
    trained.train(input_fn, max_steps=100)
    assert trained.train_result.reason == "hook"
    assert trained.train_result.global_step == (3 if iterations_per_loop == 1 else 5)


class Fetch(v1.train.SessionRunHook):
    def __init__(self, tensor):
        self.tensor = tensor

    def before_run(self, run_context):
        return v1.train.SessionRunArgs({"t": self.tensor})


@LOOPS
def test_a_hook_that_wants_a_tensor_of_another_graph_is_told_where_to_make_it(
    tmp_path, iterations_per_loop
):
    with tf.Graph().as_default():
        elsewhere = tf.constant(1.0, name="elsewhere")
    with pytest.raises(ValueError, match="Fetch asks for elsewhere:0, .* another graph.*`begin`"):
        make(tmp_path, iterations_per_loop).train(numbers(), [Fetch(elsewhere)], steps=5)


@pytest.mark.parametrize("strategy", [None, "mirrored"])
def test_a_hook_that_wants_a_tensor_of_the_loop_is_told_the_ways_out(tmp_path, strategy):
    config = {"strategy": strategy, "num_replicas": 2} if strategy else {}
    trained = make(tmp_path, 5, with_hooks(lambda x, loss: [Fetch(x)]), **config)
    with pytest.raises(ValueError, match=r"(?s)Fetch.*inside the loop") as error:
        trained.train(numbers(), steps=5)
    assert "iterations_per_loop=1" in str(error.value)
    assert "LoggingTensorHook" in str(error.value)
    assert checkpoint_steps(trained.model_dir) == [0]


def test_a_name_of_the_loop_is_told_the_ways_out_too(tmp_path):
    def model_fn(features, labels, mode):
        tf.identity(features, "my_features")
        return Model()(features, labels, mode)

    trained = make(tmp_path, 5, model_fn)
    hook = v1.train.LoggingTensorHook(["my_features"], every_n_iter=1)
    with pytest.raises(ValueError, match=r"(?s)LoggingTensorHook.*my_features") as error:
        trained.train(numbers(), steps=5, hooks=[hook])
    assert "iterations_per_loop=1" in str(error.value)
    make(tmp_path, 1, model_fn).train(numbers(), steps=2, hooks=[hook])


@LOOPS
def test_a_hook_that_merges_summaries_finds_the_loss_of_the_call(tmp_path, iterations_per_loop):
    hooks = [Merged(), LossOfCall()]
    make(tmp_path, iterations_per_loop).train(numbers(), hooks, steps=10)
    assert hooks[0].losses == hooks[1].losses
    assert len(hooks[0].losses) == 10 // iterations_per_loop


def test_a_summary_of_the_loop_cannot_be_merged_by_a_hook_which_is_told_the_ways_out(tmp_path):
    def model_fn(features, labels, mode):
        v1.summary.scalar("mine", tf.reduce_sum(features))
        return Model()(features, labels, mode)

    with pytest.raises(ValueError, match=r"(?s)Merged fails: .*mine.*inside the loop") as error:
        make(tmp_path, 5, model_fn).train(numbers(), [Merged()], steps=5)
    assert "iterations_per_loop=1" in str(error.value)


def test_an_op_of_the_loop_to_wait_for_is_told_the_ways_out_too(tmp_path):
    class Waits(v1.train.SessionRunHook):
        def __init__(self, op):
            self.op = op

        def begin(self):
            with tf.control_dependencies([self.op]):
                tf.no_op()

    trained = make(tmp_path, 5, with_hooks(lambda x, loss: [Waits(x.op)]))
    with pytest.raises(ValueError, match=r"(?s)Waits fails: .*inside the loop"):
        trained.train(numbers(), steps=5)


def test_the_input_goes_on_after_the_saves_of_a_users_hook_too(tmp_path):
    trained = make(tmp_path, model_fn=ids_model_fn)
    for _ in range(2):
        hook = v1.train.CheckpointSaverHook(str(tmp_path), save_steps=4)
        trained.train(numbers(), steps=6, hooks=[hook])
    assert ids_of(trained) == list(range(12))


@LOOPS
def test_a_stock_hook_writes_into_the_file_of_model_dir(tmp_path, iterations_per_loop):
    hook = v1.train.StepCounterHook(every_n_steps=5, output_dir=str(tmp_path))
    trained = make(tmp_path, iterations_per_loop, save_summary_steps=5)
    trained.train(numbers(), steps=20, hooks=[hook])
    tags = [tag for _, tag, _ in events(str(tmp_path))]
    assert tags.count("loss") == 5  # The hook waits for a first step, too.
    assert tags.count("global_step/sec") == 3
    assert len(glob.glob(os.path.join(tmp_path, "events.*"))) == 1


class Feed(v1.train.SessionRunHook):
    def begin(self):
        self.placeholder = v1.get_default_graph().get_tensor_by_name("rate:0")

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(None, {self.placeholder: 3.0})


def fed_model_fn(features, mode):
    with tf.init_scope():
        rate = v1.placeholder_with_default(1.0, [], "rate")
    total = v1.get_variable("total", [], initializer=v1.zeros_initializer())
    step = v1.train.get_global_step().assign_add(1)
    return est.EstimatorSpec(mode, loss=rate, train_op=tf.group(step, total.assign_add(rate)))


@LOOPS
def test_a_hook_may_feed_a_placeholder(tmp_path, iterations_per_loop):
    trained = make(tmp_path, iterations_per_loop, fed_model_fn)
    trained.train(numbers(), steps=5, hooks=[Feed()])
    assert trained.get_variable_value("total") == 15
    trained.train(numbers(), steps=5)
    assert trained.get_variable_value("total") == 20
    with pytest.raises(RuntimeError, match="The hook Feed feeds rate:0, which another hook"):
        trained.train(numbers(), steps=5, hooks=[Feed(), Feed()])


class Saves(v1.train.CheckpointSaverListener):
    """Keeps the calls it gets; asks to stop at the save of a step."""

    def __init__(self, calls, name="", stop_at=None):
        self.calls = calls
        self.name = name
        self.stop_at = stop_at

    def begin(self):
        self.calls.append(f"{self.name}begin")

    def before_save(self, session, global_step_value):
        self.calls.append(f"{self.name}before_save {global_step_value}")

    def after_save(self, session, global_step_value):
        self.calls.append(f"{self.name}after_save {global_step_value}")
        return global_step_value == self.stop_at

    def end(self, session, global_step_value):
        self.calls.append(f"{self.name}end {global_step_value}")


@LOOPS
def test_listeners_are_told_of_each_save_in_their_order(tmp_path, iterations_per_loop):
    calls = []
    listeners = [Saves(calls, "a "), Saves(calls, "b ")]
    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=4)
    trained.train(numbers(), steps=6, saving_listeners=listeners)
    verbs = [f"{when}_save {step}" for step in (0, 4, 6) for when in ("before", "after")]
    verbs = ["begin", *verbs, "end 6"]
    assert calls == [f"{name} {verb}" for verb in verbs for name in "ab"]


@LOOPS
def test_a_listener_sees_the_new_checkpoint_and_weights(tmp_path, iterations_per_loop):
    seen = []

    class Look(v1.train.CheckpointSaverListener):
        def begin(self):
            self.w = v1.global_variables("w")[0]

        def before_save(self, session, global_step_value):
            before = {0: None, 3: str(tmp_path / "model.ckpt-0")}
            newest = before.get(global_step_value, str(tmp_path / "model.ckpt-3"))
            assert trained.latest_checkpoint() == newest

        def after_save(self, session, global_step_value):
            assert trained.latest_checkpoint().endswith(f"-{global_step_value}")
            assert session.run(self.w) == trained.get_variable_value("w")
            seen.append(int(global_step_value))

    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=3)
    trained.train(numbers(), steps=6, saving_listeners=[Look()])
    assert seen == [0, 3, 6]


@LOOPS
def test_every_listener_is_told_when_one_asks_to_stop(tmp_path, iterations_per_loop):
    calls = []
    listeners = [Saves(calls, "a ", stop_at=4), Saves(calls, "b ")]
    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=2)
    trained.train(numbers(), steps=10, saving_listeners=listeners)
    assert trained.train_result.reason == "listener"
    assert trained.train_result.global_step == 4
    assert calls[-4:] == ["a after_save 4", "b after_save 4", "a end 4", "b end 4"]
    assert checkpoint_steps(trained.model_dir) == [0, 2, 4]


class FeedsInLoop(v1.train.SessionRunHook):
    """Feeds a tensor of `model_fn`, which it is made with or looks up."""

    def __init__(self, tensor=None):
        self.tensor = tensor

    def before_run(self, run_context):
        tensor = self.tensor
        if tensor is None:
            tensor = v1.get_default_graph().get_tensor_by_name("factor:0")
        return v1.train.SessionRunArgs(None, {tensor: 3.0})


def factor_model_fn(features, mode, params):
    factor = v1.placeholder_with_default(1.0, [], "factor")
    total = v1.get_variable("total", [], initializer=v1.zeros_initializer(), use_resource=True)
    train_op = tf.group(v1.train.get_global_step().assign_add(1), total.assign_add(factor))
    hook = FeedsInLoop(factor if params["by_object"] else None)
    return est.tpu.TPUEstimatorSpec(mode, loss=factor, train_op=train_op, training_hooks=[hook])


@pytest.mark.parametrize("by_object", [True, False])
def test_what_a_hook_feeds_inside_the_loop_is_no_other_value(tmp_path, by_object):
    params = {"by_object": by_object}
    config = est.RunConfig(str(tmp_path / "loop"), iterations_per_loop=5)
    looping = est.Estimator(factor_model_fn, config=config, params=params)
    with pytest.raises(
        ValueError, match=r"(?s)FeedsInLoop.*inside the loop.*iterations_per_loop=1"
    ):
        looping.train(numbers(), steps=5)
    tpu_config = est.tpu.TPUConfig(iterations_per_loop=5)
    config = est.tpu.RunConfig(model_dir=str(tmp_path / "tpu"), tpu_config=tpu_config)
    falling_back = est.tpu.TPUEstimator(
        factor_model_fn, config=config, params=params, use_tpu=False, train_batch_size=1
    )
    falling_back.train(lambda params: numbers()(), steps=5)
    assert falling_back.get_variable_value("total") == 15


# What hooks do with parts of a model that is inside a loop.


class Calls(v1.train.SessionRunHook):
    """Calls functions with the session, and keeps what they return."""

    def __init__(self, after=None, ask=None, create=None):
        self.after, self.ask, self.create, self.found = after, ask, create, []

    def after_create_session(self, session, coord):
        if self.create is not None:
            self.found.append(self.create(session))

    def before_run(self, run_context):
        return None if self.ask is None else v1.train.SessionRunArgs(self.ask())

    def after_run(self, run_context, run_values):
        if self.after is not None:
            self.found.append(self.after(run_context.session))
        if self.ask is not None:
            self.found.append(run_values.results)


def parts_model_fn(features, mode, params):
    """Adds the features up; `params["made"]` gets what hooks use."""
    made = params["made"]
    queue = v1.PaddingFIFOQueue(100, tf.float32, [[]])
    count = v1.get_variable(
        "count", [], initializer=v1.zeros_initializer(), trainable=False, use_resource=True
    )
    total = v1.get_variable("total", [], initializer=v1.zeros_initializer(), use_resource=True)
    first = tf.cast(tf.reshape(features, [-1])[0], tf.float32)
    made.update(queue=queue, total=total, counted=count.assign_add(1), size=queue.size())
    made.update(set=v1.assign(count, 7.0), of_batch=tf.identity(first, "of_batch"))
    train_op = tf.group(
        v1.train.get_global_step().assign_add(1), total.assign_add(first), queue.enqueue(first)
    )
    return est.tpu.TPUEstimatorSpec(mode, loss=first, train_op=train_op)


class Made(dict):
    """Is itself in the copy of `params` that each call gets."""

    def __deepcopy__(self, memo):
        return self


def train_parts(model_dir, hook_of, loop, steps=8, is_tpu=False):
    """Trains with the hook that `hook_of` makes; the returned hook has what it found."""
    made = Made()
    hook = hook_of(made)
    params = {"made": made}
    if is_tpu:
        config = est.tpu.RunConfig(
            model_dir=str(model_dir), tpu_config=est.tpu.TPUConfig(iterations_per_loop=loop)
        )
        model = est.tpu.TPUEstimator(
            parts_model_fn, config=config, params=params, use_tpu=False, train_batch_size=1
        )
        model.train(lambda params: numbers()(), [hook], steps=steps)
    else:
        config = est.RunConfig(str(model_dir), iterations_per_loop=loop)
        model = est.Estimator(parts_model_fn, config=config, params=params)
        model.train(numbers(), [hook], steps=steps)
    return hook


UNREACHABLE = {
    "the result of an assign": lambda made: Calls(ask=lambda: made["counted"]),
    "the name of a tensor": lambda made: Calls(ask=lambda: "of_batch:0"),
    "the name of an op": lambda made: Calls(ask=lambda: "of_batch"),
    "a session call": lambda made: Calls(create=lambda session: session.run(made["of_batch"])),
}


@pytest.mark.parametrize("kind", UNREACHABLE)
def test_what_a_hook_cannot_have_of_a_loop_is_told_or_ends_the_loop(tmp_path, kind):
    with pytest.raises(ValueError, match=r"(?s)The hook Calls .*iterations_per_loop=1"):
        train_parts(tmp_path / "a", UNREACHABLE[kind], loop=4)
    if kind != "a session call":  # Without a loop, it would take a batch of its own.
        hook = train_parts(tmp_path / "b", UNREACHABLE[kind], loop=4, is_tpu=True)
        assert len(hook.found) == 8
        expected = None if kind == "the name of an op" else 8 if "assign" in kind else 7
        assert hook.found[-1] == expected


@LOOPS
def test_a_hook_runs_an_assign_of_the_model_and_gets_the_value(tmp_path, iterations_per_loop):
    def run(made):
        return Calls(after=lambda session: [session.run(made["set"]), session.run(made["counted"])])

    hook = train_parts(tmp_path, run, iterations_per_loop)
    assert hook.found[-1] == [7, 8]


@LOOPS
def test_a_hook_sees_the_queue_of_the_model(tmp_path, iterations_per_loop):
    hook = train_parts(
        tmp_path,
        lambda made: Calls(after=lambda session: session.run(made["size"])),
        iterations_per_loop,
    )
    assert hook.found[-1] == 8


def test_a_variable_that_a_hook_fetches_has_the_value_after_the_loop(tmp_path):
    hook = train_parts(tmp_path, lambda made: Calls(ask=lambda: made["total"]), loop=4)
    assert hook.found == [0 + 1 + 2 + 3, sum(range(8))]


@LOOPS
@pytest.mark.parametrize("hooks", [[], [v1.train.SessionRunHook()]], ids=["alone", "with_a_hook"])
def test_a_listener_may_name_a_variable_with_and_without_hooks(
    tmp_path, iterations_per_loop, hooks
):
    found = []

    class Reads(v1.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            step = session.graph.get_tensor_by_name("global_step:0")
            found.append((int(global_step_value), *session.run(["global_step:0", step])))

    trained = make(tmp_path, iterations_per_loop, save_checkpoints_steps=4)
    trained.train(numbers(), hooks=hooks, steps=9, saving_listeners=[Reads()])
    assert found == [(step, step, step) for step in (0, 4, 8, 9)]


def test_queue_runners_of_the_model_end_the_loop(tmp_path):
    def model_fn(features, mode):
        batch = v1.train.batch([tf.constant([1.0, 2.0])], 2, enqueue_many=True)
        step = v1.train.get_global_step().assign_add(1)
        return est.tpu.TPUEstimatorSpec(mode, loss=tf.reduce_sum(batch), train_op=step)

    config = est.RunConfig(str(tmp_path / "a"), iterations_per_loop=4)
    with pytest.raises(ValueError, match=r"(?s)QueueRunner.*iterations_per_loop=1"):
        est.Estimator(model_fn, config=config).train(numbers(), steps=4)
    config = est.tpu.RunConfig(
        model_dir=str(tmp_path / "b"), tpu_config=est.tpu.TPUConfig(iterations_per_loop=4)
    )
    model = est.tpu.TPUEstimator(model_fn, config=config, use_tpu=False, train_batch_size=1)
    model.train(lambda params: numbers()(), steps=4)
    assert model.train_result.loss == 3


@LOOPS
@pytest.mark.parametrize("key", ["scale:0", "tensor"])
def test_a_placeholder_with_a_default_of_the_input_may_be_fed(tmp_path, iterations_per_loop, key):
    made = Made()

    def input_fn():
        made["scale"] = v1.placeholder_with_default(1.0, [], "scale")
        (x,) = v1.data.make_one_shot_iterator(numbers()().map(lambda x: (x,))).get_next()
        return tf.cast(x, tf.float32) * made["scale"]

    class FeedsScale(v1.train.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(None, {made["scale"] if key == "tensor" else key: 3.0})

    config = est.RunConfig(str(tmp_path), iterations_per_loop=iterations_per_loop)
    model = est.Estimator(parts_model_fn, config=config, params={"made": Made()})
    model.train(input_fn, [FeedsScale()], steps=5)
    assert model.get_variable_value("total") == 3 * sum(range(5))


class FeedsNext(v1.train.SessionRunHook):
    """Does what a FeedFnHook does."""

    def __init__(self, feed_fn):
        self.feed_fn = feed_fn

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(None, self.feed_fn())


# Only a stock hook is known to feed before it is asked for the first value, which is then lost.
@pytest.mark.parametrize(("kind", "first"), [(v1.train.FeedFnHook, 10), (FeedsNext, 11)])
def test_a_loop_for_a_tpu_is_left_for_a_hook_that_feeds(tmp_path, kind, first):
    """Each of the steps then has a value of its own, as with tf.estimator."""
    made = Made()
    values = iter(range(10, 20))

    def input_fn(params):
        made["fed"] = v1.placeholder(tf.float32, [], "fed")
        return made["fed"]

    config = est.tpu.RunConfig(
        model_dir=str(tmp_path), tpu_config=est.tpu.TPUConfig(iterations_per_loop=4)
    )
    model = est.tpu.TPUEstimator(
        parts_model_fn, config=config, params={"made": Made()}, use_tpu=False, train_batch_size=1
    )
    model.train(input_fn, [kind(lambda: {made["fed"]: float(next(values))})], steps=4)
    assert model.get_variable_value("total") == sum(range(first, first + 4))


@pytest.mark.parametrize("strategy", [None, "mirrored"])
def test_what_replicas_have_of_their_own_is_combined_after_the_loop(tmp_path, strategy):
    def model_fn(features, mode):
        count = v1.get_variable(
            "count",
            [],
            initializer=v1.zeros_initializer(),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        train_op = tf.group(v1.train.get_global_step().assign_add(1), count.assign_add(1.0))
        return est.EstimatorSpec(mode, loss=0.0 * count, train_op=train_op)

    class AsksForCount(Calls):
        def begin(self):
            (variable,) = (v for v in v1.global_variables() if v.name == "count:0")
            self.ask = lambda: variable

    num = 2 if strategy else None
    config = est.RunConfig(
        str(tmp_path), iterations_per_loop=4, strategy=strategy, num_replicas=num
    )
    asks = AsksForCount()
    est.Estimator(model_fn, config=config).train(numbers(), [asks], steps=8)
    assert asks.found == ([8, 16] if strategy else [4, 8])


def test_a_sparse_tensor_of_the_loop_is_told_the_ways_out(tmp_path):
    made = Made()

    def model_fn(features, mode):
        made["sparse"] = tf.sparse.from_dense(tf.reshape(features, [1, -1]))
        step = v1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=tf.constant(0.0), train_op=step)

    config = est.RunConfig(str(tmp_path), iterations_per_loop=4)
    with pytest.raises(ValueError, match=r"(?s)SparseTensor.*iterations_per_loop=1"):
        est.Estimator(model_fn, config=config).train(
            numbers(), [Calls(ask=lambda: made["sparse"])], steps=4
        )
