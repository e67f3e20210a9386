"""A model whose weight can be worked out by hand, and inputs for it."""

import glob
import os

import numpy as np
import tensorflow as tf

import estimator as est

RATE = 0.25


class Model:
    """A model_fn that pulls its weight `w` to the features' mean, and keeps the modes of its calls.

    A step is w -= RATE * (w - mean(features)); the loss is mean((w - features)^2) / 2, and the
    prediction for x is w * x.
    """

    def __init__(self):
        self.modes = []

    def __call__(self, features, labels, mode):
        self.modes.append(mode)
        features = tf.cast(features, tf.float32)
        w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(w - features)) / 2
        step = tf.compat.v1.train.get_global_step()
        train_op = None
        if mode == est.ModeKeys.TRAIN:
            train_op = tf.compat.v1.train.GradientDescentOptimizer(RATE).minimize(loss, step)
        metrics = {}
        if mode == est.ModeKeys.EVAL:
            metrics["mean"] = tf.compat.v1.metrics.mean(features)
        return est.EstimatorSpec(
            mode, predictions=w * features, loss=loss, train_op=train_op, eval_metric_ops=metrics
        )


def weight_after(batches, start=0.0):
    """What `w` is after a step on each of the batches."""
    w = np.float32(start)
    for batch in batches:
        w -= np.float32(RATE) * (w - np.float32(np.mean(batch)))
    return w


def numbers(count=None, batch_size=1, start=0):
    """An input_fn of start, start + 1, ... in batches; without `count` there is no end."""

    def input_fn():
        end = np.iinfo(np.int64).max if count is None else start + count
        return tf.data.Dataset.range(start, end).batch(batch_size)

    return input_fn


def checkpoint_steps(model_dir):
    """The steps of the checkpoints that are there, ascending."""
    paths = glob.glob(os.path.join(model_dir, "model.ckpt-*.index"))
    return sorted(int(path.rsplit("-", 1)[1].removesuffix(".index")) for path in paths)


def events(directory):
    """(step, tag, value) of each value in the event files, in the order written."""
    found = []
    for path in sorted(glob.glob(os.path.join(directory, "events.out.tfevents.*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            found += [(event.step, value.tag, value) for value in event.summary.value]
    return found


def scalars(directory, tag):
    """The value of a scalar summary at each step, as `tf.summary.scalar` writes it."""
    return {
        step: float(tf.make_ndarray(value.tensor))
        for step, found, value in events(directory)
        if found == tag
    }


def ids_model_fn(features, labels, mode):
    """Remembers its input: `ids[i]` is the feature of step i, a scalar batch of at most 999."""
    step = tf.compat.v1.train.get_global_step()
    ids = tf.compat.v1.get_variable(
        "ids", [999], tf.int64, tf.compat.v1.constant_initializer(-1), trainable=False
    )
    w = tf.compat.v1.get_variable("w", [], initializer=tf.compat.v1.zeros_initializer())
    id_ = tf.cast(tf.reshape(features, [1]), tf.int64)
    note = ids.assign(tf.tensor_scatter_nd_update(ids, tf.reshape(step, [1, 1]), id_))
    with tf.control_dependencies([note]):
        train_op = step.assign_add(1)
    return est.EstimatorSpec(mode, predictions=w, loss=w + 0.0, train_op=train_op)


def ids_of(trained):
    """What `ids_model_fn` saw, in order."""
    ids = trained.get_variable_value("ids")
    return ids[ids >= 0].tolist()


class Scripted:
    """A model_fn whose metric "score" is told in advance: `scores[i]` at step `i * every`."""

    def __init__(self, scores, every=10):
        self.scores = np.float32(scores)
        self.every = every

    def __call__(self, features, labels, mode):
        spec = Model()(features, labels, mode)
        step = tf.compat.v1.train.get_global_step()
        score = tf.gather(self.scores, tf.cast(step, tf.int64) // self.every)
        metrics = {"score": tf.compat.v1.metrics.mean(score)}
        return spec.replace(eval_metric_ops=metrics)


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def modes(model):
    """The modes in which an estimator has called its `Model` so far."""
    return model._model_fn.modes
