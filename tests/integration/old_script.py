"""A script of TensorFlow 1, v2 behavior off: every verb; prints what came of it as JSON.

python old_script.py MODEL_DIR STRATEGY NUM_REPLICAS ITERATIONS_PER_LOOP
"""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf

import estimator as est

tf.disable_v2_behavior()


class Fetching(tf.train.SessionRunHook):
    """Keeps what it gets for the names of two variables."""

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(["global_step:0", {"b": "b:0"}])

    def after_run(self, run_context, run_values):
        step, named = run_values.results
        self.seen = int(step), named["b"].tolist()


def input_fn():
    x = np.random.RandomState(0).normal(size=(120, 3)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    return data.repeat(3).batch(12)


def model_fn(features, labels, mode):
    w = tf.get_variable("w", [3, 1], initializer=tf.ones_initializer())
    b = tf.Variable(tf.zeros([1]), name="b")
    assert w
    assert bool(b)
    assert tf.train.get_global_step()
    output = tf.matmul(features, w) * 2.0 + b
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"y": output})
    loss = tf.reduce_mean(tf.square(output - labels))
    tf.summary.scalar("error", loss)
    optimizer = est.CrossShardOptimizer(tf.train.AdamOptimizer(0.1))
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    metrics = {"mean": tf.metrics.mean(output)}
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


def receiver_fn():
    x = tf.placeholder(tf.float32, [None, 3])
    return est.export.TensorServingInputReceiver(x, {"x": x})


def main(model_dir, strategy, num_replicas, iterations_per_loop):
    config = est.RunConfig(iterations_per_loop=iterations_per_loop, tf_random_seed=1)
    if strategy != "none":
        config = config.replace(strategy=strategy, num_replicas=num_replicas)
    with est.Estimator(model_fn, model_dir, config) as line:
        hook = Fetching()
        line.train(input_fn, max_steps=10, hooks=[hook])
        seen = *hook.seen, line.get_variable_value("b").tolist()
        line.train(input_fn)
        result = {name: float(value) for name, value in line.evaluate(input_fn).items()}
        result["seen"] = seen
        result["rows"] = len(list(line.predict(input_fn)))
        result["w"] = line.get_variable_value("w").ravel().tolist()
        result["names"] = line.get_variable_names()
        line.export_saved_model(model_dir + "/export", receiver_fn)
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
