"""Rows for `test_bad_input`: an Estimator's arguments, and its config's."""

from __future__ import annotations

import os

import tensorflow as tf

import estimator as est
from estimator.compat.contrib.contrib_training import HParams


def pipeline(kind, **config):
    """A config with this input pipeline."""
    kind = getattr(est.tpu.InputPipelineConfig, kind)
    tpu_config = est.tpu.TPUConfig(per_host_input_for_training=kind)
    return est.tpu.RunConfig(tpu_config, strategy="mirrored", **config)


FOUR_REPLICAS = {"config": est.tpu.RunConfig(strategy="mirrored", num_replicas=4)}

CONSTRUCTION = {
    "model_fn is no function": (
        lambda s: s.model("linear"),
        TypeError,
        "`model_fn` ('linear') must be a function that returns an EstimatorSpec",
    ),
    "model_fn is a built-in": (
        lambda s: est.Estimator(min, s.model_dir),
        TypeError,
        "`model_fn` (<built-in function min>) is compiled code, of which Python",
    ),
    "model_fn takes no features": (
        lambda s: s.model(lambda x, labels, mode: None),
        ValueError,
        "`model_fn` must take an argument `features`; it takes (x, labels, mode)",
    ),
    "model_fn takes an unknown argument": (
        lambda s: s.model(lambda features, labels, mode, rate: None),
        ValueError,
        "`model_fn` takes unknown arguments (rate) ... any of features, labels, mode, params, "
        "config ... functools.partial",
    ),
    "config is a dict": (
        lambda s: s.model(config={"tf_random_seed": 1}),
        TypeError,
        "`config` ({'tf_random_seed': 1}) must be an estimator.RunConfig, or None",
    ),
    "config of a TPUEstimator is an empty dict": (
        lambda s: s.tpu_model(config={}),
        TypeError,
        "`config` ({}) must be an estimator.RunConfig, or None",
    ),
    "config of a TPUEstimator is False": (
        lambda s: s.tpu_model(config=False),
        TypeError,
        "`config` (False) must be an estimator.RunConfig, or None",
    ),
    "config is a TPUConfig": (
        lambda s: s.tpu_model(config=est.tpu.TPUConfig(iterations_per_loop=7)),
        TypeError,
        "`config` (TPUConfig( ... must be an estimator.RunConfig ... "
        "estimator.tpu.RunConfig(tpu_config=TPUConfig(...))",
    ),
    "model_dir is a number": (
        lambda s: s.model(model_dir=3),
        TypeError,
        "`model_dir` (3) must be a path, or None",
    ),
    "model_dir is a pattern of names": (
        lambda s: s.model(model_dir=str(s.root / "run[1]")),
        ValueError,
        "`model_dir` ('/ ... run[1]') must not contain [: TensorFlow takes",
    ),
    "the model_dir of the config is a pattern of names": (
        lambda s: s.model(model_dir=None, config=est.RunConfig(model_dir="run*?")),
        ValueError,
        "`model_dir` ('run*?') must not contain * or ?: TensorFlow takes",
    ),
    "model_dir is a file": (
        lambda s: s.model(model_dir=s.file),
        ValueError,
        "`model_dir` ('/ ... notes.txt') is a file. It must be a directory, or not exist",
    ),
    "model_dir is below a file": (
        lambda s: s.model(model_dir=os.path.join(s.file, "model")),
        ValueError,
        "`model_dir` ('/ ... notes.txt/model') is below ... notes.txt, which is a file. It must",
    ),
    "model_dir and config.model_dir differ": (
        lambda s: s.model(config=est.RunConfig(model_dir="elsewhere")),
        ValueError,
        "`model_dir` ('/ ... `config.model_dir` ('elsewhere') differ. Pass one of them",
    ),
    "use_tpu without a TPU": (
        lambda s: s.tpu_model(use_tpu=True),
        ValueError,
        'There is no TPU ... TPUClusterResolver( ... RunConfig(strategy="mirrored")',
    ),
    "use_tpu beside another strategy": (
        lambda s: s.tpu_model(use_tpu=True, config=est.tpu.RunConfig(strategy="mirrored")),
        ValueError,
        "`use_tpu=True` and the config's strategy ('mirrored') exclude each other",
    ),
    "batch_size in params": (
        lambda s: s.tpu_model(params={"batch_size": 32}),
        ValueError,
        '`params` must not hold "batch_size" (32) ... `train_batch_size`',
    ),
    "context in HParams": (
        lambda s: s.tpu_model(params=HParams(context="text")),
        ValueError,
        "`params` must not hold \"context\" ('text'): a TPUContext is filled in. Rename it.",
    ),
    "params of a TPUEstimator is a string": (
        lambda s: s.tpu_model(params="batch_size=32"),
        TypeError,
        "`params` ('batch_size=32') must be a dict",
    ),
    "a dimension of batch_axis is negative": (
        lambda s: s.tpu_model(batch_axis=[0, -1]),
        ValueError,
        "`batch_axis[1]` (-1) must be at least 0",
    ),
    "a dimension of batch_axis is a letter": (
        lambda s: s.tpu_model(batch_axis=["N"]),
        TypeError,
        "`batch_axis[0]` ('N') must be an integer",
    ),
    "batch_axis is a number": (
        lambda s: s.tpu_model(batch_axis=0),
        TypeError,
        "`batch_axis` (0) must be a list of dimensions, or None",
    ),
    "use_tpu is a string": (
        lambda s: s.tpu_model(use_tpu="false"),
        TypeError,
        "`use_tpu` ('false') must be True or False",
    ),
    "context in params": (
        lambda s: s.tpu_model(params={"context": 3}),
        ValueError,
        '`params` must not hold "context" (3): a TPUContext is filled in. Rename it',
    ),
    "eval_on_tpu is a number": (
        lambda s: s.tpu_model(eval_on_tpu=1),
        TypeError,
        "`eval_on_tpu` (1) must be True or False",
    ),
    "export_to_tpu is a string": (
        lambda s: s.tpu_model(export_to_tpu="no"),
        TypeError,
        "`export_to_tpu` ('no') must be True or False",
    ),
    "export_to_cpu is None": (
        lambda s: s.tpu_model(export_to_cpu=None),
        TypeError,
        "`export_to_cpu` (None) must be True or False",
    ),
    "an embedding_config_spec": (
        lambda s: s.tpu_model(embedding_config_spec="tables"),
        NotImplementedError,
        "`embedding_config_spec` ('tables') distributes tables over the cores of a TPU ... Leave "
        "it out, and look rows up in `model_fn`: tf.nn.embedding_lookup(",
    ),
    "export_saved_model_api_version is 3": (
        lambda s: s.tpu_model(export_saved_model_api_version=3),
        ValueError,
        "`export_saved_model_api_version` (3) must be 1 or 2",
    ),
    "num_shards is not the number of replicas": (
        lambda s: s.tpu_model(
            config=est.tpu.RunConfig(
                est.tpu.TPUConfig(num_shards=8), strategy="mirrored", num_replicas=2
            )
        ),
        ValueError,
        "`num_shards` (8) of the TPUConfig is the number of replicas, and the strategy has 2.",
    ),
    "a sliced batch is no multiple of the replicas": (
        lambda s: s.tpu_model(train_batch_size=5, config=pipeline("SLICED", num_replicas=2)),
        ValueError,
        "`train_batch_size` (5) must be a multiple of the number of replicas (2)",
    ),
    "export_to_cpu is off": (
        lambda s: s.tpu_model(export_to_cpu=False),
        ValueError,
        "`export_to_cpu` (False) leaves nothing to export: SavedModels are for CPUs and GPUs, also "
        "after training on a TPU. Leave it out",
    ),
    "the batch is no multiple of the replicas": (
        lambda s: s.tpu_model(train_batch_size=130, **FOUR_REPLICAS),
        ValueError,
        "`train_batch_size` (130) must be a multiple of the number of replicas (4). "
        "The nearest that fits is 128.",
    ),
    "the batch is smaller than the replicas": (
        lambda s: s.tpu_model(eval_batch_size=1, **FOUR_REPLICAS),
        ValueError,
        "`eval_batch_size` (1) must be a multiple of the number of replicas (4). "
        "The nearest that fits is 4.",
    ),
    "train_batch_size is zero": (
        lambda s: s.tpu_model(train_batch_size=0),
        ValueError,
        "`train_batch_size` (0) must be at least 1",
    ),
    "eval_batch_size is not whole": (
        lambda s: s.tpu_model(eval_batch_size=32.5),
        TypeError,
        "`eval_batch_size` (32.5) must be an integer",
    ),
    "predict_batch_size is negative": (
        lambda s: s.tpu_model(predict_batch_size=-8),
        ValueError,
        "`predict_batch_size` (-8) must be at least 1",
    ),
    "train_batch_size is a bool": (
        lambda s: s.tpu_model(train_batch_size=True),
        TypeError,
        "`train_batch_size` (True) must be an integer",
    ),
}

CONFIG = {
    "the strategy's name is misspelt": (
        lambda s: s.configured(strategy="mirorred"),
        ValueError,
        "`strategy` ('mirorred') is unknown. Did you mean 'mirrored'?",
    ),
    "the strategy's name is like no other": (
        lambda s: s.configured(strategy="x"),
        ValueError,
        "`strategy` ('x') is unknown. Use one of 'one_device', 'mirrored', 'central_storage'",
    ),
    "the strategy is a number": (
        lambda s: s.configured(strategy=2),
        TypeError,
        "`strategy` (2) must be a name or a strategy object",
    ),
    "train_distribute is a name": (
        lambda s: s.configured(train_distribute="mirrored"),
        TypeError,
        "`train_distribute` ('mirrored') must be a tf.distribute ... strategy=\"mirrored\"",
    ),
    "a strategy by name and by object": (
        lambda s: s.configured(
            strategy="mirrored", train_distribute=tf.distribute.OneDeviceStrategy("/cpu:0")
        ),
        ValueError,
        "`strategy` ('mirrored') and `train_distribute` (< ... exclude each other ... Pass one of",
    ),
    "num_replicas is zero": (
        lambda s: s.configured(strategy="mirrored", num_replicas=0),
        ValueError,
        "`num_replicas` (0) must be at least 1",
    ),
    "num_replicas is a string": (
        lambda s: s.configured(strategy="mirrored", num_replicas="2"),
        TypeError,
        "`num_replicas` ('2') must be an integer",
    ),
    "several replicas on one device": (
        lambda s: s.configured(strategy="one_device", num_replicas=2),
        ValueError,
        "`num_replicas` (2) must be 1 under `strategy` ('one_device') ... strategy=\"mirrored\"",
    ),
    "several replicas without a strategy": (
        lambda s: s.configured(num_replicas=2),
        ValueError,
        '`num_replicas` (2) must be 1 under `strategy` (None) ... strategy="mirrored"',
    ),
    "iterations_per_loop is zero": (
        lambda s: s.configured(iterations_per_loop=0),
        ValueError,
        "`iterations_per_loop` (0) must be at least 1",
    ),
    "iterations_per_loop is a fraction": (
        lambda s: s.configured(iterations_per_loop=2.5),
        TypeError,
        "`iterations_per_loop` (2.5) must be an integer",
    ),
    "iterations_per_loop is a time of another form": (
        lambda s: s.configured(iterations_per_loop="90 seconds"),
        ValueError,
        "`iterations_per_loop` ('90 seconds') must be an integer, a time such as '30s', '2m' or "
        "'1h', or 'auto'",
    ),
    "the TPUConfig's loop is a time of no length": (
        lambda s: s.tpu_model(config=est.tpu.RunConfig(est.tpu.TPUConfig("0s"))),
        ValueError,
        "`iterations_per_loop` ('0s') must be an integer, a time",
    ),
    "compute_dtype needs the loss scaled": (
        lambda s: s.configured(compute_dtype="float16"),
        ValueError,
        "`compute_dtype` ('float16') must be 'float32' or 'bfloat16': float16 loses small",
    ),
    "compute_dtype is unknown": (
        lambda s: s.configured(compute_dtype="bfloat"),
        ValueError,
        "`compute_dtype` ('bfloat') is unknown. Did you mean 'bfloat16'?",
    ),
    "jit_compile is a string": (
        lambda s: s.configured(jit_compile="auto"),
        TypeError,
        "`jit_compile` ('auto') must be True or False",
    ),
    "smoke is a number": (
        lambda s: s.configured(smoke=2),
        TypeError,
        "`smoke` (2) must be True or False",
    ),
    "max_time_secs is negative": (
        lambda s: s.configured(max_time_secs=-1),
        ValueError,
        "`max_time_secs` (-1) must be positive",
    ),
    "max_time_secs is a string": (
        lambda s: s.configured(max_time_secs="2h"),
        TypeError,
        "`max_time_secs` ('2h') must be a number",
    ),
    "per_host_input_for_training is no pipeline": (
        lambda s: s.tpu_model(
            config=est.tpu.RunConfig(est.tpu.TPUConfig(per_host_input_for_training="PER_HOST_V1"))
        ),
        ValueError,
        "`per_host_input_for_training` ('PER_HOST_V1') must be True, False or one of Input",
    ),
    "an evaluation's input is broadcast": (
        lambda s: s.tpu_model(
            config=est.tpu.RunConfig(est.tpu.TPUConfig(eval_training_input_configuration=4))
        ),
        ValueError,
        "`eval_training_input_configuration` (4) must be InputPipelineConfig.PER_HOST_V1 or SLICED",
    ),
    "host_call in each 0th step": (
        lambda s: s.tpu_model(
            config=est.tpu.RunConfig(est.tpu.TPUConfig(experimental_host_call_every_n_steps=0))
        ),
        ValueError,
        "`experimental_host_call_every_n_steps` (0) must be at least 1",
    ),
    "the TPUConfig's loop is negative": (
        lambda s: s.tpu_model(config=est.tpu.RunConfig(est.tpu.TPUConfig(iterations_per_loop=-1))),
        ValueError,
        "`iterations_per_loop` (-1) must be at least 1",
    ),
    "save_summary_steps is negative": (
        lambda s: s.configured(save_summary_steps=-5),
        ValueError,
        "`save_summary_steps` (-5) must be at least 1",
    ),
    "checkpoints by steps and by seconds": (
        lambda s: s.configured(save_checkpoints_steps=10, save_checkpoints_secs=60),
        ValueError,
        "`save_checkpoints_steps` (10) and `save_checkpoints_secs` (60) exclude each other. Pass "
        "one of them",
    ),
    "async_checkpoints is a word": (
        lambda s: s.configured(async_checkpoints="yes"),
        TypeError,
        "`async_checkpoints` ('yes') must be True or False",
    ),
    "keep_checkpoint_max is a float": (
        lambda s: s.configured(keep_checkpoint_max=2.0),
        TypeError,
        "`keep_checkpoint_max` (2.0) must be an integer",
    ),
    "tf_random_seed is a string": (
        lambda s: s.configured(tf_random_seed="one"),
        TypeError,
        "`tf_random_seed` ('one') must be an integer",
    ),
    "the nan_policy is unknown": (
        lambda s: s.configured(nan_policy="rais"),
        ValueError,
        "`nan_policy` ('rais') is unknown. Did you mean 'raise'?",
    ),
    "profile_steps is one step": (
        lambda s: s.configured(profile_steps=100),
        TypeError,
        "`profile_steps` (100) must be two global steps, the first below the second, as in "
        "(100, 110).",
    ),
    "profile_steps are three": (
        lambda s: s.configured(profile_steps=(1, 2, 3)),
        TypeError,
        "`profile_steps` ((1, 2, 3)) must be two global steps",
    ),
    "profile_steps holds a fraction": (
        lambda s: s.configured(profile_steps=[100, 110.5]),
        TypeError,
        "`profile_steps` ([100, 110.5]) must be two global steps ... 110.5 is not an integer",
    ),
    "profile_steps holds a bool": (
        lambda s: s.configured(profile_steps=(False, 10)),
        TypeError,
        "`profile_steps` ((False, 10)) must be two global steps ... False is not an integer",
    ),
    "profile_steps are in the wrong order": (
        lambda s: s.configured(profile_steps=(110, 100)),
        ValueError,
        "`profile_steps` ((110, 100)) must be two global steps, the first below the second",
    ),
    "profile_steps are the same step": (
        lambda s: s.configured(profile_steps=(10, 10)),
        ValueError,
        "`profile_steps` ((10, 10)) must be two global steps, the first below the second",
    ),
    "profile_steps begin before the first step": (
        lambda s: s.configured(profile_steps=(-1, 10)),
        ValueError,
        "`profile_steps` ((-1, 10)) must be two global steps",
    ),
    "steps and max_steps of explain": (
        lambda s: s.model().explain(steps=5, max_steps=10),
        ValueError,
        "`steps` (5) and `max_steps` (10) exclude each other",
    ),
    "steps of explain is a string": (
        lambda s: s.model().explain(steps="5"),
        TypeError,
        "`steps` ('5') must be an integer, or None",
    ),
    "max_steps of explain is zero": (
        lambda s: s.model().explain(max_steps=0),
        ValueError,
        "`max_steps` (0) must be at least 1",
    ),
    "explain of a GPU that is not there": (
        lambda s: s.configured(
            train_distribute=tf.distribute.OneDeviceStrategy("/gpu:7")
        ).explain(),
        ValueError,
        "The strategy (< ... names the device ... GPU:7 ... this machine has no GPU",
    ),
    "session_config is a dict": (
        lambda s: s.configured(session_config={"device_count": 2}),
        TypeError,
        "`session_config` ({'device_count': 2}) must be a ConfigProto",
    ),
    "replace of an unknown field": (
        lambda s: s.model().config.replace(save_checkpoint_steps=10),
        ValueError,
        "`save_checkpoint_steps` is not a field of RunConfig. Did you mean "
        "'save_checkpoints_steps'?",
    ),
    "train_distribute names GPUs that are not there": (
        lambda s: s.train(
            config=est.RunConfig(train_distribute=tf.distribute.OneDeviceStrategy("/gpu:7")),
        ),
        ValueError,
        "The strategy (< ... names the device ... GPU:7 ... this machine has no GPU. Name existing "
        'devices, such as "/cpu:0", or let RunConfig(strategy="mirrored"',
    ),
}
