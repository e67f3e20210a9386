"""The collectives of a step of several workers, in the graph of one of them."""

import json

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.cluster.collectives import Workers, build_broadcast
from estimator.cluster.consensus import REPORT_SIZE
from estimator.config.cluster import parse_tf_config
from estimator.input.input_calls import get_input
from estimator.model.replicas import Model
from estimator.program.train_program import build_train_program
from estimator.runtime.strategy import make_runtime

V1 = tf.compat.v1
NUM_GRADIENTS = 4
LOOPS = pytest.mark.parametrize("loop", [1, 100])


def input_fn():
    return tf.data.Dataset.from_tensors(np.ones([3], np.float32)).repeat().batch(2)


def make_model_fn(dtype=tf.float32, shares_loss=False, keras=False, **options):
    """Two variables, so that gradients are packed, and what may change how they are reduced."""

    def model_fn(features, mode):
        w = V1.get_variable("w", [3], dtype, V1.zeros_initializer())
        b = V1.get_variable("b", [], dtype, V1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.cast(features, dtype) * w + b - 1))
        if shares_loss:
            context = tf.distribute.get_replica_context()
            loss = context.all_reduce(tf.distribute.ReduceOp.MEAN, loss)
        step = V1.train.get_global_step()
        if keras:
            optimizer = tf.keras.optimizers.SGD(0.1)
            optimizer.apply_gradients(zip(tf.gradients(loss, [w, b]), [w, b], strict=True))
            return est.EstimatorSpec(mode, loss=loss, train_op=step.assign_add(1))
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        if options:
            optimizer = est.tpu.CrossShardOptimizer(optimizer, **options)
        return est.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, step))

    return model_fn


def sizes_of_sums(model_fn, loop, num_replicas=1):
    """How many numbers each sum over the workers has that a step of one of two workers makes."""
    graphs = set()

    def noting_model_fn(features, mode):
        graphs.add(V1.get_default_graph())
        return model_fn(features, mode)

    task = {"type": "worker", "index": 1}
    tf_config = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": task}
    config = est.RunConfig(
        strategy="multi_worker_mirrored",
        num_replicas=num_replicas,
        cluster=parse_tf_config(json.dumps(tf_config)),
    )
    build_train_program(
        Model(noting_model_fn, {}, config),
        lambda: get_input(
            input_fn,
            mode="train",
            params={},
            config=config,
            input_context=None,
            lookahead=num_replicas,
        ).build(),
        make_runtime(config, "train"),
        iterations_per_loop=loop,
        nan_policy="raise",
    )
    (graph,) = graphs
    sums = [
        op
        for op in graph.get_operations()
        if op.type == "CollectiveReduceV2" and op.get_attr("merge_op") == b"Add"
    ]
    return [op.inputs[0].shape.num_elements() for op in sums]


@LOOPS
@pytest.mark.parametrize("options", [{}, {"keras": True}, {"reduction": "sum"}])
def test_a_step_has_one_collective_with_the_gradients_and_the_report(options, loop):
    assert sizes_of_sums(make_model_fn(**options), loop) == [NUM_GRADIENTS + REPORT_SIZE]


@LOOPS
def test_each_device_of_a_worker_has_the_same_collective(loop):
    sizes = sizes_of_sums(make_model_fn(), loop, num_replicas=2)
    assert sizes == [NUM_GRADIENTS + REPORT_SIZE] * 2


@LOOPS
def test_the_norm_that_clips_is_one_collective_more(loop):
    sizes = sizes_of_sums(make_model_fn(clip_norm=1.0), loop)
    assert sizes == [NUM_GRADIENTS + REPORT_SIZE] * 2


@LOOPS
def test_a_report_does_not_travel_with_what_its_own_loss_is_made_of(loop):
    """The loss, its gradient, and the gradients of the variables; the last has the report."""
    sizes = sizes_of_sums(make_model_fn(shares_loss=True), loop)
    assert sizes == [1 + REPORT_SIZE, 1 + REPORT_SIZE, NUM_GRADIENTS + REPORT_SIZE]


@LOOPS
def test_gradients_of_another_type_leave_the_report_a_collective_of_its_own(loop):
    assert sizes_of_sums(make_model_fn(tf.float64), loop) == [NUM_GRADIENTS, REPORT_SIZE]


def test_a_variable_of_a_type_that_workers_cannot_share_is_named():
    with tf.Graph().as_default():
        words = V1.get_variable("words", initializer=tf.constant(["a"]))
        with pytest.raises(NotImplementedError, match="words:0 is of type string, .* Keep it out"):
            build_broadcast(Workers(2, 1, ("worker 0", "worker 1")), [words])
