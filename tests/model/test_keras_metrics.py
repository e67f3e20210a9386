"""Keras metrics in `eval_metric_ops`: every example counts once, and no checkpoint holds them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
NUMBERS = np.arange(10, dtype=np.float32)
STRATEGIES = {
    "no_strategy": {},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2},
    "mirrored_x3": {"strategy": "mirrored", "num_replicas": 3},
}


def input_fn():
    return tf.data.Dataset.from_tensor_slices(NUMBERS).batch(2)


def make_model_fn(metrics):
    def model_fn(features, mode):
        weight = V1.get_variable("w", [])
        mean, large = metrics.Mean(), metrics.Mean(name="large")
        mean.update_state(features)
        large.update_state(features, sample_weight=tf.cast(features > 5, tf.float32))
        return est.EstimatorSpec(
            mode,
            loss=tf.square(weight),
            train_op=V1.train.get_global_step().assign_add(1),
            eval_metric_ops={"mean": mean, "large": large},
        )

    return model_fn


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("metrics", [keras.metrics, tf_keras.metrics], ids=["keras", "tf_keras"])
def test_a_metric_that_is_only_looked_at_in_training_counts_from_zero(
    metrics, strategy, loop, tmp_path
):
    """It is in no spec, and what it has counted so far is the `loss`."""

    def model_fn(features, mode):
        weight = V1.get_variable("w", [])
        seen = metrics.Sum()
        if mode == est.ModeKeys.TRAIN:
            seen.update_state(tf.ones([]))
        return est.EstimatorSpec(
            mode,
            loss=weight * 0 + seen.result(),
            train_op=V1.train.get_global_step().assign_add(1),
        )

    config = est.RunConfig(iterations_per_loop=loop, **strategy)
    with est.Estimator(model_fn, tmp_path, config) as model:
        model.train(input_fn, steps=1)
        names = model.get_variable_names()
        model.train(input_fn, steps=1)
        assert model.train_result.global_step == 2
        assert np.isfinite(model.train_result.loss)
        assert model.get_variable_names() == names
        if metrics is tf_keras.metrics:
            assert names == ["global_step", "w"]


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("metrics", [keras.metrics, tf_keras.metrics], ids=["keras", "tf_keras"])
def test_each_example_counts_once_in_each_evaluation(metrics, strategy, tmp_path):
    with est.Estimator(make_model_fn(metrics), tmp_path, est.RunConfig(**strategy)) as model:
        model.train(input_fn, steps=1)
        assert model.get_variable_names() == ["global_step", "w"]
        for _ in range(2):
            results = model.evaluate(input_fn)
            assert results["mean"] == NUMBERS.mean() == 4.5
            assert results["large"] == NUMBERS[6:].mean() == 7.5


def make_chained(metrics):
    """A metric whose second assignment reads what the first one has assigned."""

    class Chained(metrics.Metric):
        def __init__(self):
            super().__init__(name="chained")
            self.total = self.add_weight(name="total", initializer="zeros", shape=())
            self.totals = self.add_weight(name="totals", initializer="zeros", shape=())
            self.before = self.add_weight(name="before", initializer="zeros", shape=())

        def update_state(self, values, sample_weight=None):
            self.before.assign(self.total + 0.0)
            self.total.assign(self.total + tf.reduce_sum(values))
            self.totals.assign(self.totals + self.total)

        def result(self):
            return self.totals + 1000 * self.before

    return Chained()


def make_nested(metrics):
    """A metric that updates another one several times."""

    class Nested(metrics.Metric):
        def __init__(self):
            super().__init__(name="nested")
            self.mean = metrics.Mean()

        def update_state(self, values, sample_weight=None):
            for factor in (1.0, 2.0, 3.0, 4.0, 5.0):
                self.mean.update_state(values * factor)

        def result(self):
            return self.mean.result()

    return Nested()


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("metrics", [keras.metrics, tf_keras.metrics], ids=["keras", "tf_keras"])
def test_updates_run_in_the_order_of_the_code(metrics, strategy, tmp_path):
    def make():
        made = {
            "nested": make_nested(metrics),
            "twice": metrics.Mean(),
            "curve": metrics.AUC(num_thresholds=20),
        }
        # This one is no sum over replicas, so that one replica would evaluate all.
        return made if strategy else {"chained": make_chained(metrics), **made}

    def update(made, values):
        for name in made.keys() & {"chained", "nested"}:
            made[name].update_state(values)
        for factor in (1.0, 3.0):
            made["twice"].update_state(values * factor)
            made["curve"].update_state(values > 3 * factor, values / 10)

    def model_fn(features, mode):
        made = {}
        if mode == est.ModeKeys.EVAL:
            made = make()
            update(made, features)
        loss = tf.square(V1.get_variable("w", []))
        step = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops=made)

    eager = make()
    for batch in NUMBERS.reshape(-1, 2):
        update(eager, tf.constant(batch))
    expected = {name: pytest.approx(float(metric.result())) for name, metric in eager.items()}
    with est.Estimator(model_fn, tmp_path, est.RunConfig(**strategy)) as model:
        model.train(input_fn, steps=1)
        for _ in range(5):
            results = model.evaluate(input_fn)
            assert {name: results[name] for name in expected} == expected


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_what_training_has_counted_and_saved_is_there_in_other_modes(strategy, tmp_path):
    def model_fn(features, mode):
        w = V1.get_variable("w", [])
        seen = keras.metrics.Mean(name="seen")
        if mode == est.ModeKeys.TRAIN:
            seen.update_state(features)
        value = seen.result()
        return est.EstimatorSpec(
            mode,
            predictions=features - value,
            loss=tf.square(w),
            train_op=V1.train.get_global_step().assign_add(1),
            eval_metric_ops={"seen": V1.metrics.mean(value)},
        )

    with est.Estimator(model_fn, tmp_path, est.RunConfig(**strategy)) as model:
        model.train(input_fn, steps=1)
        # Each replica has seen one batch of two numbers.
        value = np.mean(NUMBERS[: 2 * strategy.get("num_replicas", 1)])
        assert model.evaluate(input_fn)["seen"] == pytest.approx(value)
        np.testing.assert_allclose(list(model.predict(input_fn)), NUMBERS - value)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_a_hook_of_an_evaluation_gets_what_training_has_counted(strategy, tmp_path):
    values = []

    def model_fn(features, mode):
        seen = keras.metrics.Mean(name="seen")
        if mode == est.ModeKeys.TRAIN:
            seen.update_state(features)
        hook = V1.train.FinalOpsHook(seen.result())
        values.append(lambda: hook.final_ops_values)
        return est.EstimatorSpec(
            mode,
            loss=tf.square(V1.get_variable("w", [])),
            train_op=V1.train.get_global_step().assign_add(1),
            evaluation_hooks=[hook],
        )

    with est.Estimator(model_fn, tmp_path, est.RunConfig(**strategy)) as model:
        model.train(input_fn, steps=1)
        values.clear()
        model.evaluate(input_fn)
    expected = np.mean(NUMBERS[: 2 * strategy.get("num_replicas", 1)])
    assert values[0]() == pytest.approx(expected)


def test_a_value_between_the_updates_of_two_metrics_counts_no_batch_again(tmp_path):
    def model_fn(features, mode):
        metrics = {}
        if mode == est.ModeKeys.EVAL:
            first, second = keras.metrics.Sum(name="first"), keras.metrics.Sum(name="second")
            first.update_state(features)
            between = first.result()
            second.update_state(between)
            metrics = {"first": first, "second": second, "between": (between, tf.no_op())}
        loss, step = tf.square(V1.get_variable("w", [])), V1.train.get_global_step()
        return est.EstimatorSpec(
            mode, loss=loss, train_op=step.assign_add(1), eval_metric_ops=metrics
        )

    with est.Estimator(model_fn, tmp_path) as model:
        model.train(input_fn, steps=1)
        results = model.evaluate(input_fn)
    assert (results["first"], results["between"]) == (NUMBERS.sum(), NUMBERS.sum())


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize("metrics", [keras.metrics, tf_keras.metrics], ids=["keras", "tf_keras"])
def test_a_metric_that_only_evaluation_makes_need_not_be_returned(metrics, strategy, tmp_path):
    """No checkpoint has those of a metric that is replaced or that nothing returns."""

    def model_fn(features, mode):
        w = V1.get_variable("w", [])
        made = {}
        if mode == est.ModeKeys.EVAL:
            made = {name: metrics.Mean(name=name) for name in ("replaced", "kept", "left")}
            for metric in made.values():
                metric.update_state(features)
            del made["left"]
        return est.EstimatorSpec(
            mode,
            loss=tf.square(w),
            train_op=V1.train.get_global_step().assign_add(1),
            eval_metric_ops=made,
        )

    def metric_fn(features):
        metric = metrics.Mean(name="other")
        metric.update_state(2 * features)
        return {"replaced": metric}

    with est.Estimator(model_fn, tmp_path, est.RunConfig(**strategy)) as model:
        model.train(input_fn, steps=1)
        with est.add_metrics(model, metric_fn) as more:
            for _ in range(2):
                results = more.evaluate(input_fn)
                assert results["replaced"] == pytest.approx(2 * NUMBERS.mean())
                assert results["kept"] == pytest.approx(NUMBERS.mean())
