import numpy as np
import pytest
import tensorflow as tf

import estimator as est

v1 = tf.compat.v1


def model_fn(features, mode, params):
    weight = v1.get_variable("weight", [], initializer=v1.ones_initializer())
    losses = tf.square(features - weight)
    mean = v1.metrics.mean(losses)
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(
        tf.reduce_mean(losses), v1.train.get_global_step()
    )
    return est.EstimatorSpec(
        mode,
        predictions={"losses": losses},
        loss=tf.reduce_mean(losses, keepdims=params["keepdims"]),
        train_op=train_op,
        # The update of a metric may be an operation, or several.
        eval_metric_ops={
            params["name"]: (mean[0], tf.group(mean[1])),
            "twice": (mean[0] * 2, (tf.no_op(), mean[1].op)),
        },
    )


def input_fn():
    return tf.data.Dataset.from_tensor_slices(np.arange(6, dtype=np.float32)).batch(3)


def model(tmp_path, name, strategy=None, keepdims=False):
    config = est.RunConfig(strategy=strategy, num_replicas=2 if strategy else None)
    return est.Estimator(model_fn, tmp_path, config, {"name": name, "keepdims": keepdims})


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_a_metrics_name_is_refused_only_where_evaluate_would_overwrite_it(tmp_path, name):
    one = model(tmp_path, name)
    one.train(input_fn, steps=1)
    assert len(list(one.predict(input_fn))) == 6
    with pytest.raises(ValueError, match=f"`eval_metric_ops` has the name '{name}', under which"):
        one.evaluate(input_fn)


@pytest.mark.parametrize("strategy", [None, "mirrored"])
def test_an_operation_is_an_update_and_a_loss_of_one_number_counts_once(tmp_path, strategy):
    one = model(tmp_path, "mean", strategy, keepdims=True)
    one.train(input_fn, steps=1)
    results = one.evaluate(input_fn)
    assert list(results) == ["loss", "mean", "twice", "global_step"]
    weight = one.get_variable_value("weight")
    expected = np.mean(np.square(np.arange(6) - weight))
    np.testing.assert_allclose([results["loss"], results["mean"]], [expected] * 2, rtol=1e-6)
    np.testing.assert_allclose(results["twice"], 2 * expected, rtol=1e-6)
