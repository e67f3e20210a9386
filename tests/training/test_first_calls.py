"""The input starts, and the first loop is prepared, beside what gives variables their values."""

import glob
import threading
import time

import pytest
import tensorflow as tf

import estimator as est
from tests.conformance.cases import STRATEGIES
from tests.toy import Model, numbers, weight_after

v1 = tf.compat.v1


@pytest.fixture
def callables(monkeypatch):
    """What sessions prepared: the fetches, and whether the thread for that did it."""
    made = []
    make = v1.Session._make_callable_from_options

    def note(session, options):
        is_beside = threading.current_thread().name.startswith("preparation")
        made.append(([*options.fetch, *options.target], is_beside))
        return make(session, options)

    monkeypatch.setattr(v1.Session, "_make_callable_from_options", note)
    return made


def measured_in_training(features, labels, mode):
    spec = Model()(features, labels, mode)
    return spec._replace(eval_metric_ops={"mean": v1.metrics.mean(features)})


@pytest.mark.parametrize("loop", [1, 10])
def test_a_start_prepares_no_call_that_another_could_do(loop, callables, monkeypatch, tmp_path):
    run = v1.Session.run

    def note(session, fetches, *args, **kwargs):
        callables.append((fetches, False))
        return run(session, fetches, *args, **kwargs)

    class Stops(est.SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()
            callables.append(("end", False))

    monkeypatch.setattr(v1.Session, "run", note)
    config = est.RunConfig(iterations_per_loop=loop)
    with est.Estimator(measured_in_training, str(tmp_path), config) as model:
        model.train(numbers(), hooks=[Stops()])
    made = [str(fetches) for fetches, _ in callables]
    made = made[: made.index("end")]
    # In any order: one for the input and what loops report, the variables, the model's metric, the
    # loop, and the checkpoint with the step and whether the weights are finite.
    parts = ["MakeIterator", "group_deps", "mean", "global_step_after", "save/control"]
    assert [sum(part in fetches for fetches in made) for part in parts] == [1] * len(parts)
    assert len(made) == len(parts)


class SetsStep:
    def begin(self):
        self.assign = v1.train.get_or_create_global_step().assign(7).op


class HookSetsStep(SetsStep, est.SessionRunHook):
    def after_create_session(self, session, coord):
        session.run(self.assign)


class ListenerSetsStep(SetsStep, est.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        if global_step_value == 0:
            session.run(self.assign)


@pytest.mark.parametrize(
    "argument", [{"hooks": [HookSetsStep()]}, {"saving_listeners": [ListenerSetsStep()]}]
)
def test_the_first_step_may_be_set_while_training_starts(argument, tmp_path):
    with est.Estimator(Model(), str(tmp_path)) as model:
        model.train(numbers(), **argument, max_steps=10)
        assert model.train_result.global_step == 10
        assert model.get_variable_value("w") == weight_after([[i] for i in range(3)])


@pytest.mark.parametrize(
    ("every", "part"), [(100, "save/control"), (None, "global_step_after")], ids=["save", "loop"]
)
def test_the_next_call_is_prepared_while_the_variables_are_initialized(
    every, part, monkeypatch, tmp_path
):
    make, is_begun = v1.Session._make_callable_from_options, threading.Event()

    def note(session, options):
        if any(part in fetch for fetch in options.fetch):
            is_begun.set()
        return make(session, options)

    def model_fn(features, labels, mode):
        waited = tf.numpy_function(lambda: is_begun.wait(30), [], tf.bool)
        v1.get_variable("waited", initializer=tf.ensure_shape(waited, []), trainable=False)
        return Model()(features, labels, mode)

    monkeypatch.setattr(v1.Session, "_make_callable_from_options", note)
    config = est.RunConfig(save_checkpoints_steps=every, save_checkpoints_secs=None)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(numbers(), max_steps=1)
        assert model.get_variable_value("waited")


@pytest.mark.pairwise
@pytest.mark.parametrize("saves_summaries", [False, True])
@pytest.mark.parametrize(
    ("strategy", "loop"),
    [("no_strategy", 1), ("no_strategy", 10), ("one_device", 10), ("mirrored_x2", 10)],
)
def test_the_first_loop_is_prepared_beside_the_variables(
    strategy, loop, saves_summaries, callables, tmp_path
):
    every = {"save_summary_steps": 100 if saves_summaries else None}
    config = est.RunConfig(iterations_per_loop=loop, **every, **STRATEGIES[strategy])
    with est.Estimator(Model(), str(tmp_path), config) as model:
        model.train(numbers(), max_steps=10)
        first = [is_beside for _, is_beside in callables]
        callables.clear()
        model.train(numbers(), max_steps=20)  # From a checkpoint.
        second = [is_beside for _, is_beside in callables]
    # The start of the input, the call that initializes or restores the variables, that which saves
    # step 0, and the loop; the second call of many does not record.
    is_other_call = saves_summaries and loop == 1
    assert first == [True, True, True, True, *[False] * is_other_call]
    assert second == [True, True, True]
    assert tf.train.load_variable(str(tmp_path), "global_step") == 20


def test_the_steps_are_those_of_a_loop_prepared_later(callables, tmp_path):
    class Asks(est.SessionRunHook):
        def before_run(self, run_context):
            return None

    with est.Estimator(Model(), str(tmp_path / "beside")) as model:
        model.train(numbers(), max_steps=5)
        beside = model.get_variable_value("w")
    callables.clear()
    with est.Estimator(Model(), str(tmp_path / "later")) as model:
        model.train(numbers(), hooks=[Asks()], max_steps=5)
        later = model.get_variable_value("w")
    *_, last = (fetches for fetches, is_beside in callables if is_beside)
    assert "save/control_dependency:0" in last
    assert beside == later == weight_after([[i] for i in range(5)])


def model_with_bad_pattern(features, labels, mode):
    """Only the train op needs the pattern, so only the first loop fails."""
    spec = Model()(features, labels, mode)
    replaced = tf.strings.regex_replace("text", "(", "")
    # TensorFlow removes an op of whose result nothing is left.
    with tf.control_dependencies([v1.assert_equal(replaced, "text")]):
        return spec.replace(train_op=tf.group(spec.train_op))


@pytest.mark.parametrize("loop", [1, 10])
def test_an_error_of_the_preparation_is_that_of_the_first_call(loop, callables, tmp_path):
    config = est.RunConfig(iterations_per_loop=loop)
    with (
        est.Estimator(model_with_bad_pattern, str(tmp_path), config) as model,
        pytest.raises(tf.errors.InvalidArgumentError, match="missing \\)"),
    ):
        model.train(numbers(), max_steps=5)
    assert [is_beside for _, is_beside in callables] == [True, True, True, True, False]


def test_a_training_that_fails_meanwhile_waits_for_the_thread(monkeypatch, tmp_path):
    make, made = v1.Session._make_callable_from_options, []

    def make_slowly(session, options):
        is_loop = "global_step_after:0" in options.fetch
        if is_loop:
            time.sleep(0.5)
        made.append(is_loop)
        return make(session, options)

    class Fails(est.SessionRunHook):
        def after_create_session(self, session, coord):
            raise KeyError("on purpose")

    monkeypatch.setattr(v1.Session, "_make_callable_from_options", make_slowly)
    with est.Estimator(Model(), str(tmp_path)) as model:
        with pytest.raises(KeyError, match="on purpose"):
            model.train(numbers(), hooks=[Fails()], max_steps=5)
        assert made == [False, False, False, True]
        assert not [t.name for t in threading.enumerate() if t.name.startswith("first_calls")]
        model.train(numbers(), max_steps=5)
        assert model.get_variable_value("w") == weight_after([[i] for i in range(5)])


def test_a_damaged_checkpoint_gives_way_to_the_one_before(callables, tmp_path):
    config = est.RunConfig(save_checkpoints_steps=2)
    with est.Estimator(Model(), str(tmp_path), config) as model:
        model.train(numbers(), max_steps=4)
        (data,) = glob.glob(f"{tmp_path}/model.ckpt-4.data*")
        with open(data, "r+b") as file:
            file.write(b"\xff" * 8)
        callables.clear()
        model.train(numbers(), max_steps=5)
        assert model.train_result.global_step == 5
    # The input, both restores, and one loop.
    assert [is_beside for _, is_beside in callables] == [True, True, True, True]


def table_input():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0, 1], [4.0, 6.0]), 0.0)
    return tf.data.Dataset.from_tensors([0, 1]).map(table.lookup).repeat()


def variable_input():
    first = v1.get_local_variable("first", initializer=tf.constant(5, tf.int64))
    return tf.data.Dataset.range(first, 100).batch(1)


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize(
    ("input_fn", "is_beside"),
    [(numbers(start=5), True), (table_input, False), (variable_input, False)],
)
def test_an_input_that_needs_no_values_starts_beside_them(
    input_fn, is_beside, is_resumed, monkeypatch, tmp_path
):
    threads = []
    make_callable, run = v1.Session._make_callable_from_options, v1.Session.run

    def note_thread():
        threads.append(threading.current_thread() is not threading.main_thread())

    def note_run(session, fetches, *args, **kwargs):
        if "MakeIterator" in [getattr(fetch, "type", "") for fetch in tf.nest.flatten(fetches)]:
            note_thread()
        return run(session, fetches, *args, **kwargs)

    def note_call(session, options):
        call = make_callable(session, options)
        is_start = "MakeIterator" in options.target
        return (lambda: note_thread() or call()) if is_start else call

    config = est.RunConfig(resume_input=False)  # Each training begins with the first batch.
    if is_resumed:
        with est.Estimator(Model(), str(tmp_path), config) as model:
            model.train(input_fn, max_steps=1)
    monkeypatch.setattr(v1.Session, "run", note_run)
    monkeypatch.setattr(v1.Session, "_make_callable_from_options", note_call)
    with est.Estimator(Model(), str(tmp_path), config) as model:
        model.train(input_fn, steps=1)
        assert model.get_variable_value("w") == weight_after([[5]] * (2 if is_resumed else 1))
    assert threads == [is_beside]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_an_input_that_cannot_start_fails_before_anything_is_written(is_resumed, tmp_path):
    if is_resumed:
        with est.Estimator(Model(), str(tmp_path)) as model:
            model.train(numbers(), max_steps=2)
    before = sorted(glob.glob(f"{tmp_path}/model.ckpt*"))
    with (
        est.Estimator(Model(), str(tmp_path)) as model,
        pytest.raises(tf.errors.InvalidArgumentError, match="nothing-is-here"),
    ):
        model.train(lambda: tf.data.Dataset.list_files("/nothing-is-here/*"), max_steps=5)
    assert sorted(glob.glob(f"{tmp_path}/model.ckpt*")) == before


def test_variables_that_cannot_be_initialized_are_told_before_the_input(tmp_path):
    def model_fn(features, labels, mode):
        v1.get_variable("bad", initializer=tf.strings.to_number("no number"))
        return Model()(tf.zeros([1]), labels, mode)

    with (
        est.Estimator(model_fn, str(tmp_path)) as model,
        pytest.raises(tf.errors.InvalidArgumentError, match="no number"),
    ):
        model.train(lambda: tf.data.Dataset.list_files("/nothing-is-here/*"), max_steps=5)


def test_a_saver_with_a_restore_of_its_own_is_given_the_session_itself(tmp_path):
    restored = []

    class TwoCalls(v1.train.Saver):
        def restore(self, sess, save_path):
            feeds = {self.saver_def.filename_tensor_name: save_path}
            sess.run(self.saver_def.restore_op_name, feeds)
            restored.append(sess.run("w:0"))

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        return spec.replace(scaffold=v1.train.Scaffold(saver=TwoCalls()))

    for max_steps in (2, 4):
        with est.Estimator(model_fn, str(tmp_path)) as model:
            model.train(numbers(), max_steps=max_steps)
    assert restored == [weight_after([[i] for i in range(2)])]
    assert tf.train.load_variable(str(tmp_path), "w") == weight_after([[i] for i in range(4)])
