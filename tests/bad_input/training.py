"""Rows for `test_bad_input`: `train`."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import estimator as est
from tests.bad_input.stage import (
    V1,
    batches,
    dataset,
    examples,
    model_returning,
    returning,
    spec_with,
    tensor_of_another_graph,
    tpu_spec_with,
)


def _minimize(features, labels, mode, global_step):
    kernel = V1.get_variable("kernel", [2, 1])
    loss = tf.reduce_mean(tf.matmul(features, kernel))
    train_op = V1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _train_with_a_hook_inside_the_loop(stage):
    doubles = []

    class FetchDouble(V1.train.SessionRunHook):
        def before_run(self, run_context):
            return V1.train.SessionRunArgs(doubles[-1])

    model_fn = spec_with(loss=lambda a: doubles.append(a["loss"] * 2) or a["loss"])
    stage.train(model_fn, hooks=[FetchDouble()], config=est.RunConfig(iterations_per_loop=2))


def _times(value):
    """A model whose loss has a factor that was not made in it."""
    return spec_with(loss=lambda a: a["loss"] * value)


def _variable_of_another_graph():
    with tf.Graph().as_default():
        return V1.get_variable("v", [])


TRAIN = {
    "the input is a dataset": (
        lambda s: s.train(input_fn=batches()()),
        TypeError,
        "`input_fn` (<_BatchDataset ... must be a function that returns a tf.data.Dataset or "
        "(features, labels) ... lambda: make_dataset()",
    ),
    "input_fn takes an unknown argument": (
        lambda s: s.train(input_fn=lambda batch_size: None),
        ValueError,
        "`input_fn` takes unknown arguments (batch_size) ... any of params, mode, config, "
        "input_context ... functools.partial",
    ),
    "steps is zero": (
        lambda s: s.train(steps=0),
        ValueError,
        "`steps` (0) must be at least 1; leave it out",
    ),
    "steps is negative": (
        lambda s: s.train(steps=-3),
        ValueError,
        "`steps` (-3) must be at least 1",
    ),
    "steps is not whole": (
        lambda s: s.train(steps=2.5),
        TypeError,
        "`steps` (2.5) must be an integer, or None",
    ),
    "steps is a bool": (
        lambda s: s.train(steps=True),
        TypeError,
        "`steps` (True) must be an integer, or None",
    ),
    "max_steps is zero": (
        lambda s: s.train(max_steps=0),
        ValueError,
        "`max_steps` (0) must be at least 1",
    ),
    "max_steps is a string": (
        lambda s: s.train(max_steps="100"),
        TypeError,
        "`max_steps` ('100') must be an integer, or None",
    ),
    "both steps and max_steps": (
        lambda s: s.train(steps=5, max_steps=10),
        ValueError,
        "`steps` (5) and `max_steps` (10) exclude each other ... Pass one of them",
    ),
    "hooks is one hook": (
        lambda s: s.train(hooks=V1.train.StopAtStepHook(3)),
        TypeError,
        "`hooks` (< ... must be a list of SessionRunHooks",
    ),
    "a hook is a function": (
        lambda s: s.train(hooks=[print]),
        TypeError,
        "`hooks` holds <built-in function print> ... SessionRunHook. Derive its class",
    ),
    "a hook is a class": (
        lambda s: s.train(hooks=[V1.train.StopAtStepHook]),
        TypeError,
        "`hooks` holds <class ... StopAtStepHook'>, which is not an instance of ... SessionRunHook",
    ),
    "saving_listeners is one listener": (
        lambda s: s.train(saving_listeners=V1.train.CheckpointSaverListener()),
        TypeError,
        "`saving_listeners` (< ... must be a list of CheckpointSaverListeners",
    ),
    "a listener is a hook": (
        lambda s: s.train(saving_listeners=[V1.train.StopAtStepHook(3)]),
        TypeError,
        "`saving_listeners` holds < ... CheckpointSaverListener. ... `hooks`",
    ),
    "model_dir cannot be made": (
        lambda s: s.model(model_dir="/proc/model").train(s.watch("input_fn", batches())),
        ValueError,
        "`model_dir` ('/proc/model') cannot be written to (No such file or directory). Pass a "
        "directory that this user may write to",
    ),
}

TRAIN_INPUT = {
    "input_fn returns nothing": (
        lambda s: s.train(input_fn=lambda: None),
        TypeError,
        "`input_fn` returned None. It must return a tf.data.Dataset or (features, labels). Does it "
        "lack a `return`?",
    ),
    "input_fn returns a string": (
        lambda s: s.train(input_fn=lambda: "train.tfrecord"),
        TypeError,
        "`input_fn` returned 'train.tfrecord'. It must return a tf.data.Dataset",
    ),
    "input_fn returns a generator": (
        lambda s: s.train(input_fn=lambda: iter([examples()])),
        TypeError,
        "`input_fn` returned <list_iterator ... must return a tf.data.Dataset",
    ),
    "input_fn returns a function": (
        lambda s: s.train(input_fn=returning(batches())),
        TypeError,
        "`input_fn` returned <function ... must return a tf.data.Dataset ... Pass that "
        "function as `input_fn`, or call it",
    ),
    "input_fn returns two datasets": (
        lambda s: s.train(input_fn=lambda: (batches()(), batches()())),
        TypeError,
        "`input_fn` returned (<_BatchDataset ... tf.data.Dataset.zip((features, labels))",
    ),
    "input_fn returns three tensors": (
        lambda s: s.train(input_fn=lambda: (*examples(), np.ones(4))),
        ValueError,
        "`input_fn` returned a tuple of 3 values. It must return (features, labels)",
    ),
    "a dataset of 3-tuples": (
        lambda s: s.train(input_fn=dataset(lambda d: d.map(lambda x, y: (x, y, y)))),
        ValueError,
        "`input_fn` yields tuples of 3 values. They must be (features, labels); put",
    ),
    "a dataset of datasets": (
        lambda s: s.train(input_fn=dataset(lambda d: d.window(2))),
        TypeError,
        "The dataset of `input_fn` yields ... DatasetSpec( ... must be tensors ... flat_map",
    ),
    "a dataset that was made outside of input_fn": (
        lambda s: s.train(input_fn=returning(batches()())),
        ValueError,
        "`input_fn` returned a dataset that was made outside of it ... Make it inside",
    ),
    "params lack the batch size": (
        lambda s: s.tpu_model().train(
            s.watch("input_fn", lambda params: batches()().batch(params["batch_size"]))
        ),
        ValueError,
        '`input_fn` asks for params["batch_size"] ... Pass `train_batch_size` to a TPUEstimator',
    ),
    "labels that model_fn does not take": (
        lambda s: s.train(lambda features, mode: None),
        ValueError,
        "`model_fn` does not take `labels`, but `input_fn` returned some. Add the argument",
    ),
}

TRAIN_MODEL = {
    "model_fn returns nothing": (
        lambda s: s.train(model_returning(None)),
        TypeError,
        "`model_fn` returned None in mode 'train'. It must return an EstimatorSpec ... Does it "
        "lack a `return`?",
    ),
    "model_fn returns a dict": (
        lambda s: s.train(model_returning({"loss": 0.0})),
        TypeError,
        "`model_fn` returned {'loss': 0.0} in mode 'train'. It must return an EstimatorSpec",
    ),
    "the spec of another mode": (
        lambda s: s.train(spec_with(mode=lambda a: est.ModeKeys.EVAL)),
        ValueError,
        "mode 'train' and returned a spec whose mode is 'eval'. Pass the argument `mode` on",
    ),
    "the spec of an unknown mode": (
        lambda s: s.train(spec_with(mode=lambda a: "training")),
        ValueError,
        "`mode` ('training') is unknown. Pass on the `mode` that `model_fn` was called with",
    ),
    "no loss": (
        lambda s: s.train(spec_with(loss=lambda a: None)),
        ValueError,
        "`loss` is missing: mode 'train' needs it. Return EstimatorSpec(mode, loss=...)",
    ),
    "no train_op": (
        lambda s: s.train(spec_with(train_op=lambda a: None)),
        ValueError,
        "`train_op` is missing: mode 'train' needs it. Return EstimatorSpec(mode, train_op=...)",
    ),
    "no train_op in a TPUEstimatorSpec": (
        lambda s: s.train(tpu_spec_with(train_op=lambda a: None)),
        ValueError,
        "`train_op` is missing: mode 'train' needs it. Return TPUEstimatorSpec(mode, train_op=",
    ),
    "the loss is a Python number": (
        lambda s: s.train(spec_with(loss=lambda a: 0.5)),
        TypeError,
        "`loss` (0.5) must be a tensor",
    ),
    "the loss is a vector": (
        lambda s: s.train(spec_with(loss=lambda a: tf.ensure_shape(a["predictions"]["y"], [2]))),
        ValueError,
        "`loss` (<tf.Tensor ... has shape (2,). In mode 'train' it must be one number. Reduce it "
        "with tf.reduce_mean(loss)",
    ),
    "the loss is a string": (
        lambda s: s.train(spec_with(loss=lambda a: tf.constant("0.5"))),
        TypeError,
        "`loss` (<tf.Tensor ... has dtype string. It must be a number, such as float32",
    ),
    "the loss is of another graph": (
        lambda s: s.train(spec_with(loss=lambda a: tensor_of_another_graph())),
        ValueError,
        "`loss` (<tf.Tensor ... is in another graph ... Make it inside `model_fn`",
    ),
    "a variable was made outside": (
        lambda s: s.train(_times(tf.Variable(2.0))),
        ValueError,
        "`model_fn` uses a tensor or a variable that was made outside of this call (RuntimeError: "
        " ... make variables, layers, metrics and optimizers inside `model_fn`",
    ),
    "a variable was made outside of a loop": (
        lambda s: s.train(_times(tf.Variable(2.0)), config=est.RunConfig(iterations_per_loop=2)),
        ValueError,
        "`model_fn` uses a tensor or a variable that was made outside of this call (<tf.Tensor: "
        " ... resource ... Each call builds another graph",
    ),
    "a tensor was made outside": (
        lambda s: s.train(_times(tf.constant(2.0))),
        ValueError,
        "`model_fn` uses a tensor or a variable that was made outside of this call (RuntimeError: "
        " ... constants as NumPy arrays",
    ),
    "a variable is of another graph": (
        lambda s: s.train(_times(_variable_of_another_graph())),
        ValueError,
        "made outside of this call (ValueError: ... must be from the same graph as",
    ),
    "a variable is of another graph than a loop": (
        lambda s: s.train(
            _times(_variable_of_another_graph()), config=est.RunConfig(iterations_per_loop=2)
        ),
        ValueError,
        "`model_fn` uses a tensor or a variable that was made outside of this call (<tf.Tensor "
        " ... resource ... Each call builds another graph",
    ),
    "the train_op is a function": (
        lambda s: s.train(spec_with(train_op=lambda a: print)),
        TypeError,
        "`train_op` (<built-in function print>) must be an op ... optimizer.minimize",
    ),
    "the train_op is a list": (
        lambda s: s.train(spec_with(train_op=lambda a: [a["train_op"]])),
        TypeError,
        "`train_op` ([<tf.Operation ... must be an op ... tf.group",
    ),
    "the predictions are a list": (
        lambda s: s.train(spec_with(predictions=lambda a: [a["loss"]])),
        TypeError,
        "`predictions` ([<tf.Tensor ... must be a tensor or a dict of tensors",
    ),
    "there are no labels": (
        lambda s: s.train(input_fn=dataset(lambda d: d.map(lambda x, y: x))),
        ValueError,
        "`model_fn` fails without labels (ValueError: ... None values not supported.), and "
        "`input_fn` yields none. Let it yield (features, labels)",
    ),
    "the scaffold is a Saver": (
        lambda s: s.train(spec_with(scaffold=lambda a: V1.train.Saver())),
        TypeError,
        "`scaffold` (< ... must be a tf.compat.v1.train.Scaffold",
    ),
    "the scaffold_fn is a Scaffold": (
        lambda s: s.train(tpu_spec_with(scaffold_fn=lambda a: V1.train.Scaffold())),
        TypeError,
        "`scaffold_fn` (< ... must be a function that takes nothing and returns",
    ),
    "the training_hooks are one hook": (
        lambda s: s.train(spec_with(training_hooks=lambda a: V1.train.StopAtStepHook(3))),
        TypeError,
        "`training_hooks` (< ... must be a list of hooks",
    ),
    "a training hook is a class": (
        lambda s: s.train(spec_with(training_hooks=lambda a: [V1.train.StopAtStepHook])),
        TypeError,
        "`training_hooks` holds <class ... StopAtStepHook'>, which is not an instance of",
    ),
    "the export_outputs are tensors": (
        lambda s: s.train(spec_with(export_outputs=lambda a: a["predictions"])),
        TypeError,
        "`export_outputs['y']` (<tf.Tensor ... must be an ExportOutput",
    ),
    "the host_call is a function": (
        lambda s: s.train(tpu_spec_with(host_call=lambda a: print)),
        TypeError,
        "`host_call` (<built-in function print>) must be (function, list or dict of tensors)",
    ),
    "the host_call of two replicas has a scalar": (
        lambda s: s.train(
            tpu_spec_with(host_call=lambda a: (lambda loss: loss, [a["loss"]])),
            config=est.RunConfig(strategy="mirrored", num_replicas=2),
        ),
        ValueError,
        "`host_call` has the scalar <tf.Tensor ... several replicas (2) ... "
        "tf.reshape(tensor, [1])",
    ),
    "the host_call does not take its tensors": (
        lambda s: s.train(tpu_spec_with(host_call=lambda a: (lambda x, y: None, [a["loss"]]))),
        TypeError,
        "`host_call`: missing a required argument: 'y'. Its function takes (x, y), its tensors are",
    ),
}

TRAIN_RUN = {
    "the dataset is empty": (
        lambda s: s.train(input_fn=dataset(lambda d: d.take(0))),
        ValueError,
        "`input_fn` gave no batch for every replica: its dataset is empty ... drop_remainder",
    ),
    "a hook ends the training before its first step": (
        lambda s: s.train(hooks=[V1.train.FeedFnHook(lambda: next(iter([])))]),
        ValueError,
        "`input_fn` gave no batch ... Or a hook has ended the training before the first step",
    ),
    "a hook wants a tensor inside the loop": (
        _train_with_a_hook_inside_the_loop,
        ValueError,
        "The hook FetchDouble asks for ... inside the loop ... `iterations_per_loop=1` ... "
        "`training_hooks`",
    ),
    "the dataset is smaller than a global batch": (
        lambda s: s.train(
            input_fn=batches(count=2), config=est.RunConfig(strategy="mirrored", num_replicas=2)
        ),
        ValueError,
        "`input_fn` gave no batch for every replica: its dataset is empty, or smaller than one "
        "global batch",
    ),
}
