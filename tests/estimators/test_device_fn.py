"""`RunConfig(device_fn=...)` places what nothing else places."""

import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases

V1 = tf.compat.v1


@pytest.mark.each_value
@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize(
    ("strategy", "placed"),
    [("no_strategy", {"CPU:1"}), ("one_device", {"CPU:0"}), ("mirrored_x2", {"CPU:0", "CPU:1"})],
)
def test_ops_go_where_the_function_says_unless_a_strategy_places_them(
    strategy, placed, loop, tmp_path
):
    devices = set()
    asked = []

    def device_fn(op):
        asked.append(op.type)
        return "/cpu:1"

    def model_fn(features, labels, mode):
        kernel = V1.get_variable("kernel", [cases.NUM_FEATURES, 1])
        logits = features @ kernel
        devices.update(tf.DeviceSpec.from_string(t.device) for t in (kernel, logits))
        with tf.device("/cpu:0"):
            loss = tf.reduce_mean(tf.square(logits), name="loss")
        assert loss.device.upper().endswith("CPU:0")
        train_op = None
        if mode == est.ModeKeys.TRAIN:
            train_op = cases.build_minimize(V1.train.GradientDescentOptimizer(0.1), loss)
        predictions = {"logits": logits}
        return est.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)

    config = cases.make_config(
        device_fn=device_fn,
        session_config=V1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=False),
        iterations_per_loop=loop,
        **cases.STRATEGIES[strategy],
    )
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(cases.input_fn, max_steps=3)
        assert model.evaluate(cases.input_fn, 1)["global_step"] == 3
        assert len(list(model.predict(cases.input_fn))) == len(cases.FEATURES)
    assert {f"{device.device_type}:{device.device_index}" for device in devices} == placed
    assert ("MatMul" in asked) == (strategy == "no_strategy")


def test_it_does_not_move_what_the_model_places_where_batches_are_filled_up(tmp_path, monkeypatch):
    """Programs of one shape, which a TPU takes, are built by other functions."""
    devices = {}

    def model_fn(features, labels, mode):
        kernel = V1.get_variable("kernel", [3, 1])
        logits = features @ kernel
        with tf.device("/cpu:0"):
            loss = tf.reduce_mean(tf.square(logits))
        devices[mode] = [tf.DeviceSpec.from_string(t.device).device_index for t in (logits, loss)]
        step = V1.train.get_global_step()
        return est.EstimatorSpec(mode, predictions=logits, loss=loss, train_op=step.assign_add(1))

    def input_fn():
        return tf.data.Dataset.from_tensors(tf.ones([4, 3])).repeat(2)

    config = cases.make_config(
        device_fn=lambda op: "/cpu:1",
        session_config=V1.ConfigProto(device_count={"CPU": 2}),
    )
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(input_fn)
        monkeypatch.setattr("estimator.runtime.local.Runtime.is_compiled", True)
        assert model.evaluate(input_fn)["global_step"] == 2
        assert len(list(model.predict(input_fn))) == 8
    assert devices == {mode: [1, 0] for mode in ("train", "eval", "infer")}
