"""A TPUEstimator on a TPU of two cores, from the first step to predictions.

The TPU is described and not there, and CPUs run what its cores would (`tests/described_tpu.py`).
All else is the library as it is: inputs, loops, checkpoints, event files, metrics.
"""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator._tf import session as _session
from estimator.runtime.tpu_runtime import TPURuntime
from tests import toy
from tests.described_tpu import DescribedTPU, open_session

v1 = tf.compat.v1
W = np.array([1.0, -2.0, 0.5], np.float32)
BATCH = 16


@pytest.fixture
def on_cpus(monkeypatch):
    monkeypatch.setattr(TPURuntime, "start", lambda self: None)
    monkeypatch.setattr(_session, "MappedSession", open_session)


def data(count, seed=0):
    x = np.random.default_rng(seed).normal(size=[count, 3]).astype(np.float32)
    return x, (x @ W > 0).astype(np.int64)


def train_input(params):
    both = tf.data.Dataset.from_tensor_slices(data(256))
    both = both.shuffle(256, seed=1).repeat()
    return both.batch(params["batch_size"], drop_remainder=True)


def eval_input(count):
    return lambda params: tf.data.Dataset.from_tensor_slices(data(count, 1)).batch(
        params["batch_size"]
    )


def metric_fn(labels, logits):
    return {
        "accuracy": v1.metrics.accuracy(labels, tf.cast(logits > 0, tf.int64)),
        "rows": v1.metrics.true_positives(tf.ones_like(labels), tf.ones_like(labels)),
    }


def model_fn(features, labels, mode, params):
    """As programs for TPUs are written: a wrapped optimizer, `host_call`, `eval_metrics`."""
    w = v1.get_variable("w", [3], initializer=v1.zeros_initializer())
    logits = tf.linalg.matvec(features, w)
    predictions = {"x": features, "probability": tf.sigmoid(logits)}
    if mode == est.ModeKeys.PREDICT:
        return est.tpu.TPUEstimatorSpec(mode, predictions=predictions)
    loss = v1.losses.sigmoid_cross_entropy(labels, logits)
    if mode == est.ModeKeys.EVAL:  # One an example: it does not depend on the batch size.
        loss = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, tf.float32), logits)
    v1.summary.scalar("my_loss", tf.reduce_mean(loss))
    optimizer = est.tpu.CrossShardOptimizer(v1.train.AdamOptimizer(0.05))
    step = v1.train.get_global_step()
    return est.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, step) if mode == est.ModeKeys.TRAIN else None,
        eval_metrics=(metric_fn, [labels, logits]),
    )


def make(model_dir, num_cores=2, iterations_per_loop=10):
    return est.tpu.TPUEstimator(
        model_fn,
        str(model_dir),
        est.tpu.RunConfig(
            cluster=DescribedTPU(num_cores) if num_cores else None,
            tpu_config=est.tpu.TPUConfig(iterations_per_loop=iterations_per_loop),
            save_checkpoints_steps=25,
            save_summary_steps=20,
            tf_random_seed=1,
        ),
        use_tpu=bool(num_cores),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
        predict_batch_size=BATCH,
    )


def test_train_evaluate_and_predict_are_those_of_one_cpu(tmp_path, on_cpus):
    results = {}
    for num_cores in (0, 2):
        with make(tmp_path / str(num_cores), num_cores) as model:
            model.train(train_input, max_steps=60)
            evaluated = model.evaluate(eval_input(1009))
            predicted = list(model.predict(eval_input(7)))
            results[num_cores] = model.get_variable_value("w"), evaluated, predicted
            assert toy.checkpoint_steps(model.model_dir) == [0, 25, 50, 60]
            summaries = [e[0] for e in toy.events(model.model_dir) if e[1] == "my_loss"]
            assert summaries == [10, 20, 40, 60]  # The first loop of all is recorded, too.
    (w, evaluated, rows), (expected_w, expected, expected_rows) = results[2], results[0]
    np.testing.assert_allclose(w, expected_w, rtol=1e-5)
    assert evaluated["rows"] == 1009
    for name, value in expected.items():
        np.testing.assert_allclose(evaluated[name], value, rtol=1e-5, err_msg=name)
    assert evaluated["accuracy"] > 0.9
    assert len(rows) == 7
    for row, expected_row in zip(rows, expected_rows, strict=True):
        np.testing.assert_allclose(row["probability"], expected_row["probability"], rtol=1e-4)


@pytest.mark.parametrize("iterations_per_loop", [1, 100])
def test_a_resumed_run_is_the_unbroken_one(iterations_per_loop, tmp_path, on_cpus):
    with make(tmp_path / "unbroken", 2, iterations_per_loop) as unbroken:
        unbroken.train(train_input, max_steps=40)
    for max_steps in (15, 40):
        with make(tmp_path / "resumed", 2, iterations_per_loop) as resumed:
            resumed.train(train_input, max_steps=max_steps)
    for name in unbroken.get_variable_names():
        np.testing.assert_array_equal(
            resumed.get_variable_value(name), unbroken.get_variable_value(name), err_msg=name
        )


def test_what_a_tpu_trained_goes_on_without_one(tmp_path, on_cpus):
    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=20)
        expected = on_tpu.evaluate(eval_input(100))
    with make(tmp_path, 0) as without:
        assert without.evaluate(eval_input(100))["loss"] == pytest.approx(expected["loss"], 1e-5)
        without.train(train_input, max_steps=30)
        assert without.train_result.global_step == 30
    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=40)
        assert on_tpu.train_result.global_step == 40


def test_evaluation_on_the_host_takes_other_specs(tmp_path, on_cpus):
    def plain_spec(features, labels, mode, params):
        spec = model_fn(features, labels, mode, params)
        return spec if mode == est.ModeKeys.TRAIN else spec.as_estimator_spec()

    with make(tmp_path, 2) as on_tpu:
        on_tpu.train(train_input, max_steps=20)
        expected = on_tpu.evaluate(eval_input(100))
        config = on_tpu.config
    with est.tpu.TPUEstimator(
        plain_spec,
        str(tmp_path),
        config.replace(strategy=None),
        use_tpu=True,
        eval_on_tpu=False,
        eval_batch_size=BATCH,
    ) as model:
        results = model.evaluate(eval_input(100))
    assert results["rows"] == 100
    assert results["loss"] == pytest.approx(expected["loss"], 1e-5)


def test_train_and_evaluate_evaluates_each_checkpoint_while_training_goes_on(tmp_path, on_cpus):
    with make(tmp_path, 2) as model:
        metrics, _ = est.train_and_evaluate(
            model,
            est.TrainSpec(train_input, max_steps=60),
            est.EvalSpec(eval_input(100), steps=None, throttle_secs=0),
        )
        steps = {step for step, tag, _ in toy.events(model.eval_dir()) if tag == "accuracy"}
    assert sorted(steps) == [25, 50, 60]
    assert metrics["global_step"] == 60
    assert metrics["rows"] == 100


def test_after_an_operation_has_failed_evaluation_takes_a_new_session(tmp_path, on_cpus):
    class Fail(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            raise tf.errors.InternalError(None, None, "Core halted unexpectedly")

    with make(tmp_path, 2) as model:
        model.train(train_input, max_steps=20)
        expected = model.evaluate(eval_input(100))
        (before,) = model._warm_sessions.all()
        with pytest.raises(tf.errors.InternalError):
            model.evaluate(eval_input(100), hooks=[Fail()])
        assert model.evaluate(eval_input(100)) == expected
        (after,) = model._warm_sessions.all()
        assert after is not before


def serving_input_receiver():
    x = v1.placeholder(tf.float32, [None, 3])
    return est.export.TensorServingInputReceiver(x, {"x": x})


def test_an_export_of_what_a_tpu_trained_needs_none(tmp_path, on_cpus):
    with make(tmp_path, 2) as model:
        model.train(train_input, max_steps=20)
        expected = [row["probability"] for row in model.predict(eval_input(7))]
        path = model.export_saved_model(str(tmp_path / "export"), serving_input_receiver)
    serve = tf.saved_model.load(path.decode()).signatures["serving_default"]
    out = serve(tf.constant(data(7, 1)[0]))
    np.testing.assert_allclose(out["probability"], expected, rtol=1e-5)


def test_training_ends_with_the_input(tmp_path, on_cpus):
    def short_input(params):
        return train_input(params).take(9)  # Of two cores: 4 steps, and a batch for one of them.

    with make(tmp_path, 2) as model:
        model.train(short_input)
        assert model.train_result.global_step == 4
        assert model.train_result.reason == "end of input"


class AdamWeightDecay(v1.train.Optimizer):
    """As BERT's: it applies gradients by itself, and does not count steps."""

    def __init__(self, learning_rate):
        super().__init__(use_locking=False, name="adam_weight_decay")
        self.learning_rate = learning_rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for grad, var in grads_and_vars:
            if grad is None:
                continue
            zeros, name = v1.zeros_initializer(), var.name.split(":")[0]
            m, v = (
                v1.get_variable(
                    f"{name}/adam_{k}", var.shape.as_list(), tf.float32, zeros, trainable=False
                )
                for k in "mv"
            )
            dense = tf.convert_to_tensor(grad)
            next_m = 0.9 * m + 0.1 * dense
            next_v = 0.999 * v + 0.001 * tf.square(dense)
            update = next_m / (tf.sqrt(next_v) + 1e-6) + 0.01 * var
            updates += [
                var.assign(var - self.learning_rate * update),
                m.assign(next_m),
                v.assign(next_v),
            ]
        return tf.group(*updates, name=name)


def bert_like_model_fn(features, labels, mode, params):
    """Embeddings, attention and dropout; the optimizer and the scaffold as BERT has them."""
    is_training = mode == est.ModeKeys.TRAIN
    table = v1.get_variable(
        "embeddings", [50, 8], initializer=v1.truncated_normal_initializer(0.5, seed=1)
    )
    x = tf.nn.embedding_lookup(table, features["ids"])
    query, key = (
        x @ v1.get_variable(name, [8, 8], initializer=v1.truncated_normal_initializer(0.5, seed=2))
        for name in ("query", "key")
    )
    attention = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / 8**0.5)
    x = tf.reduce_mean(tf.matmul(attention, x), axis=1)
    x = tf.nn.dropout(x, rate=0.1 * params["dropout"] if is_training else 0.0)
    logits = x @ v1.get_variable(
        "output", [8, 2], initializer=v1.truncated_normal_initializer(0.5, seed=3)
    )
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(each)
    variables = v1.trainable_variables()

    def scaffold_fn():
        if params.get("init_checkpoint"):
            names = {v.name.split(":")[0]: v.name.split(":")[0] for v in variables}
            v1.train.init_from_checkpoint(params["init_checkpoint"], names)
        return v1.train.Scaffold()

    if not is_training:
        metrics = (lambda each: {"each": v1.metrics.mean(each)}, [each])
        return est.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=metrics, scaffold_fn=scaffold_fn
        )
    optimizer = est.tpu.CrossShardOptimizer(AdamWeightDecay(0.02))
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), clip_norm=params["clip_norm"])
    step = v1.train.get_or_create_global_step()
    train_op = optimizer.apply_gradients(zip(grads, variables, strict=True), global_step=step)
    train_op = tf.group(train_op, [step.assign(step + 1)])
    return est.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn)


def ids_input(params):
    ids = np.random.default_rng(0).integers(0, 50, size=[64, 6])
    both = tf.data.Dataset.from_tensor_slices(({"ids": ids}, (ids.sum(1) % 2).astype(np.int32)))
    return both.repeat().batch(params["batch_size"], drop_remainder=True)


def bert_like(model_dir, num_cores, **params):
    cluster = DescribedTPU(num_cores) if num_cores else None
    return est.tpu.TPUEstimator(
        bert_like_model_fn,
        str(model_dir),
        est.tpu.RunConfig(cluster=cluster, tpu_config=est.tpu.TPUConfig(iterations_per_loop=5)),
        params={"dropout": 0.0, "clip_norm": 1.0, **params},
        use_tpu=bool(num_cores),
        train_batch_size=BATCH,
        eval_batch_size=BATCH,
    )


@pytest.mark.parametrize(("num_cores", "clip_norm"), [(1, 1.0), (2, 1e6)])
def test_a_program_as_bert_s_trains_as_on_one_cpu(num_cores, clip_norm, tmp_path, on_cpus):
    """Each core clips its own gradients, as ever: with several cores that makes a difference."""
    values = {}
    for cores in (0, num_cores):
        with bert_like(tmp_path / str(cores), cores, clip_norm=clip_norm) as model:
            model.train(ids_input, steps=6)
            values[cores] = {
                name: model.get_variable_value(name) for name in model.get_variable_names()
            }
    assert values[0].keys() == values[num_cores].keys()
    assert values[num_cores]["global_step"] == 6
    for name, value in values[0].items():
        np.testing.assert_allclose(values[num_cores][name], value, atol=1e-3, err_msg=name)


def test_a_scaffold_s_checkpoint_is_what_all_cores_begin_with(tmp_path, on_cpus):
    with bert_like(tmp_path / "pretrained", 2) as pretrained:
        pretrained.train(ids_input, steps=5)
    start = pretrained.latest_checkpoint()
    with bert_like(tmp_path / "tuned", 2, init_checkpoint=start, dropout=1.0) as tuned:
        tuned.train(ids_input, steps=1)
        assert tuned.get_variable_value("global_step") == 1
        for name in ("embeddings", "query", "key", "output"):
            before = pretrained.get_variable_value(name)
            moved = np.abs(tuned.get_variable_value(name) - before).max()
            # One step: at most 0.02 * 0.1 / sqrt(0.001) and the decay. Initial values are further.
            assert 0 < moved < 0.066, name
