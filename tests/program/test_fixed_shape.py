"""Batches that are filled up to one size, as a TPU needs them, on CPUs: nothing is counted twice.

`is_compiled` is made to say yes, so that `evaluate` and `predict` take the programs, and the way
through the session, that a TPU would have them take. All of it runs for real, under strategies of
CPUs.
"""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.evaluation.batch_filler import padded
from estimator.program.programs import Padding

BATCH = 48  # Of all replicas; each has 48, 24 or 16: sizes with and without large divisors.
COUNTS = (1, 7, 1000, 1009)
WEIGHTS = np.array([0.5, -1.25, 2.0], np.float32)
Reduction = tf.compat.v1.losses.Reduction


def data(count):
    rng = np.random.default_rng(count)
    return rng.normal(size=[count, 3]).astype(np.float32), rng.integers(0, 2, count)


def input_fn(features, labels):
    def make(params):
        both = tf.data.Dataset.from_tensor_slices(({"x": features}, labels))
        return both.batch(params["batch_size"])

    return make


class Model:
    """Logistic regression with fixed weights; the loss is a number, one an example, or a sum."""

    def __init__(self, loss):
        self.loss = loss
        self.num_calls = 0

    def __call__(self, features, labels, mode, params):
        self.num_calls += 1
        w = tf.compat.v1.get_variable("w", initializer=WEIGHTS)
        logits = tf.linalg.matvec(features["x"], w)
        predictions = {"x": features["x"], "probability": tf.sigmoid(logits)}
        if mode == est.ModeKeys.PREDICT:
            return est.tpu.TPUEstimatorSpec(mode, predictions=predictions)
        each = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
        loss = {
            "mean": lambda: tf.reduce_mean(each) + 0.25,
            "each": lambda: each,
            "each in bfloat16": lambda: tf.cast(each, tf.bfloat16),
            "sum": lambda: tf.compat.v1.losses.sigmoid_cross_entropy(
                labels, logits, reduction=Reduction.SUM
            ),
        }[self.loss if mode == est.ModeKeys.EVAL else "mean"]()
        step = tf.compat.v1.train.get_global_step()
        return est.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=step.assign_add(1),
            eval_metrics=(metric_fn, {"labels": labels, "logits": logits}),
        )


def metric_fn(labels, logits):
    metrics = tf.compat.v1.metrics
    return {
        "rows": metrics.true_positives(tf.ones_like(labels), tf.ones_like(labels)),
        "positives": metrics.true_positives(labels, logits > 0),
        "accuracy": metrics.accuracy(labels, tf.cast(logits > 0, tf.int64)),
        "auc": metrics.auc(labels, tf.sigmoid(logits)),
        "mean_logit": metrics.mean(logits),
    }


def trained(tmp_path, loss, num_replicas):
    config = est.tpu.RunConfig(
        strategy="one_device" if num_replicas == 1 else "mirrored", num_replicas=num_replicas
    )
    model = est.tpu.TPUEstimator(
        Model(loss),
        str(tmp_path),
        config,
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
    )
    if not tf.train.latest_checkpoint(str(tmp_path)):
        model.train(input_fn(*data(BATCH)), steps=1)
    return model


def pad_batches(monkeypatch):
    is_compiled = property(lambda runtime: runtime.mode != est.ModeKeys.TRAIN)
    monkeypatch.setattr("estimator.runtime.local.Runtime.is_compiled", is_compiled)


@pytest.fixture
def padding(monkeypatch):
    pad_batches(monkeypatch)


@pytest.mark.each_value
@pytest.mark.parametrize("num_replicas", [1, 2, 3])
@pytest.mark.parametrize("loss", ["mean", "each", "each in bfloat16", "sum"])
def test_metrics_are_those_of_batches_that_are_not_filled_up(
    loss, num_replicas, tmp_path, monkeypatch
):
    inputs = {count: input_fn(*data(count)) for count in COUNTS}
    with trained(tmp_path, loss, num_replicas) as plain:
        expected = {count: plain.evaluate(inputs[count]) for count in COUNTS}
    pad_batches(monkeypatch)
    with trained(tmp_path, loss, num_replicas) as model:
        for count in COUNTS:
            results = model.evaluate(inputs[count])
            assert results["rows"] == count
            assert set(results) == set(expected[count])
            for name, value in expected[count].items():
                np.testing.assert_allclose(results[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("loss", ["mean", "each"])
@pytest.mark.usefixtures("padding", "v1_shapes")
def test_without_v2_behavior_batches_are_filled_up_too(loss, tmp_path):
    with trained(tmp_path, loss, num_replicas=2) as model:
        for count in COUNTS:
            assert model.evaluate(input_fn(*data(count)))["rows"] == count


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_there_is_one_prediction_a_row_in_order(num_replicas, tmp_path, padding):
    with trained(tmp_path, "mean", num_replicas) as model:
        for count in COUNTS:
            features, labels = data(count)
            rows = list(model.predict(input_fn(features, labels)))
            assert len(rows) == count
            np.testing.assert_array_equal(np.stack([row["x"] for row in rows]), features)
            expected = 1 / (1 + np.exp(-features @ WEIGHTS))
            np.testing.assert_allclose([row["probability"] for row in rows], expected, rtol=1e-5)


def test_batches_of_predictions_have_the_sizes_of_the_input_s(tmp_path, padding):
    with trained(tmp_path, "mean", 3) as model:
        batches = model.predict(input_fn(*data(40)), yield_single_examples=False)
        assert [len(batch["x"]) for batch in batches] == [16, 16, 8]


@pytest.mark.parametrize("num_replicas", [1, 3])
@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_host_calls_see_the_real_rows_alone(mode, num_replicas, tmp_path, padding):
    seen = []

    def with_host_call(features, labels, mode, params):
        def host_fn(x):
            return tf.numpy_function(lambda x: np.int32(seen.append(x) or 0), [x], tf.int32)

        spec = Model("each")(features, labels, mode, params)
        return spec.replace(host_call=(host_fn, [features["x"]]))

    features, labels = data(BATCH + 7)
    with trained(tmp_path, "each", num_replicas) as model:
        model._model_fn = with_host_call
        run = getattr(model, mode)(input_fn(features, labels))
        assert mode == "evaluate" or len(list(run)) == BATCH + 7
    assert len(seen) == num_replicas + 1  # None of a replica that has nothing to do.
    rows = np.concatenate(seen)
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(features, axis=0))


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_steps_count_batches_of_the_input(num_replicas, tmp_path, padding):
    with trained(tmp_path, "mean", num_replicas) as model:
        assert model.evaluate(input_fn(*data(BATCH + 7)), steps=2)["rows"] == BATCH + 7
        assert model.evaluate(input_fn(*data(1009)), steps=2)["rows"] == 2 * BATCH


def test_one_program_serves_every_number_of_rows(tmp_path, padding):
    model_fn = Model("mean")
    with trained(tmp_path, "mean", 2) as model:
        model._model_fn = model_fn
        for count in (1, 7, 48, 1009):
            assert model.evaluate(input_fn(*data(count)))["rows"] == count
    assert model_fn.num_calls == 2  # One program, whose two replicas are of CPUs.


@pytest.mark.parametrize(
    ("size", "rows", "parts"),
    [(8, 7, [4, 2, 1]), (8, 8, [8]), (48, 47, [24, 16, 6, 1]), (7, 3, [1, 1, 1]), (1, 1, [1])],
)
def test_a_batch_is_cut_into_parts_that_divide_its_size(size, rows, parts):
    batch = [np.arange(rows), np.float32(3)]
    full = list(padded(iter([batch]), Padding(size, [True, False], in_parts=True), 1))
    assert [int(one[-2]) for one in full] == parts
    assert all(len(one[0]) == size and one[1] == 3 for one in full)
    # A mean over the batch is that over the part: each row is there equally often.
    assert [np.mean(one[0]) for one in full] == [np.mean(one[0][: one[-2]]) for one in full]
    assert np.concatenate([one[0][: one[-2]] for one in full]).tolist() == list(range(rows))
    assert sum(one[-1] for one in full) == pytest.approx(1)


def test_all_replicas_run_until_the_end(tmp_path):
    batches = [[np.arange(4)] for _ in range(5)]
    full = list(padded(iter(batches), Padding(4, [True]), num_replicas=3))
    assert [int(one[-2]) for one in full] == [4, 4, 4, 4, 4, 0]
    assert full[-1][-1] == 0


def test_an_input_without_batches_is_filled_up_to_none():
    assert list(padded(iter([]), Padding(4, [True]), num_replicas=3)) == []


def test_a_batch_that_is_too_large_is_named():
    """One whose size nobody could see before."""
    batches = padded(iter([[np.zeros([50, 3])]]), Padding(48, [True]), 1)
    with pytest.raises(ValueError, match=r"a batch of \[50\] examples, but the batch size is 48"):
        next(batches)


def eval_error(tmp_path, change, **more):
    with trained(tmp_path, "mean", 1) as model:
        model._model_fn = change(model._model_fn)
        model._input_batches.sizes.update(more)
        with pytest.raises(ValueError) as error:  # noqa: PT011  (the message is the result)
            model.evaluate(lambda: input_fn(*data(7))({"batch_size": BATCH}))
    return str(error.value)


def test_a_metric_s_tensor_needs_a_value_for_each_row(tmp_path, padding):
    def change(model_fn):
        def scalar_metric(features, labels, mode, params):
            spec = model_fn(features, labels, mode, params)
            call = (lambda mean: {"m": tf.compat.v1.metrics.mean(mean)}, [spec.loss])
            return spec.replace(eval_metrics=call)

        return scalar_metric

    message = eval_error(tmp_path, change)
    assert "`eval_metrics` has 0 with the shape ()" in message
    assert "one row for each of the 48 rows" in message


def test_metrics_that_would_count_rows_that_are_not_real_are_refused(tmp_path, padding):
    def change(model_fn):
        def plain_spec(features, labels, mode, params):
            return model_fn(features, labels, mode, params).as_estimator_spec()

        return plain_spec

    message = eval_error(tmp_path, change)
    assert "an EstimatorSpec with `eval_metric_ops`" in message
    assert "TPUEstimator(eval_on_tpu=False)" in message


def test_the_batch_size_must_be_known(tmp_path, padding):
    nothing = {est.ModeKeys.EVAL: ("eval_batch_size", None)}
    with trained(tmp_path, "mean", 1) as model:
        model._input_batches.sizes.update(nothing)
        with pytest.raises(ValueError, match="Pass `eval_batch_size` to the TPUEstimator"):
            model.evaluate(lambda: input_fn(*data(7))({"batch_size": BATCH}))
