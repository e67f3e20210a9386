"""Going on from a checkpoint, Scaffolds, summaries, strategies of one device."""

import os

import numpy as np
import pytest

from tests.contract.names import (
    checkpoint_steps,
    est,
    events,
    forever,
    mean_model_fn,
    numbers,
    steps_of,
    tf,
    v1,
    weight_after,
)


def make(path, model_fn=mean_model_fn, **config):
    return est.Estimator(model_fn, os.fspath(path), est.RunConfig(**config))


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    path = tmp_path_factory.mktemp("resumed")
    config = {"save_checkpoints_steps": 3, "keep_checkpoint_max": None, "save_summary_steps": 3}
    make(path, **config).train(forever(), steps=4)
    return make(path, **config).train(forever(), steps=4)


def test_another_estimator_goes_on(resumed):
    assert resumed.get_variable_value("global_step") == 8
    assert resumed.get_variable_value("w") == pytest.approx(weight_after(8, 1.0), abs=1e-6)


@pytest.mark.only_2_15("steps after a resume")
def test_intervals_are_counted_from_where_training_resumed(resumed):
    assert checkpoint_steps(resumed.model_dir) == [0, 3, 4, 7, 8]
    assert steps_of(resumed.model_dir, "loss") == [1, 4, 5, 8]


@pytest.mark.only_here("steps after a resume")
def test_intervals_are_the_same_multiples_after_a_resume(resumed):
    assert checkpoint_steps(resumed.model_dir) == [0, 3, 4, 6, 8]
    assert {3, 6} <= set(steps_of(resumed.model_dir, "loss"))


def seeing_model_fn(features, labels, mode):
    """The loss is the feature."""
    train_op = v1.train.get_global_step().assign_add(1)
    loss = tf.cast(features["x"][0], tf.float32)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Losses(est.SessionRunHook):
    """Keeps the feature of each step."""

    def __init__(self):
        self.seen = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs("Cast:0")

    def after_run(self, run_context, run_values):
        self.seen.append(int(run_values.results))


class Shards:
    """An input_fn whose data its program changes."""

    def __init__(self):
        self.shard = 0

    def input_fn(self):
        data = tf.data.Dataset.range(10 * self.shard, 10 * self.shard + 5)
        return data.repeat().batch(1).map(lambda x: {"x": x})


def trained_by_parts(tmp_path, shards, makes_new):
    """What the steps see of three trainings of two steps each."""
    hook, data = Losses(), Shards()
    model = make(tmp_path, seeing_model_fn)
    for data.shard in shards:
        if makes_new:
            model = make(tmp_path, seeing_model_fn)
        model.train(data.input_fn, hooks=[hook], steps=2)
    return hook.seen


@pytest.mark.parametrize("makes_new", [False, True])
def test_data_that_the_program_changes_is_read_from_its_beginning(makes_new, tmp_path):
    assert trained_by_parts(tmp_path, [1, 2, 3], makes_new) == [10, 11, 20, 21, 30, 31]


@pytest.mark.only_2_15("the input of another training")
@pytest.mark.parametrize("makes_new", [False, True])
def test_the_same_data_is_read_from_its_beginning(makes_new, tmp_path):
    assert trained_by_parts(tmp_path, [1, 1, 1], makes_new) == [10, 11, 10, 11, 10, 11]


@pytest.mark.only_here("the input of another training")
@pytest.mark.parametrize("makes_new", [False, True])
def test_the_same_data_is_read_on(makes_new, tmp_path):
    assert trained_by_parts(tmp_path, [1, 1, 1], makes_new) == [10, 11, 12, 13, 14, 10]


def slot_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    optimizer = v1.train.AdamOptimizer(0.1)
    train_op = optimizer.minimize(spec.loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=spec.loss, train_op=train_op)


def test_slots_of_the_optimizer_are_variables(tmp_path):
    made = make(tmp_path, slot_model_fn).train(forever(), steps=1)
    names = {"global_step", "w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power"}
    assert set(made.get_variable_names()) == names


def test_a_resumed_optimizer_goes_on(tmp_path):
    whole = make(tmp_path / "whole", slot_model_fn).train(forever(), steps=6)
    parts = make(tmp_path / "parts", slot_model_fn)
    parts.train(forever(), steps=2).train(forever(), steps=4)
    assert parts.get_variable_value("w") == pytest.approx(whole.get_variable_value("w"), abs=1e-6)


def test_a_deleted_model_dir_starts_anew(tmp_path):
    made = make(tmp_path / "model").train(forever(), steps=2)
    for name in os.listdir(made.model_dir):
        path = os.path.join(made.model_dir, name)
        if os.path.isfile(path):
            os.remove(path)
    assert made.train(forever(), steps=1).get_variable_value("global_step") == 1


# --- Scaffolds -----------------------------------------------------------------------------------

INITS = []


def scaffold_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    w = v1.global_variables("w")[0]
    value = v1.placeholder(tf.float32, [])
    assign = w.assign(value)

    def init_fn(scaffold, session):
        INITS.append((type(scaffold).__name__, mode))
        session.run(assign, {value: 8.0})

    return est.EstimatorSpec(
        mode,
        predictions=spec.predictions,
        loss=spec.loss,
        train_op=spec.train_op,
        scaffold=v1.train.Scaffold(init_fn=init_fn, saver=v1.train.Saver(max_to_keep=1)),
    )


@pytest.fixture(scope="module")
def scaffolded(tmp_path_factory):
    INITS.clear()
    made = make(tmp_path_factory.mktemp("scaffolded"), scaffold_model_fn, save_checkpoints_steps=1)
    made.train(forever(8.0), steps=3)
    first = list(INITS)
    made.train(forever(8.0), steps=1)
    return made, first, list(INITS)


def test_init_fn_is_called_once(scaffolded):
    assert scaffolded[1] == [("Scaffold", "train")]


def test_init_fn_is_not_called_when_training_resumes(scaffolded):
    assert scaffolded[2] == scaffolded[1]


def test_init_fn_sets_the_first_values(scaffolded):
    assert scaffolded[0].get_variable_value("w") == 8


def test_saver_of_the_scaffold_says_how_many_are_kept(scaffolded):
    assert checkpoint_steps(scaffolded[0].model_dir) == [4]


# --- Summaries -----------------------------------------------------------------------------------


def summary_model_fn(features, labels, mode):
    spec = mean_model_fn(features, labels, mode)
    v1.summary.scalar("a_scalar", spec.loss)
    v1.summary.histogram("a_histogram", spec.predictions["x"])
    v1.summary.image("an_image", tf.zeros([1, 2, 2, 3]))
    v1.summary.text("a_text", tf.constant("words"))
    with v1.name_scope("scope"):
        v1.summary.scalar("inner", spec.loss)
    return spec


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    made = make(tmp_path_factory.mktemp("summaries"), summary_model_fn, save_summary_steps=1)
    made.train(forever(), steps=2)
    made.evaluate(numbers(1))
    return made


@pytest.mark.parametrize(
    "tag", ["a_scalar", "a_histogram", "an_image/image/0", "a_text", "scope/inner", "loss"]
)
def test_summary_has_its_tag(summaries, tag):
    assert set(steps_of(summaries.model_dir, tag)) == {1, 2}


@pytest.mark.parametrize(
    ("tag", "kind"),
    [("a_scalar", "simple_value"), ("a_histogram", "histo"), ("an_image/image/0", "image")],
)
def test_summary_has_its_kind(summaries, tag, kind):
    found = [value for _, name, value in events(summaries.model_dir) if name == tag]
    assert found[0].WhichOneof("value") == kind


def test_no_summaries_if_the_config_says_so(tmp_path):
    made = make(tmp_path, summary_model_fn, save_summary_steps=0)
    made.train(forever(), steps=2)
    assert "a_scalar" not in {tag for _, tag, _ in events(made.model_dir)}


# --- What model_fn finds in its graph ------------------------------------------------------------


def v1_model_fn(features, labels, mode):
    """With the collections that programs of TensorFlow 1 use."""
    x = features["x"]
    step = v1.train.get_or_create_global_step()
    w = v1.get_variable(
        "w",
        [],
        initializer=v1.zeros_initializer(),
        regularizer=lambda value: 0.5 * value * value,
    )
    v1.losses.mean_squared_error(x, w + tf.zeros_like(x))
    loss = v1.losses.get_total_loss()
    average = v1.train.ExponentialMovingAverage(0.5)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    with tf.control_dependencies([train]):
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, average.apply([w]))
    with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        train_op = tf.identity(loss)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


@pytest.fixture(scope="module")
def old_style(tmp_path_factory):
    return make(tmp_path_factory.mktemp("old_style"), v1_model_fn).train(forever(), steps=1)


def test_losses_and_regularizers_are_collected(old_style):
    assert old_style.get_variable_value("w") == pytest.approx(0.2)


def test_moving_averages_are_updated_where_the_program_says(old_style):
    assert old_style.get_variable_value("w/ExponentialMovingAverage") == pytest.approx(0.1)


def test_global_step_is_counted_once(old_style):
    assert old_style.get_variable_value("global_step") == 1


# --- Strategies of one device --------------------------------------------------------------------

STRATEGIES = {
    "one device": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_training_under_a_strategy(tmp_path, name):
    made = make(tmp_path, train_distribute=STRATEGIES[name]()).train(forever(), steps=3)
    assert made.get_variable_value("w") == pytest.approx(weight_after(3, 1.0))
    assert sorted(made.get_variable_names()) == ["global_step", "w"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_evaluating_under_a_strategy(tmp_path, name):
    made = make(tmp_path, eval_distribute=STRATEGIES[name]())
    made.train(forever(), steps=1)
    results = made.evaluate(numbers(4, batch_size=2))
    assert results["mean_x"] == pytest.approx(1.5)
    assert results["global_step"] == 1


@pytest.fixture
def in_graph():
    """As after `disable_v2_behavior()`: what names a device does not ask for it."""
    with tf.Graph().as_default():
        yield


def train_on(path, distribute, *devices):
    strategy = distribute.MirroredStrategy(devices)
    made = make(path, train_distribute=strategy).train(forever(), steps=3)
    return made.get_variable_value("w")


def test_an_old_strategy_on_a_gpu_that_is_not_there_trains_on_the_cpu(tmp_path, in_graph):
    assert train_on(tmp_path, v1.distribute, "/gpu:90") == pytest.approx(weight_after(3, 1.0))


@pytest.mark.only_2_15("a strategy on a GPU that is not there")
def test_a_strategy_on_a_gpu_that_is_not_there_trains_on_the_cpu(tmp_path, in_graph):
    assert train_on(tmp_path, tf.distribute, "/gpu:90") == pytest.approx(weight_after(3, 1.0))


@pytest.mark.only_here("a strategy on a GPU that is not there")
@pytest.mark.parametrize(
    ("distribute", "devices"),
    [
        (tf.distribute, ["/gpu:90"]),
        (tf.distribute, ["/gpu:90", "/gpu:91"]),
        (v1.distribute, ["/gpu:90", "/gpu:91"]),
    ],
)
def test_a_strategy_on_gpus_that_are_not_there_is_refused(tmp_path, in_graph, distribute, devices):
    with pytest.raises(ValueError, match="names the device .*GPU:90, but this machine has"):
        train_on(tmp_path, distribute, *devices)


def test_the_same_seed_gives_the_same_training(tmp_path):
    def random_model_fn(features, labels, mode):
        w = v1.get_variable("w", [3], initializer=v1.random_normal_initializer())
        train_op = v1.assign_add(v1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=tf.reduce_sum(w), train_op=train_op)

    values = [
        make(tmp_path / str(i), random_model_fn, tf_random_seed=seed)
        .train(forever(), steps=1)
        .get_variable_value("w")
        for i, seed in enumerate([5, 5, 6])
    ]
    np.testing.assert_array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])


# --- An error that may pass ----------------------------------------------------------------------


class Fails(est.SessionRunHook):
    """Fails after some of the steps, which are counted from 1, and notes the sessions' first."""

    def __init__(self, error, *steps):
        self.error, self.steps = error, list(steps)
        self.first_steps = []

    def after_create_session(self, session, coord):
        del coord
        self.first_steps.append(int(session.run(v1.train.get_global_step())))

    def after_run(self, run_context, run_values):
        del run_values
        step = run_context.session.run(v1.train.get_global_step())
        if self.steps and step == self.steps[0]:
            del self.steps[0]
            raise self.error(None, None, "The server is away.")


@pytest.mark.parametrize(
    ("error", "limit"),
    [(tf.errors.AbortedError, "steps"), (tf.errors.UnavailableError, "max_steps")],
)
def test_training_goes_on_in_a_new_session_from_the_newest_checkpoint(tmp_path, error, limit):
    fails = Fails(error, 5)
    made = make(tmp_path, save_checkpoints_steps=3)
    made.train(forever(), hooks=[fails], **{limit: 8})
    assert fails.first_steps == [0, 3]
    assert made.get_variable_value("global_step") == 8
    assert made.get_variable_value("w") == pytest.approx(weight_after(8, 1.0), abs=1e-6)


def test_another_error_ends_training(tmp_path):
    with pytest.raises(tf.errors.InternalError):
        make(tmp_path).train(forever(), hooks=[Fails(tf.errors.InternalError, 2)], steps=3)


def fail_always(path):
    fails = Fails(tf.errors.UnavailableError, *[2] * 10)
    return make(path, save_checkpoints_steps=100).train(forever(), hooks=[fails], steps=3)


@pytest.mark.only_2_15("an error that does not pass")
def test_new_sessions_are_made_for_ever(tmp_path):
    assert fail_always(tmp_path).get_variable_value("global_step") == 3


@pytest.mark.full
@pytest.mark.only_here("an error that does not pass")
def test_a_fourth_failure_without_a_checkpoint_between_ends_training(tmp_path):
    with pytest.raises(tf.errors.UnavailableError):
        fail_always(tmp_path)


class FailsOnce(est.SessionRunHook):
    """Fails after the second call."""

    def __init__(self, error):
        self.error, self.num_calls = error, 0

    def after_run(self, run_context, run_values):
        del run_context, run_values
        self.num_calls += 1
        if self.num_calls == 2:
            raise self.error(None, None, "The server is away.")


@pytest.mark.parametrize("error", [tf.errors.AbortedError, tf.errors.UnavailableError])
def test_an_evaluation_is_made_again_as_a_whole(tmp_path, error):
    made = make(tmp_path)
    made.train(forever(), steps=2)
    expected = made.evaluate(numbers(4))
    fails = FailsOnce(error)
    assert made.evaluate(numbers(4), hooks=[fails]) == expected
    assert fails.num_calls == 2 + 4
    assert made.evaluate(numbers(4), steps=3, hooks=[FailsOnce(error)]) == made.evaluate(
        numbers(4), steps=3
    )


def data_files(model_dir):
    def model_fn(features, labels, mode):
        with tf.device("/cpu:0"):
            v1.get_variable("placed", [], initializer=v1.zeros_initializer())
        return mean_model_fn(features, labels, mode)

    make(model_dir, model_fn).train(forever(), steps=5)
    names = [name for name in os.listdir(model_dir) if name.startswith("model.ckpt-5.data")]
    return sorted(name.removeprefix("model.ckpt-5.data-") for name in names)


@pytest.mark.only_2_15("data files of a checkpoint")
def test_variables_of_a_device_have_a_file_of_their_own(tmp_path):
    assert data_files(tmp_path) == ["00000-of-00002", "00001-of-00002"]


@pytest.mark.only_here("data files of a checkpoint")
def test_variables_of_all_devices_have_one_file(tmp_path):
    assert data_files(tmp_path) == ["00000-of-00001"]


def saved_with(**options):
    """The model of the tests, with a saver of its own."""

    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        return spec._replace(scaffold=v1.train.Scaffold(saver=v1.train.Saver(**options)))

    return model_fn


def test_checkpoints_of_the_old_format_are_resumed_evaluated_and_warm_started_from(tmp_path):
    model_fn = saved_with(write_version=v1.train.SaverDef.V1)
    make(tmp_path / "m", model_fn).train(forever(), steps=3)
    # From before 2017: a single file.
    assert (tmp_path / "m" / "model.ckpt-3").is_file()
    model = make(tmp_path / "m", model_fn).train(forever(), steps=2)
    assert model.latest_checkpoint() == os.fspath(tmp_path / "m" / "model.ckpt-5")
    w3, w5 = weight_after(3, 1.0), weight_after(5, 1.0)
    assert model.get_variable_value("w") == pytest.approx(w5, abs=1e-6)
    assert [row["y"] for row in model.predict(numbers(2))] == pytest.approx([0, w5], abs=1e-6)
    path = os.fspath(tmp_path / "m" / "model.ckpt-3")
    old = model.evaluate(numbers(1), checkpoint_path=path)
    assert (old["global_step"], old["loss"]) == (3, pytest.approx(w3**2 / 2, abs=1e-6))
    for place, start in ((path, w3), (os.fspath(tmp_path / "m"), w5)):
        warm = est.Estimator(mean_model_fn, warm_start_from=place).train(forever(), steps=1)
        expected = start - 0.25 * (start - 1)
        assert warm.get_variable_value("w") == pytest.approx(expected, abs=1e-6)


def test_with_padded_steps_meta_files_have_the_names_of_their_checkpoints(tmp_path):
    config = {"save_checkpoints_steps": 2, "keep_checkpoint_max": None}
    model_fn = saved_with(pad_step_number=True, max_to_keep=2)
    for steps in (5, 4):
        make(tmp_path, model_fn, **config).train(forever(), steps=steps)
    meta_files = {path.stem for path in tmp_path.glob("*.meta")}
    assert meta_files == {path.stem for path in tmp_path.glob("*.index")}
    newest = make(tmp_path, model_fn).latest_checkpoint()
    assert newest == os.fspath(tmp_path / "model.ckpt-00000009")
