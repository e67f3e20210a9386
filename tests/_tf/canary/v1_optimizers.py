"""Checks of `_tf`: optimizers that were written for the variables of TensorFlow 1."""

import tensorflow as tf

from estimator import _tf
from tests._tf.canary.rows import V1, checks


class OwnDescent(V1.train.GradientDescentOptimizer):
    """Has methods for reference variables only."""

    def _apply_dense(self, grad, var):
        return super()._apply_dense(grad * 2, var)

    def _apply_sparse_duplicate_indices(self, grad, var):
        return V1.scatter_sub(var, grad.indices, grad.values * 3)


@checks("optimizers_as_in_v1")
def an_optimizer_for_reference_variables_updates_resource_variables():
    V1.disable_resource_variables()
    try:
        with tf.Graph().as_default() as graph, _tf.optimizers_as_in_v1():
            dense, sparse = (V1.Variable([[0.0], [0.0]], use_resource=True) for _ in range(2))
            rows = tf.IndexedSlices(tf.constant([[1.0], [1.0]]), tf.constant([1, 1]))
            pairs = [(tf.ones([2, 1]), dense), (rows, sparse)]
            step = OwnDescent(1.0).apply_gradients(pairs)
            initialize = V1.global_variables_initializer()
        with V1.Session(graph=graph) as session:
            session.run(initialize)
            session.run(step)
            assert session.run(dense).ravel().tolist() == [-2, -2]
            assert session.run(sparse).ravel().tolist() == [0, -6]
    finally:
        V1.enable_resource_variables()


@checks("non_slots_in_loops")
def a_non_slot_variable_is_found_from_a_loops_body():
    found = []
    with tf.Graph().as_default(), _tf.non_slots_in_loops():
        weight = V1.Variable(1.0, use_resource=True)
        optimizer = V1.train.GradientDescentOptimizer(1.0)
        power = optimizer._create_non_slot_variable(0.5, "power", weight)

        def body(i):
            graph = V1.get_default_graph()
            assert graph.building_function
            found.append(optimizer._get_non_slot_variable("power", graph=graph))
            found.append(optimizer._get_non_slot_variable("other", graph=graph))
            return i + 1

        tf.while_loop(lambda i: i < 2, body, [0])
    assert found[0] is power
    assert found[1] is None


@checks("gradients_not_gated")
def gradients_of_an_op_are_gated_only_for_reference_variables():
    def num_gates(use_resource, **gate):
        with tf.Graph().as_default() as graph, _tf.gradients_not_gated():
            weight = V1.get_variable("w", [2, 2], use_resource=use_resource)
            outputs = tf.matmul(tf.matmul([[1.0, 2.0]], weight), weight)
            V1.train.GradientDescentOptimizer(1.0).compute_gradients(outputs, **gate)
        return sum("tuple" in op.name for op in graph.get_operations())

    assert num_gates(True) == 0
    assert num_gates(True, gate_gradients=V1.train.Optimizer.GATE_GRAPH) > 0
    assert num_gates(False) > 0
