"""The names of ops, variables and summaries do not depend on the size of the loop."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.toy import events, weight_after

V1 = tf.compat.v1
LOOPS = pytest.mark.parametrize("loop", [1, 3])


def train(model_dir, model_fn, input_fn, loop):
    config = est.RunConfig(iterations_per_loop=loop, save_summary_steps=3)
    model = est.Estimator(model_fn, str(model_dir), config)
    model.train(input_fn, max_steps=3)
    return model


def dataset():
    return tf.data.Dataset.from_tensor_slices(np.float32([1, 2, 3]))


def tensors():
    return tf.reduce_mean(tf.constant([2.0, 4.0]) + 1.0, name="mean")


def names_made(model_dir, input_fn, loop):
    names = []

    def model_fn(features, mode):
        graph = V1.get_default_graph()
        before = len(graph.get_operations())
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        x = tf.cast(features, tf.float32) + tf.constant(1.0) + tf.zeros([])
        loss = tf.reduce_mean(tf.where(tf.logical_and(x > 0, tf.equal(x, x)), x, -x)) * w
        V1.summary.scalar("w", w)
        train_op = V1.train.AdamOptimizer(0.1).minimize(loss, V1.train.get_global_step())
        kinds = ("Placeholder", "VarHandleOp")
        new = [op for op in graph.get_operations()[before:] if op.type not in kinds]
        names.extend(op.name for op in new if "/Initializer" not in op.name)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    train(model_dir, model_fn, input_fn, loop)
    return set(names)


@pytest.mark.parametrize("input_fn", [dataset, tensors])
def test_an_op_of_model_fn_has_the_same_name_in_a_loop(input_fn, tmp_path):
    alone, in_loop = (names_made(tmp_path / str(n), input_fn, n) for n in (1, 3))
    assert len(in_loop) > 30
    assert in_loop - alone == set()
    assert {"LogicalAnd", "Equal", "zeros", "w_1"} <= in_loop


def tensors_of_an_iterator():
    return V1.data.make_one_shot_iterator(dataset()).get_next()


@LOOPS
@pytest.mark.parametrize(
    ("input_fn", "expected"),
    [
        (dataset, ["IteratorGetNext", "IteratorGetNext_1"]),
        (tensors_of_an_iterator, ["input/IteratorGetNext", "IteratorGetNext"]),
    ],
)
def test_a_batch_of_a_dataset_has_the_name_that_it_has_alone(input_fn, expected, loop, tmp_path):
    """K-FAC names variables after it, and makes an iterator of its own."""
    names = []

    def model_fn(features, mode):
        own = V1.data.make_one_shot_iterator(tf.data.Dataset.range(9)).get_next()
        names.extend([features.op.name, own.op.name])
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        train_op = V1.train.GradientDescentOptimizer(1.0).minimize(
            w * features, V1.train.get_global_step()
        )
        return est.EstimatorSpec(mode, loss=w * features, train_op=train_op)

    train(tmp_path, model_fn, input_fn, loop)
    assert names == expected


@LOOPS
def test_the_tag_of_a_summary_is_counted_on_from_the_names_of_variables(loop, tmp_path):
    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        V1.summary.scalar("w", w)
        V1.summary.scalar("global_step", V1.train.get_global_step())
        with V1.variable_scope("layer"):
            V1.summary.scalar("v", V1.get_variable("v", [], initializer=V1.ones_initializer()))
        train_op = V1.train.get_global_step().assign_add(1)
        return est.EstimatorSpec(mode, loss=features, train_op=train_op)

    model = train(tmp_path, model_fn, dataset, loop)
    tags = {tag for _, tag, _ in events(model.model_dir)}
    assert tags == {"loss", "w_1", "global_step_1", "layer/v_1"}


@LOOPS
def test_a_variable_named_like_an_op_before_it_is_found_in_the_checkpoint(loop, tmp_path):
    """TensorFlow names it w_1, in evaluation as well."""

    def model_fn(features, mode):
        features = tf.identity(features, "w")
        w = V1.get_variable("w", [], initializer=V1.zeros_initializer())
        loss = tf.square(w - features) / 2
        step = V1.train.get_global_step()
        train_op = V1.train.GradientDescentOptimizer(0.25).minimize(loss, step)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op)

    model = train(tmp_path, model_fn, dataset, loop)
    w = weight_after([1, 2, 3])
    assert model.get_variable_value("w_1") == w
    loss = np.mean((w - np.float32([1, 2, 3])) ** 2) / 2
    assert model.evaluate(dataset)["loss"] == pytest.approx(loss)


@pytest.mark.usefixtures("v1_control_flow")
@LOOPS
def test_a_variable_made_in_a_cond_of_v1_has_the_name_of_its_scopes(loop, tmp_path):
    def model_fn(features, mode):
        w = V1.get_variable("w", [], initializer=V1.ones_initializer())
        optimizer = V1.train.AdamOptimizer(0.1)
        gradients = optimizer.compute_gradients(w * tf.reduce_mean(features))
        step = V1.train.get_global_step()

        def apply():
            with tf.name_scope("inner"):
                noted = tf.Variable(0.0, name="noted")
            V1.get_variable("got", [])
            with tf.control_dependencies([noted.assign_add(1.0)]):
                return tf.cond(w > -9, lambda: optimizer.apply_gradients(gradients), tf.no_op)

        with tf.name_scope("outer"):
            applied = tf.cond(tf.equal(step % 2, 0), apply, tf.no_op)
        with tf.control_dependencies([applied]):
            train_op = V1.assign_add(step, 1)
        return est.EstimatorSpec(mode, loss=w * 1.0, train_op=train_op)

    model = train(tmp_path, model_fn, lambda: dataset().batch(1), loop)
    beta = ["outer/cond/cond/beta1_power", "outer/cond/cond/beta2_power"]
    expected = ["w", "w/Adam", "w/Adam_1", "got", "outer/cond/inner/noted", "global_step", *beta]
    assert sorted(model.get_variable_names()) == sorted(expected)
    assert model.get_variable_value("outer/cond/inner/noted") == 2
