"""`evaluate` and `predict` do what their first call would do, with a kept session, too."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers


class Scaled(Model):
    """Predicts `scale` times `w * x`, and averages it."""

    scale = 1.0

    def __call__(self, features, labels, mode):
        spec = super().__call__(features, labels, mode)
        scaled = self.scale * spec.predictions
        metrics = {}
        if mode == est.ModeKeys.EVAL:
            metrics["mean"] = tf.compat.v1.metrics.mean(scaled)
        return spec._replace(predictions=scaled, eval_metric_ops=metrics)


class Collector(tf.compat.v1.train.SessionRunHook):
    """Keeps all values of a tensor, and tells how many there are at the end."""

    def __init__(self, tensor, told):
        self._tensor, self._values, self._told = tensor, [], told

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(self._tensor)

    def after_run(self, run_context, run_values):
        self._values.append(run_values.results)

    def end(self, session):
        self._told.append(len(self._values))


@pytest.fixture
def trained(tmp_path):
    """An Estimator of a Scaled model after a step on 4, with w = 1."""
    with est.Estimator(Scaled(), str(tmp_path)) as trained:
        trained.train(numbers(start=4), steps=1)
        yield trained


def test_a_changed_attribute_is_read(trained):
    for scale in (1.0, 2.0, 2.0, 1.0, 3.0):
        trained._model_fn.scale = scale
        np.testing.assert_array_equal(list(trained.predict(numbers(3))), scale * np.arange(3))
        assert trained.evaluate(numbers(3))["mean"] == scale
    assert trained._model_fn.modes == ["train", *["infer", "eval"] * 4]
    assert len(trained._warm_sessions.all()) == 2


def test_a_prediction_that_has_begun_goes_on_with_its_own_value(trained):
    first = trained.predict(numbers(3))
    values = [next(first)]
    trained._model_fn.scale = 2.0
    second = list(trained.predict(numbers(3)))
    np.testing.assert_array_equal([*values, *first], np.arange(3))
    np.testing.assert_array_equal(second, 2 * np.arange(3))


def test_hooks_of_the_model_are_new_in_each_call(tmp_path):
    told = {"eval": [], "infer": []}

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        hooks = [Collector(spec.loss, told.get(mode))]
        if mode == est.ModeKeys.EVAL:
            return spec._replace(evaluation_hooks=hooks)
        return spec._replace(prediction_hooks=hooks if mode == est.ModeKeys.PREDICT else None)

    with est.Estimator(model_fn, str(tmp_path)) as estimator:
        estimator.train(numbers(), steps=1)
        for _ in range(3):
            estimator.evaluate(numbers(3))
            list(estimator.predict(numbers(2)))
        running = [estimator.predict(numbers(2)) for _ in range(2)]
        assert [len([*map(next, running)]) for _ in range(2)] == [2, 2]
        assert [list(one) for one in running] == [[], []]
    assert told == {"eval": [3] * 3, "infer": [2] * 5}


def test_a_model_with_a_hook_that_logs_is_built_once(tmp_path):
    modes = []

    def model_fn(features, labels, mode):
        modes.append(mode)
        spec = Model()(features, labels, mode)
        logging = tf.compat.v1.train.LoggingTensorHook({"loss": spec.loss}, every_n_iter=1)
        return spec._replace(evaluation_hooks=[logging])

    with est.Estimator(model_fn, str(tmp_path)) as estimator:
        estimator.train(numbers(), steps=1)
        for _ in range(3):
            estimator.evaluate(numbers(3))
    assert modes == ["train", "eval"]


def drawing_model_fn(features, labels, mode):
    """Draws in a function, in a branch and outside of both, and counts its batches."""
    spec = Model()(features, labels, mode)
    v1 = tf.compat.v1
    count = v1.get_local_variable("count", [], initializer=v1.zeros_initializer())

    @tf.function
    def drawn_inside():
        return tf.random.uniform([], seed=2)

    drawn = [
        v1.random_uniform([], seed=1),
        drawn_inside(),
        tf.cond(spec.predictions[0] > -1, lambda: v1.random_uniform([], seed=3), lambda: 0.0),
    ]
    values = tf.stack([*drawn, count.assign_add(1.0)])
    rows = tf.repeat(values[None], tf.size(features), axis=0)
    metrics = {}
    if mode == est.ModeKeys.EVAL:
        metrics = {"drawn": v1.metrics.mean_tensor(tf.stack(drawn))}
    return spec._replace(predictions=rows, eval_metric_ops=metrics)


def test_random_ops_with_a_seed_and_counters_begin_anew_in_each_call(tmp_path):
    with est.Estimator(drawing_model_fn, str(tmp_path)) as estimator:
        estimator.train(numbers(), steps=1)
        predictions = [np.stack(list(estimator.predict(numbers(3)))) for _ in range(3)]
        running = [estimator.predict(numbers(3)) for _ in range(2)]
        pairs = list(zip(*running, strict=True))
        evaluations = [estimator.evaluate(numbers(3))["drawn"] for _ in range(3)]
    drawn, counted = predictions[0][:, :3], predictions[0][:, 3]
    assert len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(counted, [1, 2, 3])
    for other in (*predictions[1:], *(np.stack(rows) for rows in zip(*pairs, strict=True))):
        np.testing.assert_array_equal(other, predictions[0])
    for evaluation in evaluations:
        np.testing.assert_allclose(evaluation, drawn.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_a_call_works_again_once_a_missing_file_of_a_table_is_there(tmp_path, verb):
    vocabulary = tmp_path / "vocabulary.txt"
    vocabulary.write_text("0\n1\n2\n")

    def model_fn(features, labels, mode):
        initializer = tf.lookup.TextFileInitializer(
            *(str(vocabulary), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE),
            *(tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER),
        )
        table = tf.lookup.StaticVocabularyTable(initializer, 1)
        return Model()(table.lookup(tf.as_string(features)), labels, mode)

    def call(estimator):
        if verb == "evaluate":
            return estimator.evaluate(numbers(3))["mean"]
        return len(list(estimator.predict(numbers(3))))

    with est.Estimator(model_fn, str(tmp_path / "model")) as estimator:
        estimator.train(numbers(3))
        vocabulary.unlink()
        with pytest.raises(tf.errors.OpError):
            call(estimator)
        vocabulary.write_text("0\n1\n2\n")
        assert call(estimator) == (1 if verb == "evaluate" else 3)
