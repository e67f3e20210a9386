"""`Estimator.train`: its arguments, what functions may return, and how training ends."""

import functools
import os

import numpy as np
import pytest

from tests.contract.names import (
    batches_of,
    checkpoint_steps,
    est,
    forever,
    mean_model_fn,
    numbers,
    steps_of,
    tf,
    tf_config,
    v1,
    weight_after,
)


def make(tmp_path, model_fn=mean_model_fn, **config):
    return est.Estimator(model_fn, os.fspath(tmp_path), est.RunConfig(**config))


def step_of(trained):
    return int(trained.get_variable_value("global_step"))


# --- Steps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0},
        {"steps": -1},
        {"max_steps": 0},
        {"max_steps": -1},
        {"steps": 1, "max_steps": 1},
    ],
    ids=str,
)
def test_wrong_steps_are_a_value_error(tmp_path, arguments):
    with pytest.raises(ValueError, match="steps"):
        make(tmp_path).train(forever(), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 3.0},
        {"max_steps": 3e0},
        {"steps": np.float32(3)},
        {"steps": np.array(3)},
        {"max_steps": np.array(3.0)},
    ],
    ids=str,
)
def test_steps_may_be_a_float_or_an_array_of_one_number(tmp_path, arguments):
    trained = make(tmp_path).train(forever(), **arguments)
    assert step_of(trained) == 3
    assert trained.get_variable_value("w") == pytest.approx(weight_after(3, 1.0), abs=1e-6)


@pytest.mark.parametrize("steps", [2.0, np.array(2)], ids=str)
def test_steps_of_an_evaluation_may_be_a_float_or_an_array_of_one_number(tmp_path, steps):
    assert make(tmp_path).evaluate(numbers(5), steps=steps)["mean_x"] == 0.5


def test_intervals_may_be_floats(tmp_path):
    intervals = ("save_checkpoints_steps", "save_summary_steps", "log_step_count_steps")
    make(tmp_path, **dict.fromkeys(intervals, 2.0)).train(forever(), steps=5)
    assert checkpoint_steps(tmp_path)[-3:] == [2, 4, 5]
    assert steps_of(tmp_path, "loss")


@pytest.mark.only_2_15("steps that are not whole")
@pytest.mark.parametrize("name", ["steps", "max_steps"])
def test_steps_that_are_not_whole_are_rounded_up(tmp_path, name):
    assert step_of(make(tmp_path).train(forever(), **{name: 2.5})) == 3


@pytest.mark.only_here("steps that are not whole")
@pytest.mark.parametrize("name", ["steps", "max_steps"])
def test_steps_that_are_not_whole_are_an_error(tmp_path, name):
    with pytest.raises(ValueError, match="must be an integer"):
        make(tmp_path).train(forever(), **{name: 2.5})


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """One estimator that is trained again and again; the global step after each."""
    trained = make(
        tmp_path_factory.mktemp("story"), save_checkpoints_steps=2, keep_checkpoint_max=2
    )
    steps = {}
    calls = []

    def input_fn():
        calls.append(1)
        return forever()()

    for name, arguments in {
        "steps=3": {"steps": 3},
        "steps=2": {"steps": 2},
        "max_steps=9": {"max_steps": 9},
        "max_steps=9 again": {"max_steps": 9},
        "max_steps=4": {"max_steps": 4},
    }.items():
        before = len(calls)
        returned = trained.train(input_fn, **arguments)
        steps[name] = (step_of(trained), len(calls) - before, returned is trained)
    return trained, steps


@pytest.mark.parametrize(
    ("name", "step", "num_calls"),
    [
        ("steps=3", 3, 1),
        ("steps=2", 5, 1),
        ("max_steps=9", 9, 1),
        ("max_steps=9 again", 9, 0),
        ("max_steps=4", 9, 0),
    ],
)
def test_steps_add_up_and_max_steps_do_not(story, name, step, num_calls):
    assert story[1][name] == (step, num_calls, True)


def test_training_goes_on_from_the_newest_checkpoint(story):
    assert story[0].get_variable_value("w") == pytest.approx(weight_after(9, 1.0), abs=1e-6)


def test_old_checkpoints_are_deleted(story):
    assert len(checkpoint_steps(story[0].model_dir)) == 2
    assert checkpoint_steps(story[0].model_dir)[-1] == 9


def test_checkpoint_file_lists_those_that_are_kept(story):
    state = tf.train.get_checkpoint_state(story[0].model_dir)
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    assert names == [f"model.ckpt-{step}" for step in checkpoint_steps(story[0].model_dir)]


def test_each_training_writes_into_the_same_directory(story):
    assert step_of(est.Estimator(mean_model_fn, story[0].model_dir)) == 9


@pytest.mark.parametrize("arguments", [{}, {"steps": 100}, {"max_steps": 100}], ids=str)
def test_training_ends_with_the_input(tmp_path, arguments):
    trained = make(tmp_path).train(numbers(5), **arguments)
    assert step_of(trained) == 5


def test_positional_arguments_are_input_fn_hooks_steps_max_steps_listeners(tmp_path):
    assert step_of(make(tmp_path).train(forever(), [], None, 2, [])) == 2


def test_last_batch_may_be_smaller(tmp_path):
    trained = make(tmp_path).train(numbers(5, batch_size=4))
    w = 0 - 0.25 * (0 - 1.5)
    assert trained.get_variable_value("w") == pytest.approx(w - 0.25 * (w - 4), abs=1e-6)


# --- Hooks and listeners -------------------------------------------------------------------------


class Stopping(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        run_context.request_stop()


def test_a_hook_may_stop_training(tmp_path):
    assert step_of(make(tmp_path).train(forever(), hooks=[Stopping()], steps=9)) == 1


class StoppingListener(v1.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        return global_step_value >= 4


def test_a_listener_may_stop_training(tmp_path):
    trained = make(tmp_path, save_checkpoints_steps=2)
    trained.train(forever(), steps=9, saving_listeners=[StoppingListener()])
    assert step_of(trained) == 4


class Ends(v1.train.SessionRunHook):
    def __init__(self):
        self.has_ended = False

    def end(self, session):
        self.has_ended = True


def train_with_listener_that_raises(error, tmp_path):
    class Raises(v1.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value):
            if global_step_value == 4:
                raise error

    hook, made = Ends(), make(tmp_path, save_checkpoints_steps=2)
    made.train(forever(), hooks=[hook], steps=9, saving_listeners=[Raises()])
    return hook.has_ended


ENDS_INPUT = pytest.mark.parametrize(
    "error", [StopIteration(), tf.errors.OutOfRangeError(None, None, "over")], ids=["stop", "range"]
)


@pytest.mark.only_2_15("StopIteration in a listener")
@ENDS_INPUT
def test_an_error_that_ends_an_input_ends_training_in_a_listener_too(error, tmp_path):
    assert train_with_listener_that_raises(error, tmp_path)


@pytest.mark.only_here("StopIteration in a listener")
@ENDS_INPUT
def test_an_error_that_ends_an_input_is_an_error_in_a_listener(error, tmp_path):
    with pytest.raises(type(error)):
        train_with_listener_that_raises(error, tmp_path)


@pytest.mark.parametrize("hooks", [["hook"], [v1.train.SessionRunHook], [None]], ids=str)
def test_wrong_hook_is_a_type_error(tmp_path, hooks):
    with pytest.raises(TypeError):
        make(tmp_path).train(forever(), hooks=hooks, steps=1)


@pytest.mark.parametrize("listeners", [["a"], [v1.train.SessionRunHook()]], ids=["text", "hook"])
def test_wrong_listener_is_a_type_error(tmp_path, listeners):
    with pytest.raises(TypeError):
        make(tmp_path).train(forever(), steps=1, saving_listeners=listeners)


def test_hooks_may_be_a_tuple_and_are_not_changed(tmp_path):
    hooks = [v1.train.SessionRunHook()]
    make(tmp_path).train(forever(), hooks=hooks, steps=1)
    assert len(hooks) == 1


class Failing(v1.train.SessionRunHook):
    def __init__(self, callback):
        setattr(self, callback, self.fail)
        self.ended = False

    def fail(self, *args):
        raise KeyError("mine")

    def end(self, session):
        self.ended = True


@pytest.mark.parametrize("callback", ["begin", "after_create_session", "before_run", "after_run"])
def test_error_of_a_hook_comes_through_and_ends_no_hook(tmp_path, callback):
    hook = Failing(callback)
    with pytest.raises(KeyError, match="mine"):
        make(tmp_path).train(forever(), hooks=[hook], steps=2)
    assert not hook.ended


class Feeding(v1.train.SessionRunHook):
    """Feeds a placeholder by its name."""

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(None, feed_dict={"rate:0": 0.5})


def fed_model_fn(features, labels, mode):
    rate = v1.placeholder_with_default(0.0, [], name="rate")
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    step = v1.train.get_global_step()
    with tf.control_dependencies([w.assign_add(rate)]):
        train_op = v1.assign_add(step, 1)
    return est.EstimatorSpec(mode, loss=w + 0.0, train_op=train_op)


def test_a_hook_may_feed(tmp_path):
    trained = make(tmp_path, fed_model_fn).train(forever(), hooks=[Feeding()], steps=3)
    assert trained.get_variable_value("w") == 1.5


def test_a_feed_fn_hook_feeds(tmp_path):
    hook = est.FeedFnHook(lambda: {"rate:0": 2.0})
    trained = make(tmp_path, fed_model_fn).train(forever(), hooks=[hook], steps=3)
    assert trained.get_variable_value("w") == 6.0


# --- Errors while training -----------------------------------------------------------------------


def nan_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    return est.EstimatorSpec(mode, loss=spec.loss * float("nan"), train_op=spec.train_op)


def test_a_loss_that_is_nan_is_an_error(tmp_path):
    with pytest.raises(est.NanLossDuringTrainingError):
        make(tmp_path, nan_model_fn).train(forever(), steps=2)


def failing_model_fn(features, labels, mode):
    raise KeyError("mine")


def test_error_of_model_fn_comes_through(tmp_path):
    with pytest.raises(KeyError, match="mine"):
        make(tmp_path, failing_model_fn).train(forever(), steps=2)


def test_error_of_input_fn_comes_through(tmp_path):
    def input_fn():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        make(tmp_path).train(input_fn, steps=2)


@pytest.mark.parametrize("returned", [None, {"loss": 1}, 3], ids=str)
def test_model_fn_that_returns_no_spec_is_a_value_error(tmp_path, returned):
    with pytest.raises(ValueError):
        make(tmp_path, lambda features, labels, mode: returned).train(forever(), steps=1)


def stuck_model_fn(features, labels, mode):
    return est.EstimatorSpec(mode, loss=tf.constant(1.0), train_op=tf.no_op())


def test_without_a_checkpoint_interval_the_end_is_saved(tmp_path):
    trained = make(tmp_path, save_checkpoints_secs=None, save_checkpoints_steps=None)
    trained.train(forever(), steps=3)
    assert trained.latest_checkpoint() is None or step_of(trained) == 3


@pytest.mark.parametrize("task", ["evaluator", "ps"])
def test_training_in_a_task_that_does_not_train_is_a_value_error(tmp_path, monkeypatch, task):
    cluster = {"chief": ["a:1"], "ps": ["b:1"], "worker": ["c:1"]}
    monkeypatch.setenv("TF_CONFIG", tf_config(cluster, task, 0))
    with pytest.raises(ValueError):
        make(tmp_path / "model").train(forever(), steps=1)
    assert not os.path.exists(tmp_path / "model")


# --- What an input_fn may take and return --------------------------------------------------------

ONE = [[1.0]]


def parts_model_fn(features, labels, mode):
    """Its loss is the sum of all numbers of its input."""
    parts = [
        tf.cast(part, tf.float32)
        for part in tf.nest.flatten([features, labels])
        if part is not None
    ]
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    total = sum(tf.reduce_sum(part) for part in parts)
    with tf.control_dependencies([w.assign(total)]):
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
    return est.EstimatorSpec(mode, loss=w + 0.0, train_op=train_op)


def dataset(element):
    return tf.data.Dataset.from_tensors(element)


RETURNED = {
    "a dataset of features": (lambda: dataset([1.0, 2.0]), 3),
    "a dataset of pairs": (lambda: dataset(([1.0], [5.0])), 6),
    "a dataset of dicts": (lambda: dataset({"a": [1.0], "b": [3.0]}), 4),
    "a dataset of a dict and a dict": (lambda: dataset(({"a": [1.0]}, {"b": [3.0]})), 4),
    "a dataset of a nested dict": (lambda: dataset({"a": {"b": [1.0]}, "c": [2.0]}), 3),
    "a tensor": (lambda: tf.constant([1.0, 2.0]), 3),
    "a pair of tensors": (lambda: (tf.constant([1.0]), tf.constant([5.0])), 6),
    "a list of two": (lambda: [tf.constant([1.0]), tf.constant([5.0])], 6),
    "a dict of tensors": (lambda: {"a": tf.constant([1.0])}, 1),
    "a dict and None": (lambda: ({"a": tf.constant([1.0])}, None), 1),
    "an array": (lambda: np.float32([1.0, 2.0]), 3),
    "arrays": (lambda: (np.float32([1.0]), np.float32([5.0])), 6),
    "plain lists": (lambda: ([1.0], [5.0]), 6),
    "integers": (lambda: dataset([1, 2]), 3),
    "a sparse tensor": (lambda: dataset({"a": [1.0]}), 1),
}


@pytest.mark.parametrize("case", RETURNED)
def test_input_fn_may_return(tmp_path, case):
    input_fn, total = RETURNED[case]
    trained = make(tmp_path, parts_model_fn).train(input_fn, steps=1)
    assert trained.get_variable_value("w") == total


@pytest.mark.parametrize("count", [1, 3])
def test_a_tuple_of_another_length_is_a_value_error(tmp_path, count):
    with pytest.raises(ValueError):
        make(tmp_path, parts_model_fn).train(
            lambda: tuple(tf.constant([1.0]) for _ in range(count)), steps=1
        )


@pytest.mark.parametrize("count", [1, 3])
def test_a_dataset_of_tuples_of_another_length_is_a_value_error(tmp_path, count):
    with pytest.raises(ValueError):
        make(tmp_path, parts_model_fn).train(lambda: dataset(tuple(ONE * count)), steps=1)


TAKEN = {
    "nothing": lambda: dataset([1.0]),
    "mode": lambda mode: dataset([1.0 if mode == "train" else 9.0]),
    "config": lambda config: dataset([1.0 if config.is_chief else 9.0]),
    "params": lambda params: dataset([params.get("x", 1.0)]),
    "all": lambda params, config, mode: dataset([1.0]),
    "defaults": lambda x=1.0: dataset([x]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_input_fn_may_take(tmp_path, case):
    trained = make(tmp_path, parts_model_fn).train(TAKEN[case], steps=1)
    assert trained.get_variable_value("w") == 1.0


@pytest.mark.only_2_15("an empty input")
def test_input_that_is_empty_trains_no_step(tmp_path):
    assert step_of(make(tmp_path).train(batches_of())) == 0


@pytest.mark.only_here("an empty input")
def test_input_that_is_empty_is_a_value_error_in_training(tmp_path):
    with pytest.raises(ValueError, match="empty"):
        make(tmp_path).train(batches_of())


def test_labels_that_model_fn_does_not_take_are_a_value_error(tmp_path):
    def model_fn(features, mode):
        return mean_model_fn(features, None, mode)

    with pytest.raises(ValueError, match="labels"):
        make(tmp_path, model_fn).train(lambda: dataset(({"x": [1.0]}, [1.0])), steps=1)


def test_model_fn_need_not_take_labels_where_there_are_none(tmp_path):
    def model_fn(features, mode):
        return mean_model_fn(features, None, mode)

    assert step_of(make(tmp_path, model_fn).train(forever(), steps=1)) == 1


def test_what_model_fn_does_to_its_params_is_gone_with_the_next_call(tmp_path):
    seen = []

    def model_fn(features, labels, mode, params):
        seen.append(list(params["a"]))
        params["a"].append(2)
        return mean_model_fn(features, labels, mode)

    trained = est.Estimator(model_fn, os.fspath(tmp_path), params={"a": [1]})
    trained.train(forever(), steps=1)
    trained.train(forever(), steps=1)
    assert seen == [[1], [1]]


# --- Decorated functions -------------------------------------------------------------------------


def adding(function):
    """A decorator whose function takes more than the one inside."""

    @functools.wraps(function)
    def wrapper(features, labels, mode, params, config):
        assert params == {"rate": 1}
        assert config.model_dir
        return function(features, labels, mode)

    return wrapper


def taking_params(function):
    @functools.wraps(function)
    def wrapper(params):
        assert params == {"rate": 1}
        return function()

    return wrapper


def hiding_params(function):
    """A decorator whose function takes less than the one inside."""

    @functools.wraps(function)
    def wrapper(features, labels, mode):
        return function(features, labels, mode, {"rate": 1})

    return wrapper


def test_a_decorated_function_takes_what_its_decorator_names(tmp_path):
    trained = est.Estimator(
        adding(mean_model_fn), os.fspath(tmp_path), est.RunConfig(), params={"rate": 1}
    )
    trained.train(taking_params(forever()), steps=2)
    assert step_of(trained) == 2


def test_what_a_decorator_hides_is_not_passed(tmp_path):
    @hiding_params
    def model_fn(features, labels, mode, params):
        assert params == {"rate": 1}
        return mean_model_fn(features, labels, mode)

    make(tmp_path / "a", model_fn).train(forever(), steps=1)
    with pytest.raises(ValueError, match="params"):
        est.Estimator(model_fn, os.fspath(tmp_path / "b"), params={"rate": 2})


# --- What a model_fn with **kwargs is given ------------------------------------------------------


def noting_model_fn(features, labels, mode, **others):
    noting_model_fn.given = others
    return mean_model_fn(features, labels, mode)


class Noting:
    def __call__(self, features, labels, mode, **others):
        return noting_model_fn(features, labels, mode, **others)


@pytest.mark.parametrize(
    ("model_fn", "given"),
    [
        (noting_model_fn, {}),
        (functools.partial(noting_model_fn, units=2), {"units": 2}),
        (functools.partial(noting_model_fn, config="mine"), {"config": "mine"}),
        (Noting(), {}),
    ],
    ids=["function", "partial", "partial of a name that is offered", "object"],
)
def test_kwargs_of_model_fn_are_given_nothing(tmp_path, model_fn, given):
    make(tmp_path, model_fn).train(forever(), steps=1)
    assert noting_model_fn.given == given


def test_params_need_an_argument_of_that_name(tmp_path):
    with pytest.raises(ValueError, match="params"):
        est.Estimator(noting_model_fn, os.fspath(tmp_path), params={"units": 2})


def test_kwargs_of_logit_fn_are_given_the_features_alone(tmp_path):
    call = est.experimental.call_logit_fn
    with tf.Graph().as_default():
        logits = tf.ones([2, 1])
        seen = []
        call(lambda features, **k: seen.append(k) or features, logits, "train", {"a": 1}, None)
        call(lambda **k: seen.append(sorted(k)) or logits, logits, "train", {"a": 1}, None)
    assert seen == [{}, ["features"]]


def test_kwargs_of_metric_fn_are_given_nothing(tmp_path):
    seen = []

    def metric_fn(features, **others):
        seen.append(others)
        return {"own": v1.metrics.mean(features["x"])}

    model = est.add_metrics(make(tmp_path), metric_fn)
    assert model.evaluate(numbers(3))["own"] == 1
    assert seen == [{}]
