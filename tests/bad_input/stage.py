"""Where the rows of `test_bad_input` play: an empty folder, a tiny real model, its input."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

import estimator as est

V1 = tf.compat.v1


def build_arguments(features, labels, mode, name="kernel"):
    """What a linear regression gives to its EstimatorSpec."""
    kernel = V1.get_variable(name, [features.shape[-1], 1])
    prediction = tf.reshape(tf.matmul(features, kernel), [-1])
    arguments = {"mode": mode, "predictions": {"y": prediction}}
    if mode != est.ModeKeys.PREDICT:
        loss = tf.reduce_mean(tf.square(prediction - labels))
        step = V1.train.get_global_step()
        train_op = V1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        arguments.update(loss=loss, train_op=train_op)
    return arguments


def spec_with(spec_type=est.EstimatorSpec, **changes):
    """The linear regression, with other arguments of its spec, each made of the right ones."""

    def model_fn(features, labels, mode):
        arguments = build_arguments(features, labels, mode)
        arguments.update({name: change(arguments) for name, change in changes.items()})
        return spec_type(**arguments)

    return model_fn


linear = spec_with()


def tpu_spec_with(**changes):
    """The same, in a TPUEstimatorSpec."""
    return spec_with(est.tpu.TPUEstimatorSpec, **changes)


def with_bias(features, labels, mode):
    """A model with a variable more."""
    V1.get_variable("bias", [1])
    return linear(features, labels, mode)


def renamed(features, labels, mode):
    """The linear regression, with another name for its variable."""
    arguments = build_arguments(features, labels, mode, "weights")
    return est.EstimatorSpec(**arguments)


def returning(value):
    """A function of no arguments that returns the value."""
    return lambda: value


def model_returning(value):
    """A model_fn that builds the linear regression and returns something else."""

    def model_fn(features, labels, mode):
        build_arguments(features, labels, mode)
        return value

    return model_fn


def examples(count=4, width=2):
    """(features, labels): float32 [count, width] and [count]."""
    x = np.linspace(-1.0, 1.0, count * width).reshape(count, width).astype(np.float32)
    return x, x.sum(axis=1)


def batches(count=4, width=2):
    """An input_fn of `count` examples in batches of 2."""
    return lambda: tf.data.Dataset.from_tensor_slices(examples(count, width)).batch(2)


def dataset(change=lambda data: data):
    """An input_fn that yields what `change` makes of the right dataset."""
    return lambda: change(batches()())


def tensor_receiver():
    """A serving function as the linear model needs it."""
    x = V1.placeholder(tf.float32, [None, 2], "x")
    return est.export.TensorServingInputReceiver(x, x)


def tensor_of_another_graph():
    with tf.Graph().as_default():
        return tf.constant(1.0)


class Stage:
    """A folder to train in, the verbs with the right arguments, and a record of what is called.

    Attributes:
      calls: which of the user's functions were called, in order.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.model_dir = str(root / "model")
        self.file = str(root / "notes.txt")
        pathlib.Path(self.file).write_text("A file.")
        self.calls: list[str] = []

    def watch(self, name: str, function: Any) -> Any:
        """The function, which leaves its name in `calls` when it is called."""
        if not callable(function):
            return function

        @functools.wraps(function)
        def watched(*args, **kwargs):
            self.calls.append(name)
            return function(*args, **kwargs)

        return watched

    def model(self, model_fn=linear, **arguments):
        arguments.setdefault("model_dir", self.model_dir)
        return est.Estimator(self.watch("model_fn", model_fn), **arguments)

    def tpu_model(self, model_fn=linear, **arguments):
        return est.tpu.TPUEstimator(self.watch("model_fn", model_fn), self.model_dir, **arguments)

    def configured(self, **fields):
        return self.model(config=est.RunConfig(**fields))

    def train(self, model_fn=linear, input_fn=None, config=None, **arguments):
        model = self.model(model_fn, config=config)
        return model.train(self.watch("input_fn", input_fn or batches()), **arguments)

    def evaluate(self, model_fn=linear, input_fn=None, **arguments):
        input_fn = self.watch("input_fn", input_fn or batches())
        return self.model(model_fn).evaluate(input_fn, **arguments)

    def predict(self, model_fn=linear, input_fn=None, **arguments):
        input_fn = self.watch("input_fn", input_fn or batches())
        return list(self.model(model_fn).predict(input_fn, **arguments))

    def warm_started(self, model_fn, checkpoint):
        return self.model(
            model_fn, model_dir=str(self.root / "untrained"), warm_start_from=checkpoint
        )

    def export(
        self, model_fn=linear, receiver_fn=tensor_receiver, to="export", make=None, **arguments
    ):
        to = str(self.root / to) if to == "export" else to
        receiver_fn = self.watch("serving_fn", receiver_fn)
        if make is not None:
            return make(model_fn, **arguments).export_saved_model(to, receiver_fn)
        return self.model(model_fn).export_saved_model(to, receiver_fn, **arguments)

    def export_all(self, receiver_fns, model_fn=linear):
        if isinstance(receiver_fns, dict):
            receiver_fns = {
                mode: self.watch("serving_fn", function) for mode, function in receiver_fns.items()
            }
        to = str(self.root / "export")
        return self.model(model_fn).experimental_export_all_saved_models(to, receiver_fns)

    def checkpoint(self, ending="") -> str:
        """The path of the trained model's checkpoint, and something after it."""
        return f"{self.model_dir}/model.ckpt-2{ending}"

    def snapshot(self) -> dict[str, bytes | None]:
        """Every folder and every file's bytes below the root."""
        return {
            str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes()
            for path in sorted(self.root.rglob("*"))
        }
