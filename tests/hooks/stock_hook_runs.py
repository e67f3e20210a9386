"""What the tests of TensorFlow's own hooks share."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, events

v1 = tf.compat.v1

LOOPS = pytest.mark.parametrize("loop", [1, 100])
STRATEGIES = pytest.mark.parametrize("strategy", [None, "mirrored"])


def make(model_dir, loop=1, strategy=None, model_fn=None, **config):
    if strategy is not None:
        config.update(strategy=strategy, num_replicas=2)
    quiet = {"save_summary_steps": None, "log_step_count_steps": None}
    config = est.RunConfig(**{**quiet, "iterations_per_loop": loop, **config})
    return est.Estimator(model_fn or Model(), str(model_dir), config)


def with_hooks(make_hooks):
    """`Model`, whose spec has the hooks that are made of its features, a scalar, and its spec."""

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        x = tf.cast(features[0], tf.float32, name="x")
        return spec.replace(training_hooks=make_hooks(x, spec))

    return model_fn


def steps_of(directory, tag):
    return [step for step, name, _ in events(str(directory)) if name == tag]


def nan_at(step):
    """An input_fn of ones with a NaN at a step."""
    return lambda: tf.data.Dataset.from_tensor_slices(
        np.where(np.arange(1, 21) == step, np.nan, 1.0).astype(np.float32)
    ).batch(1)
