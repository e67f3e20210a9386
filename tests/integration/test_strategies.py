"""One walk through all verbs under every single-host strategy, by name and by object."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import checkpoint_steps, events

v1 = tf.compat.v1

WEIGHTS = np.float32([[1], [-2], [0.5]])
STRATEGIES = {
    "none": {},
    "one_device": {"strategy": "one_device"},
    "one_device object": {
        "train_distribute": tf.distribute.OneDeviceStrategy("/cpu:0"),
        "eval_distribute": tf.distribute.OneDeviceStrategy("/cpu:0"),
    },
    "mirrored x2": {"strategy": "mirrored", "num_replicas": 2},
    "mirrored x3": {"strategy": "mirrored", "num_replicas": 3},
    "central_storage x2": {"strategy": "central_storage", "num_replicas": 2},
}


def make_dataset(count=60):
    x = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, x @ WEIGHTS))


def input_fn(mode, params):
    data = make_dataset()
    if mode == est.ModeKeys.TRAIN:
        data = data.shuffle(60, seed=4).repeat()
    return data.batch(params["batch_size"])


def model_fn(features, labels, mode):
    w = v1.get_variable("w", [3, 1], initializer=v1.zeros_initializer())
    output = features["x"] @ w
    if mode == est.ModeKeys.PREDICT:
        return est.tpu.TPUEstimatorSpec(mode, predictions={"y": output})
    loss = tf.reduce_mean(tf.square(output - labels))
    v1.summary.scalar("loss_of_replica", loss)
    optimizer = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.1))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())

    def metric_fn(output, labels):
        return {"error": v1.metrics.mean_absolute_error(labels, output)}

    return est.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=(metric_fn, [output, labels])
    )


# The tables in tests/conformance have more of these.
MORE = ("one_device object", "mirrored x3")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.full) if name in MORE else name for name in STRATEGIES],
)
def test_every_verb_works_and_every_step_is_exact(tmp_path, name):
    config = est.tpu.RunConfig(
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=5),
        save_checkpoints_steps=7,
        save_summary_steps=3,
        **STRATEGIES[name],
    )
    with est.tpu.TPUEstimator(
        model_fn,
        str(tmp_path),
        config,
        train_batch_size=12,
        eval_batch_size=24,
        predict_batch_size=12,
    ) as line:
        line.train(input_fn, max_steps=10)
        line.train(input_fn, max_steps=200)
        assert line.train_result.reason == "max_steps"
        assert checkpoint_steps(str(tmp_path)) == [175, 182, 189, 196, 200]
        steps = [step for step, tag, _ in events(str(tmp_path)) if tag == "loss_of_replica"]
        assert steps == list(range(3, 201, 3))
        np.testing.assert_allclose(line.get_variable_value("w"), WEIGHTS, atol=0.02)

        results = line.evaluate(input_fn)
        assert results["global_step"] == 200
        rows = np.stack([row["y"] for row in line.predict(input_fn)])
        expected = np.stack([y for _, y in make_dataset().as_numpy_iterator()])
        assert rows.shape == (60, 1)
        np.testing.assert_allclose(np.abs(rows - expected).mean(), results["error"], rtol=1e-4)

        spec = {"x": tf.TensorSpec([None, 3], tf.float32)}
        receiver_fn = est.export.build_raw_serving_input_receiver_fn(spec)
        path = line.export_saved_model(str(tmp_path / "export"), receiver_fn).decode()
    served = tf.saved_model.load(path).signatures["serving_default"]
    features = np.stack([x["x"] for x, _ in make_dataset().as_numpy_iterator()])
    np.testing.assert_allclose(served(x=tf.constant(features))["y"], rows, rtol=1e-6)
    assert b"/device:CPU:1" not in (tmp_path / path / "saved_model.pb").read_bytes()
