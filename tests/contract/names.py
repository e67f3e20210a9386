"""The side that the contract is tested on: the names, and the models that its tests share.

The same tests run on TensorFlow 2.15 with its own `tf.estimator` (`make contract-peer`) and on
this project. They use public names only, and only what both versions of TensorFlow have.
"""

import glob
import json
import os

import numpy as np
import tensorflow as tf

IS_2_15 = tf.__version__.startswith("2.15.")

if IS_2_15:
    est, v1est, tf_keras = tf.estimator, tf.compat.v1.estimator, tf.keras
    CrossShardOptimizer = tf.compat.v1.tpu.CrossShardOptimizer
else:
    import tf_keras as tf_keras

    import estimator as est

    v1est = est.compat.v1
    CrossShardOptimizer = est.tpu.CrossShardOptimizer

v1 = tf.compat.v1
TRAIN, EVAL, PREDICT = est.ModeKeys.TRAIN, est.ModeKeys.EVAL, est.ModeKeys.PREDICT

RATE = 0.25


def mean_model_fn(features, labels, mode):
    """Pulls its weight `w`, at first 0, to the features' mean: w -= RATE * (w - mean(features)).

    The loss is mean((w - features)^2) / 2, the prediction for x is w * x.
    """
    del labels
    x = tf.cast(features["x"], tf.float32)
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - x)) / 2
    optimizer = v1.train.GradientDescentOptimizer(RATE)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(
        mode,
        predictions={"y": w * x, "x": x},
        loss=loss,
        train_op=train_op,
        eval_metric_ops={"mean_x": v1.metrics.mean(x)},
    )


def weight_after(num_steps, mean):
    """The weight of `mean_model_fn` after so many steps on batches of the same mean."""
    return mean * (1 - (1 - RATE) ** num_steps)


def batches_of(*batches):
    """An input_fn of these batches, as `features["x"]`."""

    def input_fn():
        rows = [np.float32(batch) for batch in batches]
        data = tf.data.Dataset.from_generator(
            lambda: iter(rows), output_signature=tf.TensorSpec([None], tf.float32)
        )
        return data.map(lambda x: {"x": x})

    return input_fn


def numbers(count, batch_size=1):
    """An input_fn of 0, 1, ... in batches, as `features["x"]`."""
    return lambda: tf.data.Dataset.range(count).batch(batch_size).map(lambda x: {"x": x})


def forever(value=1.0):
    """An input_fn of batches of one number, without an end."""
    return lambda: tf.data.Dataset.from_tensors({"x": [float(value)]}).repeat()


def files_in(directory):
    """The names of the files below a directory; those of event files without their number."""
    found = set()
    for parent, _, names in os.walk(directory):
        for name in names:
            shown = "events" if name.startswith("events.out.tfevents") else name
            found.add(os.path.relpath(os.path.join(parent, shown), directory))
    return found


def checkpoint_steps(model_dir):
    """The steps of the checkpoints in a directory."""
    paths = glob.glob(os.path.join(model_dir, "model.ckpt-*.index"))
    return sorted(int(path.rsplit("-", 1)[1].removesuffix(".index")) for path in paths)


def events(directory):
    """(step, tag, value) of what the event files in a directory hold."""
    found = []
    for path in sorted(glob.glob(os.path.join(directory, "events.out.tfevents.*"))):
        for event in v1.train.summary_iterator(path):
            found += [(event.step, value.tag, value) for value in event.summary.value]
    return found


def steps_of(directory, tag):
    """The steps at which event files hold a tag."""
    return [step for step, name, _ in events(directory) if name == tag]


def scalars(directory, tag):
    """By step, the numbers that event files hold under a tag."""
    return {step: value.simple_value for step, name, value in events(directory) if name == tag}


def tf_config(cluster, task_type, index, **others):
    """The text of TF_CONFIG."""
    task = {"type": task_type, "index": index}
    return json.dumps({"cluster": cluster, "task": task, **others})
