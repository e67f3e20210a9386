"""Rows for `test_bad_input`: accumulation, clipping, and which batch a replica gets."""

from __future__ import annotations

import tensorflow as tf

import estimator as est
from tests.bad_input.stage import V1, batches, dataset, linear


def _wrapped(**arguments):
    return est.tpu.CrossShardOptimizer(V1.train.GradientDescentOptimizer(0.1), **arguments)


def _accumulating(build_train_op, sizes=(2,)):
    """A model_fn with an optimizer a size, each of a weight of its own."""

    def model_fn(features, labels, mode):
        losses = [tf.square(V1.get_variable(f"w{i}", [])) for i in range(len(sizes))]
        minimizers = [
            (
                lambda step, size=size, loss=loss: _wrapped(accumulate_steps=size).minimize(
                    loss, step
                )
            )
            for size, loss in zip(sizes, losses, strict=True)
        ]
        step = V1.train.get_global_step()
        return est.EstimatorSpec(
            mode, loss=tf.add_n(losses), train_op=build_train_op(minimizers, step)
        )

    return model_fn


def _train_dealt(stage, kind, input_fn=None, model_fn=linear, **arguments):
    kind = getattr(est.tpu.InputPipelineConfig, kind)
    tpu_config = est.tpu.TPUConfig(1, per_host_input_for_training=kind)
    config = est.tpu.RunConfig(tpu_config, strategy="mirrored", num_replicas=2)
    model = stage.tpu_model(model_fn, config=config, **arguments)
    model.train(stage.watch("input_fn", input_fn or batches()), steps=1)


def _one_batch(size=2):
    return dataset(lambda data: data.unbatch().batch(size, drop_remainder=True))


OPTIMIZER = {
    "opt is the name of an optimizer": (
        lambda s: est.tpu.CrossShardOptimizer("adam"),
        TypeError,
        "`opt` ('adam') must be a tf.compat.v1.train.Optimizer or a Keras optimizer",
    ),
    "gradients are reduced in groups": (
        lambda s: _wrapped(group_assignment=[[0], [1]]),
        ValueError,
        "`group_assignment` ([[0], [1]]) is not supported: gradients are reduced over all replicas",
    ),
    "accumulate_steps is zero": (
        lambda s: _wrapped(accumulate_steps=0),
        ValueError,
        "`accumulate_steps` (0) must be at least 1",
    ),
    "accumulate_steps is a share": (
        lambda s: _wrapped(accumulate_steps=0.5),
        TypeError,
        "`accumulate_steps` (0.5) must be an integer",
    ),
    "clip_norm is zero": (
        lambda s: _wrapped(clip_norm=0),
        ValueError,
        "`clip_norm` (0) must be positive",
    ),
    "clip_norm is a string": (
        lambda s: _wrapped(clip_norm="1"),
        TypeError,
        "`clip_norm` ('1') must be a number",
    ),
    "device_fn is a device": (
        lambda s: s.configured(device_fn="/cpu:0"),
        TypeError,
        "`device_fn` ('/cpu:0') must be a function of exactly one argument, `op`, that returns",
    ),
    "device_fn takes a node": (
        lambda s: s.configured(device_fn=lambda node: "/cpu:0"),
        ValueError,
        "`device_fn` ( ... must be a function of exactly one argument, `op`",
    ),
    "protocol is unknown": (
        lambda s: s.configured(protocol="http"),
        ValueError,
        "`protocol` ('http') is unknown. ... 'grpc'",
    ),
    "experimental_max_worker_delay_secs is negative": (
        lambda s: s.configured(experimental_max_worker_delay_secs=-1),
        ValueError,
        "`experimental_max_worker_delay_secs` (-1) must be at least 0",
    ),
}

OPTIMIZER_MODEL = {
    "no optimizer that accumulates is given the step": (
        lambda s: s.train(
            _accumulating(lambda ops, step: tf.group(ops[0](None), step.assign_add(1)))
        ),
        ValueError,
        "`accumulate_steps` (2) makes the global step count updates, but no optimizer that "
        "accumulates was given it. Pass `global_step=tf.compat.v1.train.get_global_step()`",
    ),
    "the step is counted with every batch too": (
        lambda s: s.train(
            _accumulating(lambda ops, step: tf.group(ops[0](step), step.assign_add(1)))
        ),
        ValueError,
        "but `train_op` advances it with every batch, too. ... and advance it nowhere else",
    ),
    "two optimizers count the step": (
        lambda s: s.train(
            _accumulating(lambda ops, step: tf.group([op(step) for op in ops]), sizes=(2, 3))
        ),
        ValueError,
        "but 2 optimizers that accumulate advance it. Pass ... of one CrossShardOptimizer",
    ),
}

PIPELINES = {
    "a batch of unknown size is cut": (
        lambda s: _train_dealt(s, "SLICED"),
        ValueError,
        "`input_fn` yields TensorSpec(shape=(None, 2) ... which cannot be split into 2 parts along "
        "dimension 0 (InputPipelineConfig.SLICED) ... `batch(size, drop_remainder=True)`",
    ),
    "a batch is no multiple of the parts": (
        lambda s: _train_dealt(s, "SLICED", _one_batch(3)),
        ValueError,
        "`input_fn` yields TensorSpec(shape=(3, 2) ... cannot be split into 2 parts",
    ),
    "batch_axis is too short": (
        lambda s: _train_dealt(s, "SLICED", _one_batch(), batch_axis=[0]),
        ValueError,
        "`batch_axis` ([0]) must name a dimension for each of the 2 tensors",
    ),
    "batch_axis is beyond the last dimension": (
        lambda s: _train_dealt(s, "SLICED", _one_batch(), batch_axis=[0, 1]),
        ValueError,
        "`input_fn` yields TensorSpec(shape=(2,) ... along dimension 1",
    ),
    "shards differ in what they hold": (
        lambda s: _train_dealt(
            s,
            "PER_SHARD_V1",
            lambda input_context: dataset(
                lambda data: data.map(
                    lambda x, y: ({"x": x}, y) if input_context.input_pipeline_id else (x, y)
                )
            )(),
        ),
        ValueError,
        "`input_fn` must yield the same structure for each replica "
        "(InputPipelineConfig.PER_SHARD_V1), but yields ( ... for one and ({'x' ... for another",
    ),
}
