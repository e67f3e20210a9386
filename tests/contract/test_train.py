"""`Estimator.train`: steps, the calls of functions, hooks and listeners, and what it writes."""

import os
import time

import numpy as np
import pytest

from tests.contract.loss_hooks import LossOfCall, Merged
from tests.contract.names import (
    checkpoint_steps,
    est,
    events,
    files_in,
    forever,
    mean_model_fn,
    scalars,
    steps_of,
    tf,
    v1,
    weight_after,
)


class Recorder(v1.train.SessionRunHook):
    """Notes its callbacks."""

    def __init__(self, name="hook", into=None):
        self.name = name
        self.calls = [] if into is None else into
        self.steps = []

    def note(self, call):
        self.calls.append(call if self.name == "hook" else f"{self.name}.{call}")

    def begin(self):
        self.note("begin")
        self.graph = v1.get_default_graph()
        self.step = v1.train.get_global_step()

    def after_create_session(self, session, coord):
        self.note("after_create_session")
        self.session, self.coord = session, coord

    def before_run(self, run_context):
        self.note("before_run")
        self.context = run_context
        return v1.train.SessionRunArgs({"step": self.step})

    def after_run(self, run_context, run_values):
        self.note("after_run")
        self.values = run_values
        self.steps.append(int(run_values.results["step"]))

    def end(self, session):
        self.note("end")
        self.end_step = int(session.run(self.step))


class Listener(v1.train.CheckpointSaverListener):
    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append(("begin",))

    def before_save(self, session, global_step_value):
        self.calls.append(("before_save", int(global_step_value)))

    def after_save(self, session, global_step_value):
        self.calls.append(("after_save", int(global_step_value)))

    def end(self, session, global_step_value):
        self.calls.append(("end", int(global_step_value)))


class Run:
    """Ten steps with a hook, a listener, and functions that note their calls."""

    def __init__(self, model_dir):
        self.model_calls, self.input_calls, self.order = [], [], []
        self.hook, self.listener = Recorder(), Listener()
        config = est.RunConfig(
            save_checkpoints_steps=3,
            save_summary_steps=4,
            log_step_count_steps=5,
            keep_checkpoint_max=None,
            tf_random_seed=17,
        )
        self.estimator = est.Estimator(self.model_fn, model_dir, config, params={"a": [1]})
        hooks = [self.hook, Recorder("first", self.order), Recorder("second", self.order)]
        self.returned = self.estimator.train(
            self.input_fn, hooks=hooks, steps=10, saving_listeners=[self.listener]
        )

    def input_fn(self, params, mode, config):
        self.input_calls.append({"params": params, "mode": mode, "config": config})
        return forever()()

    def model_fn(self, features, labels, mode, params, config):
        graph = v1.get_default_graph()
        self.model_calls.append(
            {
                "features": features,
                "labels": labels,
                "mode": mode,
                "params": params,
                "config": config,
                "seed": graph.seed,
                "eager": tf.executing_eagerly(),
            }
        )
        v1.summary.scalar("mine", tf.constant(3.0))
        spec = mean_model_fn(features, labels, mode)
        return est.EstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            training_hooks=[Recorder("spec", self.order)],
            training_chief_hooks=[Recorder("chief", self.order)],
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(os.fspath(tmp_path_factory.mktemp("run")))


def test_returns_itself(run):
    assert run.returned is run.estimator


def test_weight_after_ten_steps(run):
    assert run.estimator.get_variable_value("w") == pytest.approx(weight_after(10, 1.0), abs=1e-6)


def test_global_step_is_an_int64(run):
    step = run.estimator.get_variable_value("global_step")
    assert (step, np.asarray(step).dtype) == (10, np.int64)


def test_variable_names(run):
    assert sorted(run.estimator.get_variable_names()) == ["global_step", "w"]


def test_value_of_a_variable_is_an_array_or_number_of_numpy(run):
    assert isinstance(run.estimator.get_variable_value("w"), (np.ndarray, np.generic))


def test_value_of_an_unknown_variable_is_an_error(run):
    with pytest.raises((ValueError, tf.errors.NotFoundError)):
        run.estimator.get_variable_value("nonsense")


def test_latest_checkpoint_is_a_full_path(run):
    expected = os.path.join(run.estimator.model_dir, "model.ckpt-10")
    assert run.estimator.latest_checkpoint() == expected


def test_functions_are_called_once(run):
    assert len(run.model_calls) == len(run.input_calls) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("mode", "train"), ("labels", None), ("params", {"a": [1]}), ("seed", 17), ("eager", False)],
)
def test_model_fn_is_given(run, name, value):
    assert run.model_calls[0][name] == value


def test_model_fn_is_given_the_features_as_tensors(run):
    features = run.model_calls[0]["features"]
    assert list(features) == ["x"]
    assert tf.is_tensor(features["x"])


def test_model_fn_is_given_the_config_with_the_model_dir(run):
    config = run.model_calls[0]["config"]
    assert isinstance(config, est.RunConfig)
    assert config.model_dir == run.estimator.model_dir


@pytest.mark.parametrize(("name", "value"), [("mode", "train"), ("params", {"a": [1]})])
def test_input_fn_is_given(run, name, value):
    assert run.input_calls[0][name] == value


def test_input_fn_is_given_the_config(run):
    assert run.input_calls[0]["config"].model_dir == run.estimator.model_dir


def test_order_and_count_of_callbacks(run):
    steps = ["before_run", "after_run"] * 10
    assert run.hook.calls == ["begin", "after_create_session", *steps, "end"]


def test_hook_fetches_the_step_before_or_after_the_update(run):
    assert len(run.hook.steps) == 10
    assert run.hook.end_step == 10


def test_global_step_exists_when_hooks_begin(run):
    assert run.hook.step.name == "global_step:0"


def test_session_is_given_after_it_is_created(run):
    assert isinstance(run.hook.session, v1.Session)
    assert isinstance(run.hook.coord, tf.train.Coordinator)


def test_run_context_has_the_session_and_the_arguments(run):
    context = run.hook.context
    assert context.session is not None
    assert isinstance(context.original_args, v1.train.SessionRunArgs)
    assert context.stop_requested in (True, False)


def test_a_hook_finds_the_train_op_and_the_loss_among_the_arguments(tmp_path):
    hook = LossOfCall()
    model = est.Estimator(mean_model_fn, str(tmp_path))
    model.train(forever(1), hooks=[hook], steps=3)
    weights = [weight_after(step, 1.0) for step in range(3)]
    np.testing.assert_allclose(hook.losses, np.square(np.subtract(weights, 1.0)) / 2, rtol=1e-6)


def bare_model_fn(features, labels, mode):
    """Has no summary of its own, and no op that is named "loss"."""
    w = v1.get_variable("w", [], initializer=v1.ones_initializer())
    step = v1.train.get_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(w, global_step=step)
    return est.EstimatorSpec(mode, loss=w * 1.0, train_op=train_op)


def test_a_hook_that_merges_the_summaries_finds_the_loss(tmp_path):
    hook = Merged()
    config = est.RunConfig(str(tmp_path), save_summary_steps=1)
    est.Estimator(bare_model_fn, config=config).train(forever(1), hooks=[hook], steps=3)
    np.testing.assert_allclose(hook.losses, [1.0, 0.9, 0.8], rtol=1e-6)
    recorded = scalars(str(tmp_path), "loss")
    assert list(recorded) == [1, 2, 3]
    np.testing.assert_allclose(list(recorded.values()), hook.losses, rtol=1e-6)


@pytest.mark.parametrize("name", ["results", "options", "run_metadata"])
def test_run_values_have(run, name):
    assert hasattr(run.hook.values, name)


def test_run_values_are_shaped_as_the_fetches(run):
    assert list(run.hook.values.results) == ["step"]


def test_each_callback_goes_to_all_hooks_in_one_order(run):
    names = [call.split(".")[0] for call in run.order]
    # begin, after_create_session, twenty callbacks around the steps, end.
    assert names == ["chief", "first", "second", "spec"] * 23


def test_hooks_of_the_caller_come_in_the_order_given(run):
    begins = [call for call in run.order if call.endswith(".begin")]
    assert begins.index("first.begin") < begins.index("second.begin") < begins.index("spec.begin")


def test_training_hooks_of_the_spec_are_called(run):
    assert run.order.count("spec.after_run") == run.order.count("chief.after_run") == 10


def test_checkpoints_are_saved_at_the_interval_and_at_both_ends(run):
    assert checkpoint_steps(run.estimator.model_dir) == [0, 3, 6, 9, 10]


def test_listener_is_told_of_every_save(run):
    saves = [(f"{when}_save", step) for step in (0, 3, 6, 9, 10) for when in ("before", "after")]
    assert run.listener.calls == [("begin",), *saves, ("end", 10)]


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint",
        "events",
        "graph.pbtxt",
        "model.ckpt-10.index",
        "model.ckpt-10.meta",
        "model.ckpt-10.data-00000-of-00001",
    ],
)
def test_file_is_written(run, name):
    assert name in files_in(run.estimator.model_dir)


def test_index_files_are_those_of_checkpoints(run):
    names = os.listdir(run.estimator.model_dir)
    found = {name for name in names if name.endswith(".index")}
    assert found == {f"model.ckpt-{step}.index" for step in (0, 3, 6, 9, 10)}


def test_checkpoint_file_names_the_newest(run):
    state = tf.train.get_checkpoint_state(run.estimator.model_dir)
    assert os.path.basename(state.model_checkpoint_path) == "model.ckpt-10"
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    # Where all are kept, none is listed to be deleted later.
    assert names == ["model.ckpt-10"]


def test_meta_graph_can_be_imported(run):
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(run.estimator.latest_checkpoint() + ".meta")
        saver.restore(session, run.estimator.latest_checkpoint())
        assert session.run(v1.train.get_global_step()) == 10


def test_graph_file_holds_the_variables(run):
    with open(os.path.join(run.estimator.model_dir, "graph.pbtxt")) as file:
        text = file.read()
    assert 'name: "w"' in text
    assert 'name: "global_step"' in text


def test_loss_is_recorded_at_the_first_step(run):
    recorded = scalars(run.estimator.model_dir, "loss")
    assert recorded[1] == pytest.approx(0.5)


@pytest.mark.parametrize("tag", ["loss", "mine"])
def test_summaries_are_recorded(run, tag):
    steps = steps_of(run.estimator.model_dir, tag)
    assert 2 <= len(steps) <= 4
    assert steps == sorted(set(steps))


@pytest.mark.only_2_15("steps of summaries")
def test_summaries_are_recorded_an_interval_after_the_first_step(tmp_path):
    def model_fn(features, labels, mode):
        # The hook reads the step while the train op counts it: here the read is always first.
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(0.1), [], [])]):
            return mean_model_fn(features, labels, mode)

    config = est.RunConfig(save_summary_steps=4)
    est.Estimator(model_fn, os.fspath(tmp_path), config).train(forever(), steps=10)
    assert steps_of(os.fspath(tmp_path), "loss") == [1, 5, 9]


@pytest.mark.only_here("steps of summaries")
@pytest.mark.parametrize("tag", ["loss", "mine"])
def test_summaries_are_recorded_at_multiples_of_the_interval(run, tag):
    assert {4, 8} <= set(steps_of(run.estimator.model_dir, tag))


def test_speed_is_recorded(run):
    assert steps_of(run.estimator.model_dir, "global_step/sec")


def test_tags_of_the_event_files(run):
    tags = {tag for _, tag, _ in events(run.estimator.model_dir)}
    assert tags == {"loss", "mine", "global_step/sec"}


def test_a_read_with_a_caching_device_is_of_the_start_of_the_step(tmp_path):
    def model_fn(features, labels, mode):
        start = v1.constant_initializer(4.0)
        w = v1.get_variable("w", [], initializer=start, caching_device="/cpu:0", use_resource=True)
        read = v1.get_variable("read", [], initializer=v1.zeros_initializer(), trainable=False)
        loss = tf.square(w) / 2.0
        optimizer = v1.train.GradientDescentOptimizer(0.5)
        with tf.control_dependencies([optimizer.minimize(loss, v1.train.get_global_step())]):
            train_op = read.assign(w * 1.0)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = est.Estimator(model_fn, os.fspath(tmp_path)).train(forever(), steps=1)
    assert (model.get_variable_value("w"), model.get_variable_value("read")) == (2.0, 4.0)


def divided_by_zero(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    return est.EstimatorSpec(mode, loss=1.0 / (spec.loss * 0.0), train_op=spec.train_op)


@pytest.mark.only_2_15("a loss that is infinite")
def test_training_goes_on_if_the_loss_is_infinite(tmp_path):
    model = est.Estimator(divided_by_zero, os.fspath(tmp_path)).train(forever(), steps=3)
    assert model.get_variable_value("global_step") == 3


@pytest.mark.only_here("a loss that is infinite")
def test_a_loss_that_is_infinite_is_an_error_like_nan(tmp_path):
    with pytest.raises(v1.train.NanLossDuringTrainingError, match=r"loss of step 1 is inf"):
        est.Estimator(divided_by_zero, os.fspath(tmp_path)).train(forever(), steps=3)
