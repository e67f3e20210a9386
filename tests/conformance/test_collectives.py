"""Replicas that reduce by collectives, as several GPUs do, train as those that do not.

A MirroredStrategy of CPUs that is made eagerly reduces so, too. Each model here made TensorFlow's
own reduction fail or wait for ever in a session.
"""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.forked import run_text

V1 = tf.compat.v1
ROWS = np.random.RandomState(3).randint(0, 40, size=[64, 6])


class OwnMomentum(V1.train.Optimizer):
    """Writes weights and a state of its own in `apply_gradients`, as BERT's optimizer does."""

    def __init__(self):
        super().__init__(False, "OwnMomentum")

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for gradient, variable in grads_and_vars:
            momentum = V1.get_variable(
                f"{variable.op.name}/momentum",
                variable.shape,
                initializer=V1.zeros_initializer(),
                trainable=False,
            )
            new = 0.9 * momentum + gradient
            updates += [variable.assign(variable - 0.1 * new), momentum.assign(new)]
        return tf.group(*updates)


def rows_of_any_number(features, labels, mode):
    table = V1.get_variable("table", [40, 3])
    rows = tf.boolean_mask(features["rows"], features["rows"] % 3 > 0)
    loss = tf.reduce_mean((tf.nn.embedding_lookup(table, rows) - 1.0) ** 2)
    optimizer = V1.train.GradientDescentOptimizer(0.5)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def several_dtypes(features, labels, mode):
    means = tf.reduce_mean(tf.cast(features["rows"], tf.float64))
    loss = 0.0
    for number, dtype in enumerate([tf.float32, tf.float64, tf.float32, tf.float16]):
        weight = V1.get_variable(f"weight_{number}", [2], dtype, V1.zeros_initializer())
        loss += tf.reduce_sum(tf.cast((weight - tf.cast(means, dtype) / 40) ** 2, tf.float32))
    optimizer = V1.train.GradientDescentOptimizer(0.25)
    train_op = optimizer.minimize(loss, V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def rows_of_unknown_rank(features, labels, mode):
    table = V1.get_variable("table", [40, 3])
    rows = tf.boolean_mask(features["rows"], features["rows"] % 3 > 0)
    values = V1.placeholder_with_default(tf.ones([tf.size(rows), 3]) / 8, None)
    gradient = tf.IndexedSlices(values, rows, None)
    optimizer = V1.train.GradientDescentOptimizer(0.5)
    train_op = optimizer.apply_gradients([(gradient, table)], V1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=tf.reduce_mean(table), train_op=train_op)


def gathered_rows_of_any_number(features, labels, mode):
    spec = rows_of_any_number(features, labels, mode)
    is_odd = tf.reduce_any(features["rows"][:, :1] % 2 > 0, axis=1)
    kept = tf.boolean_mask(tf.cast(features["rows"], tf.float32), is_odd)
    every = tf.distribute.get_replica_context().all_gather(kept, axis=0)
    assert every.shape.as_list() == [None, 6]
    sums = V1.get_variable(
        "sums",
        [6],
        initializer=V1.zeros_initializer(),
        trainable=False,
        aggregation=tf.VariableAggregation.MEAN,
    )
    update = sums.assign_add(tf.reduce_sum(every, axis=0))
    return spec._replace(train_op=tf.group(spec.train_op, update))


def an_optimizer_that_writes_weights(features, labels, mode):
    weight = V1.get_variable("weight", [6, 2])
    loss = tf.reduce_mean((tf.cast(features["rows"], tf.float32) @ weight / 40.0 - 1.0) ** 2)
    optimizer = est.tpu.CrossShardOptimizer(OwnMomentum())
    step = V1.train.get_global_step()
    gradients = zip(tf.gradients(loss, [weight]), [weight], strict=True)
    train_op = tf.group(optimizer.apply_gradients(gradients), step.assign(step + 1))
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def a_sum_that_one_replica_reads(features, labels, mode):
    spec = rows_of_any_number(features, labels, mode)
    context = tf.distribute.get_replica_context()
    mean = tf.reduce_mean(tf.cast(features["rows"], tf.float32))
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, mean)
    if tf.get_static_value(context.replica_id_in_sync_group) > 0:
        return spec
    with tf.control_dependencies([tf.debugging.assert_greater(total, 0.0)]):
        return spec._replace(train_op=tf.group(spec.train_op))


MODEL_FNS = {
    model_fn.__name__: model_fn
    for model_fn in (
        rows_of_any_number,
        rows_of_unknown_rank,
        gathered_rows_of_any_number,
        several_dtypes,
        an_optimizer_that_writes_weights,
        a_sum_that_one_replica_reads,
    )
}


def weights_after(model_fn, model_dir, loop, **strategy):
    """Trains 12 steps of 2 examples on each of 2 replicas; the weights by their names."""
    config = cases.make_config(iterations_per_loop=loop, tf_random_seed=5, **strategy)
    model = est.Estimator(MODEL_FNS[model_fn], str(model_dir), config)
    model.train(lambda: tf.data.Dataset.from_tensor_slices({"rows": ROWS}).batch(2), steps=12)
    return {name: model.get_variable_value(name) for name in model.get_variable_names()}


PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
from tests.conformance import test_collectives as tests
two_cpus = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two_cpus)
strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
for loop in 1, 4:
    folder = f"{sys.argv[2]}/{loop}"
    trained = tests.weights_after(sys.argv[1], folder, loop, train_distribute=strategy)
    np.savez(f"{folder}.npz", **trained)
"""


@pytest.mark.parametrize("model_fn", MODEL_FNS)
def test_the_weights_are_those_without_collectives(model_fn, tmp_path):
    expected = weights_after(model_fn, tmp_path / "ops", 1, strategy="mirrored", num_replicas=2)
    run_text(PROGRAM, model_fn, tmp_path)  # A collective that waits for ever ends with it.
    for loop in (1, 4):
        trained = np.load(tmp_path / f"{loop}.npz")
        assert set(trained) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(trained[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
