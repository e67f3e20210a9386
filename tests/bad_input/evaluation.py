"""Rows for `test_bad_input`: `evaluate`, and a model_dir that holds a checkpoint."""

from __future__ import annotations

import tensorflow as tf

import estimator as est
from tests.bad_input.stage import V1, batches, dataset, renamed, spec_with, tpu_spec_with, with_bias

UNTRAINED = {
    "export before train": (
        lambda s: s.export(),
        ValueError,
        "There is no checkpoint in `model_dir` (/ ... /model). Call `train` first, or pass a "
        "`checkpoint_path`",
    ),
    "variables before train": (
        lambda s: s.model().get_variable_names(),
        ValueError,
        "There is no checkpoint in `model_dir` (/ ... Call `train` first",
    ),
}


def _evaluate_cut(stage, input_fn):
    sliced = est.tpu.InputPipelineConfig.SLICED
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(eval_training_input_configuration=sliced),
        strategy="mirrored",
        num_replicas=2,
    )
    stage.tpu_model(config=config).evaluate(stage.watch("input_fn", input_fn), steps=1)


EVALUATE = {
    "the hooks of evaluate are a string": (
        lambda s: s.evaluate(hooks="profile"),
        TypeError,
        "`hooks` ('profile') must be a list of SessionRunHooks",
    ),
    "the steps of evaluate are zero": (
        lambda s: s.evaluate(steps=0),
        ValueError,
        "`steps` (0) must be at least 1; leave it out",
    ),
    "the steps of evaluate are a word": (
        lambda s: s.evaluate(steps="all"),
        TypeError,
        "`steps` ('all') must be an integer, or None",
    ),
    "the name is a number": (
        lambda s: s.evaluate(name=7),
        TypeError,
        "`name` (7) must be a string, or None",
    ),
    "the name leads out of model_dir": (
        lambda s: s.evaluate(name="../../other"),
        ValueError,
        "`name` ('../../other') must not lead out of `model_dir`",
    ),
    "the input of evaluate is a dict": (
        lambda s: s.evaluate(input_fn={"x": [1.0]}),
        TypeError,
        "`input_fn` ({'x': [1.0]}) must be a function",
    ),
    "the checkpoint_path does not exist": (
        lambda s: s.evaluate(checkpoint_path=s.checkpoint("0")),
        ValueError,
        "`checkpoint_path` ('/ ... model.ckpt-20') is not a checkpoint: there is no file ... "
        "model.ckpt-20.index",
    ),
    "the checkpoint_path is a file of the checkpoint": (
        lambda s: s.evaluate(checkpoint_path=s.checkpoint(".data-00000-of-00001")),
        ValueError,
        "`checkpoint_path` ('/ ... .data-00000-of-00001') is a file of a checkpoint. Pass its path "
        "without the ending: '/ ... /model.ckpt-2'",
    ),
    "the checkpoint_path is a pattern of names": (
        lambda s: s.evaluate(checkpoint_path="run[1]/model.ckpt-2"),
        ValueError,
        "`checkpoint_path` ('run[1]/model.ckpt-2') must not contain [: TensorFlow takes",
    ),
    "the checkpoint_path is a folder": (
        lambda s: s.evaluate(checkpoint_path=s.model_dir),
        ValueError,
        "`checkpoint_path` ('/ ... ') is a directory. Pass the newest checkpoint in it: '/ ... "
        "/model.ckpt-2'",
    ),
    "the checkpoint_path is a number": (
        lambda s: s.evaluate(checkpoint_path=2),
        TypeError,
        "`checkpoint_path` (2) must be a path, or None",
    ),
    "the checkpoint_path of predict does not exist": (
        lambda s: s.predict(checkpoint_path="/nowhere/model.ckpt-1"),
        ValueError,
        "`checkpoint_path` ('/nowhere/model.ckpt-1') is not a checkpoint",
    ),
    "the checkpoint_path of export does not exist": (
        lambda s: s.export(checkpoint_path="/nowhere/model.ckpt-1"),
        ValueError,
        "`checkpoint_path` ('/nowhere/model.ckpt-1') is not a checkpoint",
    ),
    "predict_keys is a number": (
        lambda s: s.predict(predict_keys=5),
        TypeError,
        "`predict_keys` (5) must be a key of the predictions or a list of them, or None",
    ),
    "predict_keys holds a number": (
        lambda s: s.predict(predict_keys=["y", 5]),
        TypeError,
        "`predict_keys` (['y', 5]) must be a key of the predictions or a list of them, or None",
    ),
    "the variable's name is misspelt": (
        lambda s: s.model().get_variable_value("kernal"),
        ValueError,
        "`name` ('kernal') is unknown. Did you mean 'kernel'?",
    ),
}

EVALUATE_INPUT = {
    "a sparse tensor is cut for several replicas": (
        lambda s: _evaluate_cut(
            s, dataset(lambda data: data.map(lambda x, y: (tf.sparse.from_dense(x), y)))
        ),
        ValueError,
        "`input_fn` yields SparseTensorSpec( ... InputPipelineConfig.SLICED splits dense tensors "
        "along dimension 0. Use PER_HOST_V1",
    ),
    "labels that model_fn does not take in evaluate": (
        lambda s: s.evaluate(lambda features, mode: None),
        ValueError,
        "`model_fn` does not take `labels`, but `input_fn` returned some",
    ),
}

EVALUATE_MODEL = {
    "TRAIN returned for EVAL": (
        lambda s: s.evaluate(spec_with(mode=lambda a: est.ModeKeys.TRAIN)),
        ValueError,
        "mode 'eval' and returned a spec whose mode is 'train'. Pass the argument `mode` on",
    ),
    "no loss to evaluate": (
        lambda s: s.evaluate(spec_with(loss=lambda a: None)),
        ValueError,
        "`loss` is missing: mode 'eval' needs it",
    ),
    "the loss to evaluate is a matrix": (
        lambda s: s.evaluate(spec_with(loss=lambda a: tf.zeros([2, 1]))),
        ValueError,
        "`loss` (<tf.Tensor ... has shape (2, 1). In mode 'eval' it must be one number, or a "
        "vector with one loss per example. Reduce it",
    ),
    "the metrics are a list": (
        lambda s: s.evaluate(spec_with(eval_metric_ops=lambda a: [V1.metrics.mean(a["loss"])])),
        TypeError,
        "`eval_metric_ops` ([( ... must be a dict from name to (value tensor, update op)",
    ),
    "a metric is a tensor": (
        lambda s: s.evaluate(spec_with(eval_metric_ops=lambda a: {"m": a["loss"]})),
        TypeError,
        "`eval_metric_ops['m']` (<tf.Tensor ... must be (value tensor, update op), as "
        "tf.compat.v1.metrics return",
    ),
    "a metric is two numbers": (
        lambda s: s.evaluate(spec_with(eval_metric_ops=lambda a: {"m": (0.5, 0.5)})),
        TypeError,
        "`eval_metric_ops['m']` (0.5) must be made of tensors and ops",
    ),
    "a metric is the wrong way round": (
        lambda s: s.evaluate(
            spec_with(eval_metric_ops=lambda a: {"m": (tf.no_op(), a["loss"])}),
        ),
        TypeError,
        "`eval_metric_ops['m'][0]` (<tf.Operation ... must be the value, a tensor; the update op",
    ),
    "a metric is called loss": (
        lambda s: s.evaluate(
            spec_with(eval_metric_ops=lambda a: {"loss": V1.metrics.mean(a["loss"])})
        ),
        ValueError,
        "`eval_metric_ops` has the name 'loss' ... Rename it",
    ),
    "a metric's name is a number": (
        lambda s: s.evaluate(spec_with(eval_metric_ops=lambda a: {1: V1.metrics.mean(a["loss"])})),
        TypeError,
        "`eval_metric_ops` has the name 1 ... must be a string",
    ),
    "a Keras metric was not updated": (
        lambda s: s.evaluate(spec_with(eval_metric_ops=lambda a: {"m": tf.keras.metrics.Mean()})),
        ValueError,
        "`eval_metric_ops['m']` ... was not updated. Call its `update_state` in `model_fn`",
    ),
    "eval_metrics is a dict": (
        lambda s: s.evaluate(tpu_spec_with(eval_metrics=lambda a: {"m": a["loss"]})),
        TypeError,
        "`eval_metrics` ({'m': ... must be (function, list or dict of tensors)",
    ),
    "eval_metrics holds a tensor": (
        lambda s: s.evaluate(tpu_spec_with(eval_metrics=lambda a: (V1.metrics.mean, a["loss"]))),
        TypeError,
        "`eval_metrics` has <tf.Tensor ... must be a list or a dict",
    ),
    "metric_fn takes other tensors": (
        lambda s: s.evaluate(
            tpu_spec_with(eval_metrics=lambda a: (lambda labels: None, {"x": a["loss"]}))
        ),
        TypeError,
        "`eval_metrics`: ... takes (labels), its tensors are ['x']",
    ),
    "metric_fn returns a pair": (
        lambda s: s.evaluate(
            tpu_spec_with(eval_metrics=lambda a: (V1.metrics.mean, [a["predictions"]["y"]]))
        ),
        TypeError,
        "`eval_metric_ops` (( ... must be a dict from name to (value tensor, update op)",
    ),
    "the dataset to evaluate is empty": (
        lambda s: s.evaluate(input_fn=dataset(lambda d: d.take(0))),
        ValueError,
        "No batch was evaluated: the dataset of `input_fn` is empty, or ... files and filters",
    ),
    "a hook ends the evaluation before its first batch": (
        lambda s: s.evaluate(hooks=[V1.train.FeedFnHook(lambda: next(iter([])))]),
        ValueError,
        "No batch was evaluated: ... or a hook ended the evaluation before the first batch",
    ),
    "evaluate without an end": (
        lambda s: s.evaluate(input_fn=dataset(lambda d: d.repeat())),
        ValueError,
        "The dataset of `input_fn` never ends, so `evaluate` would not either. Pass `steps`, or "
        "leave out `repeat()`",
    ),
    "evaluate features of another width": (
        lambda s: s.evaluate(input_fn=batches(width=3)),
        ValueError,
        "kernel: (3, 1) in the model, [2, 1] in the file",
    ),
    "evaluate another model": (
        lambda s: s.evaluate(with_bias),
        ValueError,
        "The checkpoint / ... model.ckpt-2 is another model's. Use another `model_dir` ... not in "
        "the checkpoint: bias",
    ),
    "train another model": (
        lambda s: s.train(with_bias, steps=1),
        ValueError,
        "The checkpoint / ... model.ckpt-2 is another model's. Use another `model_dir` ... not in "
        "the checkpoint: bias",
    ),
    "train another model without resuming the input": (
        lambda s: s.train(with_bias, config=est.RunConfig(resume_input=False)),
        ValueError,
        "The checkpoint / ... model.ckpt-2 is another model's",
    ),
    "train a model of other shapes": (
        lambda s: s.train(input_fn=batches(width=3), steps=1),
        ValueError,
        "The checkpoint / ... model.ckpt-2 is another model's. Use another `model_dir`, or the "
        "model that wrote it, with an `input_fn` that yields features of the same shapes. ... "
        "kernel: (3, 1) in the model, [2, 1] in the file",
    ),
    "train a model of other names": (
        lambda s: s.train(renamed, steps=1),
        ValueError,
        "not in the checkpoint: weights ... only in the checkpoint: kernel",
    ),
}
