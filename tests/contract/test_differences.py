"""Differences from 2.15 in the rows of docs/contract.md that no other file shows, side by side."""

import glob
import os

import numpy as np
import pytest

from tests.contract.names import (
    EVAL,
    checkpoint_steps,
    est,
    events,
    files_in,
    forever,
    mean_model_fn,
    numbers,
    scalars,
    tf,
    v1,
    v1est,
)

# --- Saves ---------------------------------------------------------------------------------------


class Calls(est.SessionRunHook):
    """Notes session calls."""

    def __init__(self, notes):
        self.notes = notes

    def after_run(self, run_context, run_values):
        self.notes.append("after_run")


class Saves(est.CheckpointSaverListener):
    """Notes saves."""

    def __init__(self, notes):
        self.notes = notes

    def after_save(self, session, global_step_value):
        self.notes.append(f"save {global_step_value}")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What a training and its resumption tell hooks and listeners."""
    path = os.fspath(tmp_path_factory.mktemp("saves"))
    made = est.Estimator(mean_model_fn, path, est.RunConfig(save_checkpoints_steps=2))
    both = [], []
    for notes in both:
        made.train(forever(), [Calls(notes)], steps=3, saving_listeners=[Saves(notes)])
    return both


@pytest.mark.only_2_15("saves and hooks")
def test_a_save_comes_before_the_after_run_of_its_step(told):
    assert told[0] == [
        "save 0", "after_run", "save 2", "after_run", "after_run", "save 3"
    ]  # fmt: skip


@pytest.mark.only_here("saves and hooks")
def test_a_save_comes_after_the_after_run_of_its_step(told):
    assert told[0] == [
        "save 0", "after_run", "after_run", "save 2", "after_run", "save 3"
    ]  # fmt: skip


@pytest.mark.only_2_15("saves when resuming")
def test_a_resumed_training_saves_its_start_again(told):
    assert told[1][0] == "save 3"


@pytest.mark.only_here("saves when resuming")
def test_a_resumed_training_saves_nothing_before_its_first_step(told):
    assert told[1][0] == "after_run"


@pytest.fixture
def damaged(tmp_path):
    """An Estimator whose checkpoint of step 4 is damaged, and that of step 2 is not."""
    config = est.RunConfig(os.fspath(tmp_path), save_checkpoints_steps=2)
    model = est.Estimator(mean_model_fn, config=config)
    model.train(forever(), steps=4)
    (path,) = glob.glob(os.path.join(model.model_dir, "model.ckpt-4.data*"))
    os.truncate(path, 1)
    return est.Estimator(mean_model_fn, config=config)


@pytest.mark.only_2_15("a newest checkpoint that is damaged")
def test_a_damaged_checkpoint_is_an_error(damaged):
    with pytest.raises(tf.errors.OpError):
        damaged.evaluate(numbers(2))
    with pytest.raises(tf.errors.OpError):
        damaged.train(forever(), steps=1)


@pytest.mark.only_here("a newest checkpoint that is damaged")
def test_the_checkpoint_before_a_damaged_one_is_used(damaged):
    assert damaged.evaluate(numbers(2))["global_step"] == 2
    with pytest.raises(tf.errors.DataLossError, match=r"missing or damaged \(.+\)\. Name"):
        damaged.evaluate(numbers(2), checkpoint_path=damaged.latest_checkpoint())
    damaged.train(forever(), steps=1)
    assert damaged.get_variable_value("global_step") == 3


@pytest.fixture(scope="module")
def unsaved(tmp_path_factory):
    """The model_dir of a training without an interval of saves."""
    path = os.fspath(tmp_path_factory.mktemp("unsaved"))
    config = est.RunConfig(save_checkpoints_secs=None, save_checkpoints_steps=None)
    return est.Estimator(mean_model_fn, path, config).train(forever(), steps=2).model_dir


@pytest.mark.only_2_15("no interval of saves")
def test_without_an_interval_nothing_is_saved(unsaved):
    assert checkpoint_steps(unsaved) == []


@pytest.mark.only_here("no interval of saves")
def test_without_an_interval_the_last_step_is_saved(unsaved):
    assert checkpoint_steps(unsaved) == [2]


def test_without_an_interval_there_is_no_graph_file(unsaved):
    assert "graph.pbtxt" not in files_in(unsaved)


# --- Event files ---------------------------------------------------------------------------------


def array_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    x = tf.cast(features["x"], tf.float32)
    return spec._replace(eval_metric_ops={"pair": v1.metrics.mean_tensor(tf.stack([x[0], x[0]]))})


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    made = est.Estimator(array_model_fn, os.fspath(tmp_path_factory.mktemp("events")))
    made.train(forever(), steps=1).evaluate(numbers(2))
    return made


def what_events_hold(directory):
    """Which kinds of records the event files in a directory have."""
    found = set()
    for name in os.listdir(directory):
        if name.startswith("events.out.tfevents"):
            for event in v1.train.summary_iterator(os.path.join(directory, name)):
                found.add(event.WhichOneof("what"))
    return found


@pytest.mark.only_2_15("graphs in event files")
def test_event_files_have_graphs_and_meta_graphs(evaluated):
    assert {"graph_def", "meta_graph_def"} <= what_events_hold(evaluated.model_dir)
    assert "graph_def" in what_events_hold(evaluated.eval_dir())


@pytest.mark.only_here("graphs in event files")
def test_event_files_of_training_have_the_graph_alone(evaluated):
    assert "graph_def" in what_events_hold(evaluated.model_dir)
    assert "meta_graph_def" not in what_events_hold(evaluated.model_dir)
    assert what_events_hold(evaluated.eval_dir()) == {"file_version", "summary"}


def size_of_meta(tmp_path, rows):
    """The bytes of the `.meta` file of a training on these rows, in a dataset of its input_fn."""
    estimator = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    estimator.train(lambda: tf.data.Dataset.from_tensor_slices({"x": rows}).batch(2), steps=1)
    return os.path.getsize(os.path.join(estimator.model_dir, "model.ckpt-1.meta"))


ROWS = np.zeros([2**17, 1], np.float32)


@pytest.mark.only_2_15("arrays in a dataset of input_fn")
def test_the_graph_holds_the_arrays_of_datasets(tmp_path):
    assert size_of_meta(tmp_path, ROWS) > ROWS.nbytes


@pytest.mark.only_here("arrays in a dataset of input_fn")
def test_large_arrays_of_datasets_stay_out_of_the_graph(tmp_path):
    assert size_of_meta(tmp_path, ROWS) < ROWS.nbytes / 4


def kind_of(estimator, tag):
    (value,) = [value for _, name, value in events(estimator.eval_dir()) if name == tag]
    return value.WhichOneof("value")


@pytest.mark.only_2_15("metrics that are arrays")
def test_an_array_is_recorded_as_a_tensor(evaluated):
    assert kind_of(evaluated, "pair") == "tensor"


@pytest.mark.only_here("metrics that are arrays")
def test_an_array_is_recorded_as_a_histogram(evaluated):
    assert kind_of(evaluated, "pair") == "histo"


def test_a_tpu_estimator_records_examples_per_second(tmp_path):
    path = os.fspath(tmp_path)
    config = v1est.tpu.RunConfig(model_dir=path, log_step_count_steps=1)

    def model_fn(features, labels, mode, params):
        spec = mean_model_fn(features, labels, mode)
        return v1est.tpu.TPUEstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    made = v1est.tpu.TPUEstimator(
        model_fn=model_fn, config=config, use_tpu=False, train_batch_size=8
    )
    made.train(lambda params: numbers(80, params["batch_size"])(), max_steps=6)
    steps, examples = scalars(path, "global_step/sec"), scalars(path, "examples/sec")
    assert examples
    assert examples == {step: pytest.approx(8 * steps[step]) for step in examples}


# --- Several replicas ----------------------------------------------------------------------------


def counting_model_fn(features, labels, mode):
    """Has a metric of its own, which counts examples."""
    spec = mean_model_fn(features, labels, mode)
    count = v1.get_variable(
        "examples", [], tf.float32, v1.zeros_initializer(), trainable=False,
        collections=[v1.GraphKeys.LOCAL_VARIABLES],
    )  # fmt: skip
    update = v1.assign_add(count, tf.cast(tf.size(features["x"]), tf.float32))
    return spec._replace(eval_metric_ops={"examples": (count, update)})


def evaluate_on_two(path):
    with tf.Graph().as_default():
        strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    config = est.RunConfig(
        session_config=v1.ConfigProto(device_count={"CPU": 2}), eval_distribute=strategy
    )
    made = est.Estimator(counting_model_fn, os.fspath(path), config).train(forever(), steps=1)
    return made.evaluate(numbers(4))["examples"]


@pytest.mark.only_2_15("a metric written by hand on several replicas")
def test_a_metric_written_by_hand_counts_the_first_replicas_examples(tmp_path):
    assert evaluate_on_two(tmp_path) == 2


@pytest.mark.only_here("a metric written by hand on several replicas")
def test_a_metric_written_by_hand_counts_every_example(tmp_path):
    assert evaluate_on_two(tmp_path) == 4


def branching_model_fn(features, labels, mode):
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - features["x"]))
    if loss > 0.0:
        loss = 2.0 * loss
    step = v1.train.get_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.25).minimize(loss, step)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def branching(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    config = est.RunConfig(train_distribute=strategy)
    return est.Estimator(branching_model_fn, os.fspath(tmp_path), config)


@pytest.mark.only_2_15("control flow on replicas")
def test_an_if_of_a_model_fn_under_a_strategy_becomes_a_cond(tmp_path):
    assert branching(tmp_path).train(forever(), steps=1).get_variable_value("w") == 1.0


@pytest.mark.only_here("control flow on replicas")
def test_an_if_of_a_model_fn_is_pythons_with_and_without_a_strategy(tmp_path):
    for made in (branching(tmp_path), est.Estimator(branching_model_fn)):
        with pytest.raises(TypeError, match="tf.cond|as a Python"):
            made.train(forever(), steps=1)


def central_evaluation(tmp_path):
    """Of 3 steps, and of all 7 batches; the metric is the mean of 0, 1, ... ."""

    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        metrics = {"mean": v1.metrics.mean(features["x"])} if mode == EVAL else None
        return spec._replace(eval_metric_ops=metrics)

    with tf.Graph().as_default():
        strategy = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
    config = est.RunConfig(
        session_config=v1.ConfigProto(device_count={"CPU": 2}), eval_distribute=strategy
    )
    made = est.Estimator(model_fn, os.fspath(tmp_path), config).train(numbers(1), steps=1)
    return made.evaluate(numbers(7), steps=3)["mean"], made.evaluate(numbers(7))["mean"]


@pytest.mark.only_2_15("evaluation in central storage")
def test_a_step_of_an_evaluation_in_central_storage_is_a_batch_a_replica(tmp_path):
    assert central_evaluation(tmp_path) == (2.5, 2.5)


@pytest.mark.only_here("evaluation in central storage")
def test_a_step_of_an_evaluation_in_central_storage_is_a_batch(tmp_path):
    assert central_evaluation(tmp_path) == (1.0, 3.0)


def trained_with_total_loss(tmp_path):
    """The weight after a step on the examples 1 and 2, each on a replica that has its mean."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        x = tf.cast(features["x"], tf.float32) + 1
        v1.losses.mean_squared_error(x, w * tf.ones_like(x))
        loss, step = v1.losses.get_total_loss(), v1.train.get_global_step()
        train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with tf.Graph().as_default():
        strategy = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
    config = est.RunConfig(
        session_config=v1.ConfigProto(device_count={"CPU": 2}), train_distribute=strategy
    )
    made = est.Estimator(model_fn, os.fspath(tmp_path), config).train(numbers(2), steps=1)
    return made.get_variable_value("w")


@pytest.mark.only_2_15("losses in collections, on several replicas")
def test_a_replica_also_finds_the_losses_of_those_before(tmp_path):
    assert trained_with_total_loss(tmp_path) == pytest.approx(0.4)  # -(-2 + (-2 - 4)) / 2 * 0.1


@pytest.mark.only_here("losses in collections, on several replicas")
def test_a_replica_finds_its_own_losses(tmp_path):
    assert trained_with_total_loss(tmp_path) == pytest.approx(0.3)  # -(-2 - 4) / 2 * 0.1


# --- Counting steps ------------------------------------------------------------------------------


class StopAfter(est.SessionRunHook):
    """Stops after so many session calls."""

    def __init__(self, num_calls):
        self.left = num_calls

    def after_run(self, run_context, run_values):
        self.left -= 1
        if self.left == 0:
            run_context.request_stop()


def uncounted_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, EVAL)
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=tf.no_op())


def train_uncounted(path):
    made = est.Estimator(uncounted_model_fn, os.fspath(path))
    made.train(forever(), hooks=[StopAfter(1500)], steps=2)
    return made.get_variable_value("global_step")


@pytest.mark.only_2_15("a train_op that counts no steps")
def test_steps_that_are_not_counted_are_made_for_ever(tmp_path):
    assert train_uncounted(tmp_path) == 0


@pytest.mark.only_here("a train_op that counts no steps")
def test_steps_that_are_not_counted_are_an_error(tmp_path):
    with pytest.raises((ValueError, RuntimeError), match="global step"):
        train_uncounted(tmp_path)


# --- Variables -----------------------------------------------------------------------------------


def kind_of_variables(path):
    found = []

    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        w = v1.global_variables("w")[0]
        found.append((bool(w), type(w).__name__, w.dtype._is_ref_dtype))
        return spec

    est.Estimator(model_fn, os.fspath(path)).train(forever(), steps=1)
    return found[-1]


@pytest.mark.usefixtures("without_resource_variables")
def test_a_variable_is_true_without_resource_variables(tmp_path):
    assert kind_of_variables(tmp_path)[0]


class Names(est.SessionRunHook):
    """Fetches a variable by name, in each of the ways."""

    def __init__(self):
        self.found = []

    def before_run(self, run_context):
        return est.SessionRunArgs(["w:0", "w/read:0"])

    def after_run(self, run_context, run_values):
        self.found += run_values.results

    def end(self, session):
        self.found = [*self.found[-2:], *session.run(["w:0", "w/read:0"]), session.run("w:0")]


@pytest.mark.usefixtures("without_resource_variables")
def test_a_variable_is_fetched_by_name(tmp_path):
    hook = Names()
    model = est.Estimator(mean_model_fn, os.fspath(tmp_path))
    model.train(forever(2.0), hooks=[hook], steps=4)
    w = model.get_variable_value("w")
    assert hook.found[2:] == pytest.approx([w] * 3)
    assert [getattr(value, "dtype", None) for value in hook.found] == ["float32"] * 5


@pytest.mark.only_2_15("variables without v2 behavior")
@pytest.mark.usefixtures("without_resource_variables")
def test_variables_are_reference_variables(tmp_path):
    assert kind_of_variables(tmp_path)[2]


@pytest.mark.only_here("variables without v2 behavior")
@pytest.mark.usefixtures("without_resource_variables")
def test_variables_are_resource_variables(tmp_path):
    assert not kind_of_variables(tmp_path)[2]


# --- Updates of layers ---------------------------------------------------------------------------


class Now(est.SessionRunHook):
    """Runs an op before each step."""

    def __init__(self, op):
        self.op = op

    def before_run(self, run_context):
        run_context.session.run(self.op)


def moving_mean(path, *, has_minimize=False, is_wired=False, has_hook=False):
    """The moving mean of 2 after three steps, whose `train_op` only counts them."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        moving = v1.get_variable("moving", [], initializer=v1.zeros_initializer(), trainable=False)
        update = moving.assign((moving + 2.0) / 2.0)
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, update.op)
        minimize = None
        if has_minimize:
            with tf.control_dependencies([update] if is_wired else []):
                loss = tf.square(tf.identity(w))
            minimize = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        count = v1.assign_add(v1.train.get_global_step(), 1)
        hooks = [Now(minimize)] if has_hook else []
        return est.EstimatorSpec(mode, loss=w * 1.0, train_op=count, training_hooks=hooks)

    model = est.Estimator(model_fn, os.fspath(path)).train(forever(), steps=3)
    return float(model.get_variable_value("moving"))


AFTER_THREE = 1.75


@pytest.mark.only_2_15("updates that nothing runs")
def test_updates_that_nothing_runs_do_not_run(tmp_path):
    assert moving_mean(tmp_path) == 0.0


@pytest.mark.only_here("updates that nothing runs")
def test_updates_that_nothing_runs_are_run_by_the_step(tmp_path):
    assert moving_mean(tmp_path) == AFTER_THREE


def test_of_several_updates_those_run_that_the_train_op_waits_for(tmp_path):
    """As of the two passes of a semi-supervised model, or of the first of several towers."""

    def model_fn(features, labels, mode):
        w = v1.get_variable("w", [], initializer=v1.ones_initializer())
        settings = {"initializer": v1.zeros_initializer(), "trainable": False}
        counts = [v1.get_variable(name, [], **settings) for name in ("first", "second")]
        for count in counts:
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, count.assign_add(1.0).op)
        first, _ = v1.get_collection(v1.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies([first]):
            step = v1.assign_add(v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=w * 1.0, train_op=step)

    model = est.Estimator(model_fn, os.fspath(tmp_path)).train(forever(), steps=3)
    assert [model.get_variable_value(name) for name in ("first", "second")] == [3.0, 0.0]


def test_updates_that_wait_for_a_hook_are_left_to_it(tmp_path):
    options = {"has_minimize": True, "is_wired": True}
    assert moving_mean(tmp_path / "hooked", **options, has_hook=True) == AFTER_THREE
    assert moving_mean(tmp_path / "idle", **options) == 0.0


# --- Steps that are reached ----------------------------------------------------------------------


def step_after_a_second_training(path):
    """The step, where both trainings are to stop at step 3."""
    model = est.Estimator(mean_model_fn, os.fspath(path))
    for _ in range(2):
        model.train(forever(), hooks=[est.StopAtStepHook(last_step=3)])
    return int(model.get_variable_value("global_step"))


@pytest.mark.only_2_15("a StopAtStepHook whose step is reached")
def test_a_stop_hook_whose_step_is_reached_lets_one_step_run(tmp_path):
    assert step_after_a_second_training(tmp_path) == 4


@pytest.mark.only_here("a StopAtStepHook whose step is reached")
def test_a_stop_hook_whose_step_is_reached_lets_no_step_run(tmp_path):
    assert step_after_a_second_training(tmp_path) == 3


# --- What a hook runs by itself ------------------------------------------------------------------


class LastLoss(est.SessionRunHook):
    """Runs the loss once more at the end, as `tf.contrib.training.SummaryAtEndHook` does."""

    def __init__(self, loss, seen):
        self.loss, self.seen = loss, seen

    def end(self, session):
        self.seen.append(float(session.run(self.loss)))


def loss_at_the_end(path):
    """The loss that a hook runs after an evaluation of two batches, which have those of 0 and 1."""
    seen = []

    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.cast(features, tf.float32))
        count = v1.assign_add(v1.train.get_global_step(), 1)
        hooks = [LastLoss(loss, seen)]
        return est.EstimatorSpec(mode, loss=loss, train_op=count, evaluation_hooks=hooks)

    def input_fn():
        return tf.data.Dataset.range(9).batch(1)

    model = est.Estimator(model_fn, os.fspath(path)).train(input_fn, steps=1)
    results = model.evaluate(input_fn, steps=2)
    assert results["loss"] == 0.5
    return seen


@pytest.mark.only_2_15("a batch that a hook runs")
def test_a_hook_that_runs_the_loss_takes_a_batch(tmp_path):
    assert loss_at_the_end(tmp_path) == [2.0]


@pytest.mark.only_here("a batch that a hook runs")
def test_a_hook_that_runs_the_loss_gets_that_of_the_last_batch(tmp_path):
    assert loss_at_the_end(tmp_path) == [1.0]


# --- A metric that is computed from a batch ------------------------------------------------------


def shown_in_evaluation(path, steps):
    """A metric that is the feature of a batch, from a training of none and evaluation of 0 to 3."""

    def model_fn(features, labels, mode):
        x = tf.reduce_mean(tf.cast(features, tf.float32))
        count = v1.assign_add(v1.train.get_global_step(), 1)
        shown = {"x": (x, tf.no_op()), "text": (v1.summary.scalar("shown", x), tf.no_op())}
        return est.EstimatorSpec(mode, loss=x, train_op=count, eval_metric_ops=shown)

    model = est.Estimator(model_fn, os.fspath(path)).train(numbers_of_one, steps=1)
    results = model.evaluate(numbers_of_one, steps=steps)
    shown = v1.Summary.FromString(results["text"]).value[0].simple_value
    assert shown == results["x"]
    return shown


def numbers_of_one():
    return tf.data.Dataset.range(4).batch(1)


@pytest.mark.only_2_15("a metric of a batch")
def test_a_metric_of_a_batch_takes_one_more(tmp_path):
    assert shown_in_evaluation(tmp_path / "two", steps=2) == 2.0
    with pytest.raises(tf.errors.OutOfRangeError):
        shown_in_evaluation(tmp_path / "all", steps=None)


@pytest.mark.only_here("a metric of a batch")
def test_a_metric_of_a_batch_is_that_of_the_last(tmp_path):
    assert shown_in_evaluation(tmp_path / "two", steps=2) == 1.0
    assert shown_in_evaluation(tmp_path / "all", steps=None) == 3.0


# --- Numbers among the features ------------------------------------------------------------------


def is_number_in_model_fn(path):
    """Whether a number among the tensors of an `input_fn` is one in `model_fn`."""
    found = []

    def input_fn():
        return {"x": tf.constant([1.0]), "rows": 2}

    def model_fn(features, labels, mode):
        found.append(features["rows"] == 2 if isinstance(features["rows"], int) else False)
        count = v1.assign_add(v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(features["x"]), train_op=count)

    est.Estimator(model_fn, os.fspath(path)).train(input_fn, steps=1)
    return all(found)


@pytest.mark.only_2_15("a number among the features")
def test_a_number_among_the_features_stays_one(tmp_path):
    assert is_number_in_model_fn(tmp_path)


@pytest.mark.only_here("a number among the features")
def test_a_number_among_the_features_becomes_a_tensor(tmp_path):
    assert not is_number_in_model_fn(tmp_path)


# --- When hooks that stop early are asked --------------------------------------------------------


def steps_asked_at(path):
    """The steps after which an early stopping hook of every third step is asked, of eight."""
    calls, steps = [], []
    model = est.Estimator(mean_model_fn, os.fspath(path))

    def should_stop():
        steps.append(len(calls))
        return False

    hook = est.experimental.make_early_stopping_hook(
        model, should_stop, run_every_secs=None, run_every_steps=3
    )
    model.train(forever(), [Calls(calls), hook], steps=8)
    return steps


@pytest.mark.only_2_15("steps of early stopping")
def test_an_early_stopping_hook_is_asked_from_the_first_step_on(tmp_path):
    first, second, third = steps_asked_at(tmp_path)
    # The step is read while it is counted, so it may be seen a step late.
    assert first == 1
    assert {second - first, third - second} <= {2, 3, 4}


@pytest.mark.only_here("steps of early stopping")
def test_an_early_stopping_hook_is_asked_at_multiples(tmp_path):
    assert steps_asked_at(tmp_path) == [3, 6]


def names_of_a_variable_called_count(model_dir):
    """The variables of a model with a variable `count`, whose input has a `repeat`."""

    def model_fn(features, labels, mode):
        count = v1.get_variable("count", [], initializer=v1.zeros_initializer())
        train_op = tf.group(count.assign_add(1.0), v1.train.get_global_step().assign_add(1))
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=train_op)

    model = est.Estimator(model_fn, os.fspath(model_dir))
    model.train(lambda: tf.data.Dataset.from_tensors(1.0).repeat(5), steps=1)
    return set(model.get_variable_names())


@pytest.mark.only_2_15("names that tf.data takes")
def test_a_constant_of_the_input_takes_the_name_of_a_variable(tmp_path):
    assert names_of_a_variable_called_count(tmp_path) == {"global_step", "count_1"}


@pytest.mark.only_here("names that tf.data takes")
def test_a_variable_has_its_name_whatever_the_input_is(tmp_path):
    assert names_of_a_variable_called_count(tmp_path) == {"global_step", "count"}
