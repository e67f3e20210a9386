"""`evaluate` and predict keep their graph, session and weights between calls."""

import gc
import itertools
import os
import shutil
import threading
import time
import weakref

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.estimators import evaluation_setup
from estimator.evaluation.warm_session import _OVERHEAD_BYTES, _bytes_of_variables
from tests.integration.cluster import LIMIT_SECS
from tests.toy import Model, numbers, weight_after

W5 = weight_after([[i] for i in range(5)])
W10 = weight_after([[i] for i in range(10)])


@pytest.fixture
def restores(monkeypatch):
    """The paths that savers restored, in order."""
    paths = []
    restore = tf.compat.v1.train.Saver.restore

    def counted(self, session, path):
        paths.append(os.path.basename(path))
        return restore(self, session, path)

    monkeypatch.setattr(tf.compat.v1.train.Saver, "restore", counted)
    return paths


@pytest.fixture
def trained(tmp_path):
    """An Estimator after 5 steps on 0, 1, 2, ..."""
    with est.Estimator(Model(), str(tmp_path)) as trained:
        trained.train(numbers(), steps=5)
        yield trained


def wait_for_end_of_threads(num_before):
    """Waits until there are no more threads than before: one that is ending may take a while."""
    deadline = time.monotonic() + LIMIT_SECS
    while threading.active_count() > num_before:  # Those of earlier tests may end, too.
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)


def live(kind):
    gc.collect()
    return {id(thing) for thing in gc.get_objects() if isinstance(thing, kind)}


def test_100_predictions_build_once_and_restore_once(trained, restores):
    for start in range(100):
        rows = list(trained.predict(numbers(3, start=start)))
        np.testing.assert_array_equal(rows, W5 * np.arange(start, start + 3, dtype=np.float32))
    assert trained._model_fn.modes == ["train", "infer"]
    assert restores == ["model.ckpt-5"]


def test_100_evaluations_build_once_and_restore_once(trained, restores):
    for start in range(100):
        results = trained.evaluate(numbers(3, start=start))
        assert results["mean"] == start + 1
        assert results["global_step"] == 5
    assert trained._model_fn.modes == ["train", "eval"]
    assert restores == ["model.ckpt-5"]


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_a_new_checkpoint_costs_exactly_one_more_restore(trained, restores, verb):
    def call():
        if verb == "predict":
            return next(trained.predict(numbers(start=1)))
        return trained.evaluate(numbers(1), steps=1)["loss"] * 2

    before = [call(), call()]
    trained.train(numbers(start=5), steps=5)
    del restores[:-1]  # Training restores too.
    after = [call(), call(), call()]
    assert restores == ["model.ckpt-5", "model.ckpt-10"]
    expected = (W5, W10) if verb == "predict" else (W5**2, W10**2)
    np.testing.assert_allclose(before, [expected[0]] * 2, rtol=1e-6)
    np.testing.assert_allclose(after, [expected[1]] * 3, rtol=1e-6)
    assert len(trained._model_fn.modes) == 3  # Two trainings and one build of the verb.


def test_a_checkpoint_path_is_restored_and_the_newest_again_after_it(trained, restores):
    trained.train(numbers(start=5), steps=5)
    restores.clear()
    old = os.path.join(trained.model_dir, "model.ckpt-5")
    values = [
        next(trained.predict(numbers(start=1), checkpoint_path=path))
        for path in (None, old, old, None, None)
    ]
    np.testing.assert_array_equal(values, [W10, W5, W5, W10, W10])
    assert restores == ["model.ckpt-10", "model.ckpt-5", "model.ckpt-10"]


def test_a_checkpoint_written_anew_under_the_same_name_is_restored(trained, restores):
    assert next(trained.predict(numbers(start=1))) == W5
    shutil.rmtree(trained.model_dir)
    trained.train(numbers(start=10), steps=5)
    restores.clear()
    expected = weight_after([[i] for i in range(10, 15)])
    assert next(trained.predict(numbers(start=1))) == expected
    assert restores == ["model.ckpt-5"]


def test_two_generators_interleave_in_any_order_of_ending(trained):
    first = trained.predict(numbers(4, batch_size=2))
    second = trained.predict(numbers(2, batch_size=2, start=100))
    third = trained.predict(numbers(5, batch_size=2, start=200))
    rows = [r for group in itertools.zip_longest(first, second, third) for r in group]
    expected = [0, 100, 200, 1, 101, 201, 2, None, 202, 3, None, 203, None, None, 204]
    assert [None if r is None else round(float(r / W5)) for r in rows] == expected


def test_generators_of_two_checkpoints_keep_to_their_weights(trained):
    trained.train(numbers(start=5), steps=5)
    old_path = os.path.join(trained.model_dir, "model.ckpt-5")
    old = trained.predict(numbers(start=1), checkpoint_path=old_path)
    new = trained.predict(numbers(start=1))
    pairs = [(next(old), next(new)) for _ in range(3)]
    expected = [(W5 * x, W10 * x) for x in np.float32([1, 2, 3])]
    np.testing.assert_array_equal(pairs, expected)


def test_a_generator_goes_on_after_a_prediction_of_another_shape(trained):
    ones = trained.predict(numbers())
    next(ones)
    with_more = trained.predict(lambda: tf.data.Dataset.from_tensors([[1.0, 2.0]]))
    np.testing.assert_array_equal(next(with_more), np.float32([1, 2]) * W5)
    assert next(ones) == W5


def test_a_generator_leaves_the_callers_default_graph_alone(trained):
    rows = trained.predict(numbers())
    next(rows)
    assert tf.executing_eagerly()
    with tf.Graph().as_default() as graph:
        next(rows)
        assert tf.compat.v1.get_default_graph() is graph
        rows.close()
        assert tf.compat.v1.get_default_graph() is graph
    assert tf.compat.v1.get_default_session() is None


def predict_shape(trained, shape):
    array = np.ones((1, *shape), np.float32)
    return list(trained.predict(lambda: tf.data.Dataset.from_tensors(array)))


def batches_of(size):
    """An input_fn of 0..15 in batches of a static size."""
    return lambda: tf.data.Dataset.range(16).batch(size, drop_remainder=True)


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_two_batch_sizes_in_turn_build_once_each(trained, restores, verb):
    for _ in range(3):
        for size in (4, 8):
            result = getattr(trained, verb)(batches_of(size))
            if verb == "evaluate":
                assert result["mean"] == 7.5
            else:
                np.testing.assert_array_equal(list(result), W5 * np.arange(16, dtype=np.float32))
    assert len(trained._model_fn.modes) == 3  # "train" and two.
    assert restores == ["model.ckpt-5"] * 2


def test_a_new_checkpoint_reaches_the_sessions_of_all_shapes(trained):
    for _ in range(2):
        steps = [trained.evaluate(batches_of(size))["global_step"] for size in (4, 8)]
        assert steps[0] == steps[1] == trained.train_result.global_step
        trained.train(numbers(), steps=5)


def test_the_sessions_of_the_last_four_shapes_stay(trained):
    sessions = live(tf.compat.v1.Session)
    for size in (1, 2, 3, 4, 5, 6):
        predict_shape(trained, (size,))
        predict_shape(trained, (1,))  # Used again and again, it stays.
    assert len(trained._model_fn.modes) == 1 + 6
    assert len(live(tf.compat.v1.Session) - sessions) == 4 + 4  # Of models, and of inputs.
    for size in (4, 5, 6, 1):
        predict_shape(trained, (size,))
    assert len(trained._model_fn.modes) == 1 + 6
    predict_shape(trained, (3,))
    assert len(trained._model_fn.modes) == 1 + 7


def test_abandoned_generators_leave_no_graph_no_session_and_no_thread(trained):
    def abandon():
        next(trained.predict(numbers()))  # Started and dropped.
        trained.predict(numbers())  # Never started.
        next(trained.predict(numbers())), trained.evaluate(numbers(), steps=1)

    abandon()
    graphs, sessions = live(tf.Graph), live(tf.compat.v1.Session)
    threads = threading.active_count()
    for _ in range(10):
        abandon()
    assert len(live(tf.Graph)) <= len(graphs)
    assert len(live(tf.compat.v1.Session)) <= len(sessions)
    wait_for_end_of_threads(threads)


def test_a_failing_model_leaves_no_graph_and_no_session(tmp_path):
    def model_fn(features, mode):
        raise ZeroDivisionError

    broken = est.Estimator(model_fn, str(tmp_path))
    graphs, sessions = live(tf.Graph), live(tf.compat.v1.Session)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            broken.train(numbers(), steps=1)
    assert live(tf.Graph) <= graphs
    assert live(tf.compat.v1.Session) <= sessions


def use(model_dir, num_sessions=2):
    """Trains, evaluates and predicts; returns it and weak references to what it keeps."""
    used = est.Estimator(Model(), str(model_dir))
    used.train(numbers(), steps=2)
    used.evaluate(numbers(2))
    list(used.predict(numbers(2)))
    warm_sessions = used._warm_sessions.all()
    kept = [thing for warm in warm_sessions for thing in (warm.program.graph, warm.session)]
    assert len(kept) == 2 * num_sessions
    return used, [weakref.ref(thing) for thing in kept]


def test_a_dropped_estimator_leaks_nothing(tmp_path):
    use(tmp_path / "warm_up")
    graphs, sessions = live(tf.Graph), live(tf.compat.v1.Session)
    threads = threading.active_count()
    used, kept = use(tmp_path)
    assert all(reference() is not None for reference in kept)
    del used
    gc.collect()
    assert [reference() for reference in kept] == [None] * 4
    assert live(tf.Graph) <= graphs
    assert live(tf.compat.v1.Session) <= sessions
    wait_for_end_of_threads(threads)


def test_close_frees_and_the_next_call_builds_anew(tmp_path):
    used, kept = use(tmp_path)
    used.close()
    gc.collect()
    assert [reference() for reference in kept] == [None] * 4
    used.close()  # Nothing is left to close.
    assert used._model_fn.modes == ["train", "eval", "infer"]
    w = weight_after([[0], [1]])
    np.testing.assert_array_equal(list(used.predict(numbers(3))), w * np.float32([0, 1, 2]))
    assert used._model_fn.modes == ["train", "eval", "infer", "infer"]
    used.close()


def test_the_memory_of_all_idle_sessions_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation_setup, "_MAX_BYTES_KEPT", 0)
    (first, kept), (second, _) = use(tmp_path / "1", 1), use(tmp_path / "2", 1)
    gc.collect()
    assert [reference() for reference in kept] == [None] * 2
    assert [len(used._warm_sessions.all()) for used in (first, second)] == [0, 1]
    w = weight_after([[0], [1]])
    np.testing.assert_array_equal(list(first.predict(numbers(3))), w * np.float32([0, 1, 2]))
    assert [len(used._warm_sessions.all()) for used in (first, second)] == [1, 0]


def test_a_session_counts_by_its_variables(trained):
    list(trained.predict(numbers(2)))
    (warm,) = trained._warm_sessions.all()
    with warm.program.graph.as_default():
        tf.compat.v1.get_variable("large", [1 << 20])
    assert _bytes_of_variables(warm.program.graph) == warm.num_bytes - _OVERHEAD_BYTES + (4 << 20)


def test_the_context_manager_frees_after_an_error_too(tmp_path):
    def run():
        with use(tmp_path)[0] as used:
            references = [weakref.ref(warm.session) for warm in used._warm_sessions.all()]
            raise KeyError(references)

    with pytest.raises(KeyError) as error:
        run()
    references = error.value.args[0]
    del error
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_graph_of_the_caller_is_not_added_to(trained):
    with tf.Graph().as_default() as graph:
        list(trained.predict(numbers(2)))
        trained.evaluate(numbers(2))
        trained.train(numbers(), steps=1)
    assert graph.get_operations() == []


def test_hooks_of_evaluate_and_predict_see_each_batch(trained):
    class Count(tf.compat.v1.train.SessionRunHook):
        def __init__(self):
            self.calls = []

        def begin(self):
            self.calls.append("begin")

        def after_create_session(self, session, coord):
            self.calls.append("after_create_session")

        def before_run(self, run_context):
            self.calls.append("before_run")

        def after_run(self, run_context, run_values):
            self.calls.append("after_run")

        def end(self, session):
            self.calls.append("end")

    expected = ["begin", "after_create_session", *["before_run", "after_run"] * 3, "end"]
    evaluating, predicting = Count(), Count()
    trained.evaluate(numbers(3), hooks=[evaluating])
    list(trained.predict(numbers(3), hooks=[predicting]))
    assert evaluating.calls == predicting.calls == expected


def serving_fn():
    x = tf.compat.v1.placeholder(tf.int64, [None], "x")
    return est.export.TensorServingInputReceiver(x, x)


@pytest.mark.parametrize("verb", ["evaluate", "export"])
def test_checkpoints_that_are_removed_while_a_program_is_built_are_looked_for_again(verb, tmp_path):
    """As by a training in another process that keeps only the newest."""
    config = est.RunConfig(keep_checkpoint_max=1)
    trained = est.Estimator(Model(), str(tmp_path), config)
    trained.train(numbers(), steps=2)

    def model_fn(features, labels, mode):
        if trained.train_result.global_step < 4:
            trained.train(numbers(), steps=2)
        return Model()(features, labels, mode)

    with est.Estimator(model_fn, str(tmp_path)) as other:
        if verb == "evaluate":
            assert other.evaluate(numbers(2))["global_step"] == 4
        else:
            path = other.export_saved_model(str(tmp_path / "export"), serving_fn).decode()
            served = tf.train.load_variable(f"{path}/variables/variables", "global_step")
            assert served == 4


def test_a_named_checkpoint_that_is_removed_is_missed(tmp_path):
    trained = est.Estimator(Model(), str(tmp_path), est.RunConfig(keep_checkpoint_max=1))
    trained.train(numbers(), steps=2)
    path = trained.latest_checkpoint()

    def model_fn(features, labels, mode):
        if trained.train_result.global_step < 4:
            trained.train(numbers(), steps=2)
        return Model()(features, labels, mode)

    with (
        est.Estimator(model_fn, str(tmp_path)) as other,
        pytest.raises(ValueError, match=r"model\.ckpt-2'\) is not a checkpoint: there is no file"),
    ):
        other.evaluate(numbers(2), checkpoint_path=path)


def test_a_hook_may_close_the_writer_of_the_model(tmp_path):
    class Closing(tf.compat.v1.train.SessionRunHook):
        def __init__(self, writer):
            self.close = writer.close()

        def end(self, session):
            session.run(self.close)

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        writer = tf.summary.create_file_writer(str(tmp_path / "own"))
        if mode == "train":
            return spec
        with writer.as_default(step=0):
            write = tf.summary.scalar("x", 1.0)
        hooks = [Closing(writer)]
        if mode == "infer":
            with tf.control_dependencies([write]):
                predictions = tf.identity(spec.predictions)
            return spec._replace(predictions=predictions, prediction_hooks=hooks)
        with tf.control_dependencies([write]):
            loss = tf.identity(spec.loss)
        return spec._replace(loss=loss, evaluation_hooks=hooks)

    with est.Estimator(model_fn, str(tmp_path / "model")) as model:
        model.train(numbers(), steps=2)
        assert model.evaluate(numbers(2))["global_step"] == 2
        assert len(list(model.predict(numbers(3)))) == 3
