"""Rows for `test_bad_input`: `warm_start_from`. The old model is the linear one, at step 2."""

from __future__ import annotations

import os
import pathlib

import tensorflow as tf

import estimator as est
from tests.bad_input.stage import V1, batches, renamed, spec_with, with_bias


def _vocab_info(**changes):
    fields = {"new_vocab": "new.txt", "new_vocab_size": 2, "num_oov_buckets": 0}
    return est.VocabInfo(**{**fields, "old_vocab": "old.txt", **changes})


def _settings(**fields):
    return est.WarmStartSettings("/nowhere", **fields)


def _new_model(stage, model_fn, width=2, path=None, **settings):
    """Trains a new model from the trained one; what it is given only then is checked then."""
    path = stage.model_dir if path is None else path
    model = est.Estimator(
        stage.watch("model_fn", model_fn),
        str(stage.root / "new"),
        warm_start_from=est.WarmStartSettings(path, **settings),
    )
    model.train(stage.watch("input_fn", batches(width=width)), steps=1)


def _vocabulary(stage, name, count):
    """The path of a vocabulary beside the folder that is compared before and after."""
    path = pathlib.Path(f"{stage.root}-{name}")
    path.write_text("".join(f"entry {number}\n" for number in range(count)))
    return str(path)


def _moved(stage, model_fn=None, width=2, lines=2, **changes):
    """Trains a new model whose kernel's rows follow a vocabulary."""
    paths = {name: _vocabulary(stage, name, lines) for name in ("new_vocab", "old_vocab")}
    info = _vocab_info(**{**paths, **changes})
    model_fn = model_fn or spec_with()
    _new_model(stage, model_fn, width, var_name_to_vocab_info={"kernel": info})


def _with_a_file(stage, name, path="other"):
    """A folder with one empty file in it."""
    folder = pathlib.Path(f"{stage.root}-{path}")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    return str(folder)


def _without_kernel(features, labels, mode):
    step = V1.train.get_global_step()
    return est.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=step.assign_add(1))


def _flat_kernel(features, labels, mode):
    loss = tf.reduce_sum(V1.get_variable("kernel", [2]))
    return est.EstimatorSpec(mode, loss=loss, train_op=V1.train.get_global_step().assign_add(1))


def _half_linear(features, labels, mode):
    kernel = V1.get_variable("kernel", [2, 1], tf.float16)
    train_op = V1.train.get_global_step().assign_add(1)
    loss = tf.cast(tf.reduce_sum(kernel), tf.float32)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


SETTINGS = {
    "warm_start_from is a number": (
        lambda s: s.model(warm_start_from=7),
        TypeError,
        "`warm_start_from` (7) must be a path, or WarmStartSettings",
    ),
    "warm_start_from of a TPUEstimator is a dict": (
        lambda s: s.tpu_model(warm_start_from={"kernel": "/old"}),
        TypeError,
        "`warm_start_from` ({'kernel': '/old'}) must be a path, or WarmStartSettings",
    ),
    "warm_start_from is empty": (
        lambda s: s.model(warm_start_from=""),
        ValueError,
        "`warm_start_from` ('') must not be empty: it must be a path, or WarmStartSettings",
    ),
    "the checkpoint of a warm start is None": (
        lambda s: est.WarmStartSettings(None),
        ValueError,
        "`ckpt_to_initialize_from` (None) must not be empty: it must be a path, of a checkpoint",
    ),
    "the checkpoint of a warm start is empty": (
        lambda s: est.WarmStartSettings(""),
        ValueError,
        "`ckpt_to_initialize_from` ('') must not be empty",
    ),
    "the variables to warm-start are a dict": (
        lambda s: _settings(vars_to_warm_start={"kernel": ".*"}),
        TypeError,
        "`vars_to_warm_start` ({'kernel': '.*'}) must be a regular expression, a list of them, a "
        'list of tf.Variables, or None. Pass ".*" for all that are trainable, [".*"] for all',
    ),
    "the variables to warm-start are names and numbers": (
        lambda s: _settings(vars_to_warm_start=["kernel", 3]),
        TypeError,
        "`vars_to_warm_start` (['kernel', 3]) must be a regular expression",
    ),
    "the variables to warm-start are no variables": (
        lambda s: _settings(vars_to_warm_start=[]),
        ValueError,
        '`vars_to_warm_start` ([]) is empty. Pass ".*" for all that are trainable',
    ),
    "the expression is empty": (
        lambda s: _settings(vars_to_warm_start=["kernel", ""]),
        ValueError,
        "`vars_to_warm_start` has an empty regular expression. Pass",
    ),
    "the expression is none": (
        lambda s: _settings(vars_to_warm_start="dense(1"),
        ValueError,
        "`vars_to_warm_start` ('dense(1') is not a regular expression: missing ) ... Put a",
    ),
    "None without vocabularies": (
        lambda s: _settings(vars_to_warm_start=None),
        ValueError,
        "`vars_to_warm_start` (None) chooses the variables in `var_name_to_vocab_info`, which is "
        'empty. Name some there, or pass ".*"',
    ),
    "the old names are a list": (
        lambda s: _settings(var_name_to_prev_var_name=["kernel"]),
        TypeError,
        "`var_name_to_prev_var_name` (['kernel']) must be a dict from variables' names, or None",
    ),
    "an old name is a number": (
        lambda s: _settings(var_name_to_prev_var_name={"kernel": 3}),
        TypeError,
        "`var_name_to_prev_var_name['kernel']` (3) must be the name of a variable in the",
    ),
    "a vocabulary is a path": (
        lambda s: _settings(var_name_to_vocab_info={"kernel": "new.txt"}),
        TypeError,
        "`var_name_to_vocab_info['kernel']` ('new.txt') must be a VocabInfo",
    ),
    "the path of a vocabulary is a list": (
        lambda s: _vocab_info(new_vocab=["a", "b"]),
        TypeError,
        "`new_vocab` (['a', 'b']) must be a path, of a vocabulary file",
    ),
    "the path of the old vocabulary is empty": (
        lambda s: _vocab_info(old_vocab=""),
        ValueError,
        "`old_vocab` ('') must not be empty",
    ),
    "the size of a vocabulary is zero": (
        lambda s: _vocab_info(new_vocab_size=0),
        ValueError,
        "`new_vocab_size` (0) must be at least 1",
    ),
    "the size of a vocabulary is a float": (
        lambda s: _vocab_info(new_vocab_size=2.0),
        TypeError,
        "`new_vocab_size` (2.0) must be an integer",
    ),
    "there are fewer than no buckets": (
        lambda s: _vocab_info(num_oov_buckets=-1),
        ValueError,
        "`num_oov_buckets` (-1) must be at least 0",
    ),
    "the size of the old vocabulary is zero": (
        lambda s: _vocab_info(old_vocab_size=0),
        ValueError,
        "`old_vocab_size` (0) must be at least 1, or -1 for all of `old_vocab` ('old.txt')",
    ),
    "the backup initializer is a name": (
        lambda s: _vocab_info(backup_initializer="zeros"),
        TypeError,
        "`backup_initializer` ('zeros') must be an initializer, such as",
    ),
    "the axis is the third": (
        lambda s: _vocab_info(axis=2),
        ValueError,
        "`axis` (2) must be 0, if the rows of the variable follow the vocabulary, or 1, if its",
    ),
    "the axis is a bool": (
        lambda s: _vocab_info(axis=True),
        ValueError,
        "`axis` (True) must be 0",
    ),
}

FILES = {
    "there is nothing to warm-start from": (
        lambda s: _new_model(s, spec_with(), path="/nowhere/model.ckpt-1"),
        ValueError,
        "`warm_start_from` ('/nowhere/model.ckpt-1') does not exist: there is no such directory, "
        "and no checkpoint with the index /nowhere/model.ckpt-1.index. Pass a checkpoint's path",
    ),
    "a file of the checkpoint to warm-start from": (
        lambda s: _new_model(s, spec_with(), path=s.checkpoint(".index")),
        ValueError,
        "`warm_start_from` ('/ ... model.ckpt-2.index') is a file of a checkpoint. Pass its path "
        "without the ending: '/ ... /model.ckpt-2'",
    ),
    "a pattern of names to warm-start from": (
        lambda s: _new_model(s, spec_with(), path="run[1]"),
        ValueError,
        "`warm_start_from` ('run[1]') must not contain [: TensorFlow takes",
    ),
    "an empty folder to warm-start from": (
        lambda s: _new_model(s, spec_with(), path=_with_a_file(s, "notes.txt")),
        ValueError,
        "`warm_start_from` ('/ ... -other') holds no checkpoint. Pass a checkpoint's path",
    ),
    "a folder of one checkpoint of another name": (
        lambda s: _new_model(s, spec_with(), path=_with_a_file(s, "bert.ckpt.index")),
        ValueError,
        "`warm_start_from` ('/ ... -other') holds no checkpoint. Name the checkpoint in it that is "
        "meant: '/ ... -other/bert.ckpt'",
    ),
    "a folder of SavedModels": (
        lambda s: _new_model(
            s, spec_with(), path=_with_a_file(s, "1700/variables/variables.index", "exports")
        ),
        ValueError,
        "`warm_start_from` ('/ ... -exports') holds no checkpoint. Name the SavedModel in it that "
        "is meant: '/ ... -exports/1700'",
    ),
    "the checkpoint to warm-start from is damaged": (
        lambda s: _new_model(
            s, spec_with(), path=os.path.join(_with_a_file(s, "a.ckpt.index", "damaged"), "a.ckpt")
        ),
        ValueError,
        "`warm_start_from`: the checkpoint / ... /a.ckpt is damaged ( ... ). Pass another",
    ),
    "the old name is not in the checkpoint": (
        lambda s: _new_model(s, spec_with(), var_name_to_prev_var_name={"kernel": "linear/kernal"}),
        ValueError,
        "`var_name_to_prev_var_name['kernel']` ('linear/kernal') is not in the checkpoint / ... "
        "/model.ckpt-2. Near names are 'kernel'",
    ),
    "the vocabulary is not there": (
        lambda s: _moved(s, old_vocab="/nowhere/words.txt"),
        ValueError,
        "`var_name_to_vocab_info['kernel'].old_vocab` ('/nowhere/words.txt') must be a text file",
    ),
    "the new vocabulary is too small": (
        lambda s: _moved(s, new_vocab_size=3),
        ValueError,
        "`var_name_to_vocab_info['kernel'].new_vocab_size` (3) must be at most the number of lines "
        "of / ... , which is 2",
    ),
    "the old vocabulary is too small": (
        lambda s: _moved(s, old_vocab_size=7),
        ValueError,
        "`var_name_to_vocab_info['kernel'].old_vocab_size` (7) must be at most the number of lines",
    ),
}

MODEL = {
    "the expression matches nothing": (
        lambda s: _new_model(s, spec_with(), vars_to_warm_start="dense/kernel"),
        ValueError,
        "`vars_to_warm_start` ('dense/kernel') matches the beginning of no variable's name. Near "
        "names are 'kernel'. To match inside of names, begin it with '.*'",
    ),
    "one expression of a list matches nothing": (
        lambda s: _new_model(s, spec_with(), vars_to_warm_start=["kernel", "moving_mean"]),
        ValueError,
        "`vars_to_warm_start` ('moving_mean') matches the beginning of no variable's name. There "
        "are global_step, kernel",
    ),
    "the expression matches only what is not trainable": (
        lambda s: _new_model(s, spec_with(), vars_to_warm_start="global"),
        ValueError,
        "`vars_to_warm_start` ('global') matches no variable that is trainable. For those that are "
        "not (global_step) pass a list: ['global']",
    ),
    "the model has nothing to warm-start": (
        lambda s: _new_model(s, _without_kernel),
        ValueError,
        "`vars_to_warm_start` ('.*') matches no variable that is trainable. For those",
    ),
    "a variable of another model": (
        lambda s: _new_model(s, spec_with(), vars_to_warm_start=[tf.Variable(0.0, name="kernal")]),
        ValueError,
        "`vars_to_warm_start` has the variable 'kernal', which the model lacks. Near names are "
        "'kernel'",
    ),
    "an old name for a variable that the model lacks": (
        lambda s: _new_model(s, spec_with(), var_name_to_prev_var_name={"kernal": "kernel"}),
        ValueError,
        "`var_name_to_prev_var_name` names 'kernal', which the model lacks. Near names are "
        "'kernel'",
    ),
    "an old name for a variable that is not chosen": (
        lambda s: _new_model(
            s, spec_with(), var_name_to_prev_var_name={"global_step": "global_step"}
        ),
        ValueError,
        "`var_name_to_prev_var_name` names 'global_step', which `vars_to_warm_start` ('.*') does "
        "not select. Select it too, with a list if it is not trainable, or leave it out",
    ),
    "the checkpoint lacks a variable": (
        lambda s: _new_model(s, with_bias),
        ValueError,
        "`warm_start_from`: 1 of the 2 variables that `vars_to_warm_start` ('.*') chooses cannot "
        "be loaded from the checkpoint / ... /model.ckpt-2. Choose fewer, name the old ones in "
        "`var_name_to_prev_var_name` ... \n  not in the checkpoint: bias",
    ),
    "the checkpoint has other names": (
        lambda s: _new_model(s, renamed),
        ValueError,
        "\n  not in the checkpoint: weights\n  only in the checkpoint: global_step, kernel",
    ),
    "the checkpoint has another shape": (
        lambda s: _new_model(s, spec_with(), width=3),
        ValueError,
        "1 of the 1 variables ... cannot be loaded from the checkpoint ... or give a `VocabInfo` "
        "... \n  differs: kernel: shape (3, 1) in the model, [2, 1] in the checkpoint",
    ),
    "the checkpoint has another type": (
        lambda s: _new_model(s, _half_linear),
        ValueError,
        "\n  differs: kernel: float16 in the model, float32 in the checkpoint",
    ),
    "the variable is larger than its vocabulary": (
        lambda s: _moved(s, width=4),
        ValueError,
        "kernel: axis 0 of its shape [4, 1] must be `new_vocab_size` + `num_oov_buckets` (2 + 0)",
    ),
    "the old variable is smaller than its vocabulary": (
        lambda s: _moved(s, lines=3),
        ValueError,
        "kernel: axis 0 of shape [2, 1] in the checkpoint is smaller than the old vocabulary (3 "
        "entries; see `old_vocab_size`)",
    ),
    "the old variable has another rank": (
        lambda s: _moved(s, _flat_kernel),
        ValueError,
        "kernel: axis 0 of shape [2] in the model, [2, 1] in the checkpoint",
    ),
    "the columns beside the vocabulary differ": (
        lambda s: _moved(s, width=3, axis=1, new_vocab_size=1, old_vocab_size=1),
        ValueError,
        "kernel: shape [3, 1] in the model, [2, 1] in the checkpoint, beside axis 1",
    ),
    "the backup initializer makes another shape": (
        lambda s: _moved(s, backup_initializer=lambda shape, dtype: tf.zeros([7, 1], dtype)),
        ValueError,
        "`var_name_to_vocab_info['kernel'].backup_initializer` (< ... made float32(7, 1). It must "
        "make what it is asked for: float32(2, 1)",
    ),
}
