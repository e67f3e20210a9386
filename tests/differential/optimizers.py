"""TensorFlow's and Keras's own optimizers, which are the same in a graph and in an eager loop."""

from __future__ import annotations

import keras
import tensorflow as tf

V1 = tf.compat.v1.train

# A small epsilon makes rounding errors of a gradient that is zero as large as the learning rate.
EPSILON = 1e-2

V1_OPTIONS = {
    "GradientDescent": {},
    "Momentum": {"momentum": [0.9], "use_nesterov": [True, False]},
    "Adam": {"epsilon": [EPSILON], "beta1": [0.9, 0.5]},
    "Adagrad": {"initial_accumulator_value": [0.1, 1.0]},
    "Adadelta": {"epsilon": [EPSILON], "rho": [0.9]},
    "RMSProp": {"epsilon": [EPSILON], "momentum": [0.0, 0.9], "centered": [True, False]},
    "Ftrl": {"l2_regularization_strength": [0.0, 0.1], "learning_rate_power": [-0.5]},
    "ProximalGradientDescent": {"l2_regularization_strength": [0.0, 0.1]},
    "ProximalAdagrad": {"l2_regularization_strength": [0.0, 0.1]},
}
_EPSILON = {"epsilon": [EPSILON]}
_EVERY_KERAS = {
    "weight_decay": [0.01],
    "ema_overwrite_frequency": [2, 3],
    "loss_scale_factor": [0.5],
    "gradient_accumulation_steps": [2],
}
_CLIPS = {"clipnorm": [0.2], "global_clipnorm": [0.2], "clipvalue": [0.05]}
KERAS_OPTIONS = {
    "SGD": {"momentum": [0.9], "nesterov": [True]},
    "Adam": {**_EPSILON, "amsgrad": [True]},
    "AdamW": _EPSILON,
    "Adamax": _EPSILON,
    "Nadam": _EPSILON,
    "Adagrad": {**_EPSILON, "initial_accumulator_value": [0.1]},
    "Adadelta": {**_EPSILON, "rho": [0.9]},
    "RMSprop": {**_EPSILON, "momentum": [0.9], "centered": [True]},
    "Ftrl": {"l2_regularization_strength": [0.1], "initial_accumulator_value": [0.1]},
    "Lamb": _EPSILON,
}
for _options in KERAS_OPTIONS.values():
    _options.update(_EVERY_KERAS | _CLIPS)
CLIPS = frozenset(_CLIPS)  # Keras allows one of them.
# Arguments without a default, and those whose default would let rounding errors grow.
REQUIRED = {"Momentum": ("momentum",)} | {
    name: ("epsilon",)
    for name, options in {**V1_OPTIONS, **KERAS_OPTIONS}.items()
    if "epsilon" in options
}


def scheduled(rate, schedule, step):
    """The rate at a step: numbers in, a number out; tensors likewise."""
    if schedule == "exponential":
        return rate * 0.5 ** (step // 3)
    if schedule == "piecewise":
        return rate if step < 3 else rate / 4
    return rate


def make_in_graph(drawn, global_step):
    """The optimizer as a `model_fn` would make it."""
    rate = drawn.rate
    if drawn.api == "keras":
        return make_keras(drawn)
    if drawn.schedule == "exponential":
        rate = V1.exponential_decay(rate, global_step, 3, 0.5, staircase=True)
    elif drawn.schedule == "piecewise":
        rate = V1.piecewise_constant(global_step, [2], [rate, rate / 4])
    return getattr(V1, f"{drawn.name}Optimizer")(rate, **dict(drawn.options))


def make_eagerly(drawn):
    """The same for an eager loop, and what tells it of each step before it is applied."""
    if drawn.api == "keras":
        return make_keras(drawn), lambda step: None
    if drawn.schedule is None:
        optimizer = getattr(V1, f"{drawn.name}Optimizer")(drawn.rate, **dict(drawn.options))
        return optimizer, lambda step: None
    rate = tf.Variable(drawn.rate)
    optimizer = getattr(V1, f"{drawn.name}Optimizer")(rate, **dict(drawn.options))
    return optimizer, lambda step: rate.assign(scheduled(drawn.rate, drawn.schedule, step))


def make_keras(drawn):
    """A Keras optimizer; its schedules count for themselves."""
    schedules = keras.optimizers.schedules
    rate = drawn.rate
    if drawn.schedule == "exponential":
        rate = schedules.ExponentialDecay(rate, 3, 0.5, staircase=True)
    elif drawn.schedule == "piecewise":
        rate = schedules.PiecewiseConstantDecay([2], [rate, rate / 4])
    options = dict(drawn.options)
    if "ema_overwrite_frequency" in options:
        options |= {"use_ema": True, "ema_momentum": 0.8}
    return getattr(keras.optimizers, drawn.name)(rate, **options)
