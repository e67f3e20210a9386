"""Small tensors that go from one task to another together, over real servers."""

import numpy as np
import pytest
import tensorflow as tf

from estimator.config.cluster import parse_tf_config
from estimator.rewrite.packing import pack_messages
from estimator.runtime.ps_placement import make_device_fn
from tests.integration.cluster import make_addresses, tf_config

V1 = tf.compat.v1
ADDRESSES = make_addresses(worker=1, ps=1)


# Not "module": a process that runs parts of this module at two times would start them twice.
@pytest.fixture(scope="session")
def target():
    spec = tf.train.ClusterSpec(ADDRESSES)
    servers = [tf.distribute.Server(spec, role, 0) for role in ("ps", "worker")]
    return servers[1].target


def variables(*shapes, dtype=tf.float32):
    return [
        V1.get_variable(f"v{i}", shape, dtype, V1.ones_initializer())
        for i, shape in enumerate(shapes)
    ]


def build_sgd():
    """Four weights to the worker, four gradients back, and what the optimizer is given."""
    v = variables([3], [2], [], [2, 2])
    loss = sum(tf.reduce_sum(value * value) for value in v)
    return V1.train.GradientDescentOptimizer(0.1).minimize(loss)


def build_adam():
    v = variables([3], [2])
    loss = sum(tf.reduce_sum(value * value) for value in v)
    return V1.train.AdamOptimizer(0.1).minimize(loss)


def build_large_and_small():
    """The large one goes by itself."""
    large, *small = variables([200, 100], [2], [3])
    loss = tf.reduce_sum(large**2) + sum(tf.reduce_sum(value**2) for value in small)
    return V1.train.GradientDescentOptimizer(0.1).minimize(loss)


def build_types():
    counts = variables([2], [3], dtype=tf.int64)
    with V1.variable_scope("float"):
        weights = variables([2], [3])
    updates = [V1.assign_add(v, v + tf.cast(tf.size(v), v.dtype)) for v in (*counts, *weights)]
    return tf.group(*updates)


def build_one_after_the_other():
    """The second weight's gradient is of what the first one is after its update."""
    first, second = variables([2], [2])
    optimizer = V1.train.GradientDescentOptimizer(0.1)
    update = optimizer.minimize(tf.reduce_sum(first**2), var_list=[first])
    with tf.control_dependencies([update]):
        loss = tf.reduce_sum(first.read_value() * second**2)
    return optimizer.minimize(loss, var_list=[second])


def build_counts_after_an_update():
    """TensorFlow lets the constant 1 alone wait for the update, not the op that adds it."""
    weight, count = variables([2], [])
    update = V1.train.GradientDescentOptimizer(0.1).minimize(
        tf.reduce_sum(weight**2), var_list=[weight]
    )
    with tf.control_dependencies([update]):
        return V1.assign_add(count, 1.0).op


def build_old_cond():
    """Of the branch that is not taken, there are no tensors."""
    first, second = variables([2], [3])
    V1.disable_control_flow_v2()
    try:
        chosen = tf.cond(
            tf.reduce_sum(first) > 0, lambda: tf.reduce_sum(first), lambda: tf.reduce_sum(second)
        )
    finally:
        V1.enable_control_flow_v2()
    return tf.group(V1.assign_add(first, tf.fill([2], chosen)), V1.assign_add(second, [1, 2, 3.0]))


def run(build, target, is_packed):
    """The variables after three steps, and the messages of the last."""
    cluster = parse_tf_config(tf_config(ADDRESSES, "worker", 0))
    with tf.Graph().as_default() as graph, V1.device(make_device_fn(cluster, "round_robin")):
        before = set(graph.get_operations())
        # The servers keep what has a name.
        with V1.variable_scope(build.__name__):
            step = build()
        if is_packed:
            pack_messages([op for op in graph.get_operations() if op not in before])
        with V1.Session(target, graph=graph) as session:
            session.run(V1.global_variables_initializer())
            options, metadata = V1.RunOptions(output_partition_graphs=True), V1.RunMetadata()
            session.run(step)
            session.run(step)
            session.run(step, options=options, run_metadata=metadata)
            values = session.run({v.name: v for v in V1.global_variables()})
    nodes = [node for partition in metadata.partition_graphs for node in partition.node]
    return values, sum(
        node.op == "_Recv" and node.attr["send_device"] != node.attr["recv_device"]
        for node in nodes
    )


@pytest.mark.parametrize(
    ("build", "plain", "packed"),
    [
        # Each weight twice, its gradient; and the rate, of which each task has its own.
        (build_sgd, 4 * 3 + 1, 2),
        # And four numbers of Adam.
        (build_adam, 2 * 3 + 4, 2),
        (build_large_and_small, 7, 4),
        (build_types, 8, 4),
        # First weight, its gradient, its new value with the second weight's, that one's gradient.
        (build_one_after_the_other, 7, 5),
        (build_counts_after_an_update, 5, 2),
        (build_old_cond, None, None),
    ],
)
def test_packed_messages_are_fewer_and_change_no_bit(build, plain, packed, target):
    values, num_messages = run(build, target, False)
    other_values, other_num_messages = run(build, target, True)
    assert values.keys() == other_values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(value, other_values[name], name)
    if plain is None:
        assert other_num_messages == num_messages
    else:
        assert (num_messages, other_num_messages) == (plain, packed)
