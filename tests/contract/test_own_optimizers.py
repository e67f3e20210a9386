"""Optimizers of TensorFlow 1 that programs wrote themselves, with v1's variables and with v2's."""

import os

import numpy as np
import pytest

from tests.contract.names import TRAIN, tf, v1, v1est

tpu = v1est.tpu
X = np.float32([[0, 1], [1, 2], [2, 0], [1, 1]])
IDS = np.int64([0, 2, 2, 1])


class Signs(v1.train.Optimizer):
    """Has no methods for resource variables: moves a weight by the sign of its mean gradient."""

    def __init__(self, rate=0.125, name="Signs"):
        super().__init__(False, name)
        self.rate = rate

    def _create_slots(self, var_list):
        for v in var_list:
            self._zeros_slot(v, "mean", self._name)

    def _prepare(self):
        self.rate_t = tf.convert_to_tensor(self.rate, name="rate")

    def _apply_dense(self, grad, var):
        mean = self.get_slot(var, "mean")
        new = mean.assign(0.5 * mean + grad)
        rate = tf.cast(self.rate_t, var.dtype.base_dtype)
        return tf.group(v1.assign_sub(var, rate * tf.sign(new)), new)

    def _apply_sparse(self, grad, var):
        mean = self.get_slot(var, "mean")
        new = v1.scatter_add(mean, grad.indices, grad.values)
        with tf.control_dependencies([new]):
            moved = tf.sign(tf.gather(mean, grad.indices)) * self.rate_t
        return tf.group(v1.scatter_sub(var, grad.indices, moved), new)


class SignsOfAll(Signs):
    """Is given an id of a batch as often as it is there."""

    def _apply_sparse_duplicate_indices(self, grad, var):
        return v1.scatter_sub(var, grad.indices, grad.values * self.rate_t)


class Halving(v1.train.AdamOptimizer):
    """Changes the gradient, and leaves the rest to TensorFlow's optimizer."""

    def _apply_dense(self, grad, var):
        return super()._apply_dense(grad / 2 + 1, var)

    def _apply_sparse(self, grad, var):
        half = tf.IndexedSlices(grad.values / 2 + 1, grad.indices, grad.dense_shape)
        return super()._apply_sparse(half, var)


class Doubling(v1.train.GradientDescentOptimizer):
    def __init__(self):
        super().__init__(0.125)

    def _apply_dense(self, grad, var):
        return super()._apply_dense(grad * 2, var)

    def _apply_sparse_duplicate_indices(self, grad, var):
        twice = tf.IndexedSlices(grad.values * 2, grad.indices, grad.dense_shape)
        return super()._apply_sparse_duplicate_indices(twice, var)


OPTIMIZERS = {
    "own": Signs,
    "of duplicates": SignsOfAll,
    "of Adam": lambda: Halving(0.125),
    "of gradient descent": Doubling,
}


def model_fn(features, labels, mode, params):
    w = v1.get_variable("w", [2, 1], initializer=v1.ones_initializer(), constraint=params["within"])
    table = v1.get_variable("table", [3, 1], initializer=v1.zeros_initializer())
    y = tf.matmul(features["x"], w) + tf.gather(table, features["id"])
    loss = tf.reduce_mean(tf.square(y - 2))
    train_op = params["make"]().minimize(loss, v1.train.get_or_create_global_step())
    if mode != TRAIN:
        train_op = None
    return tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def input_fn(params):
    return tf.data.Dataset.from_tensors({"x": X, "id": IDS}).repeat()


def weights_of(path, make, loop=1, within=None):
    config = tpu.RunConfig(
        model_dir=os.fspath(path), tpu_config=tpu.TPUConfig(iterations_per_loop=loop)
    )
    params = {"make": make, "within": within}
    made = tpu.TPUEstimator(
        model_fn, None, config, params, use_tpu=False, train_batch_size=4, eval_batch_size=4
    )
    made.train(input_fn, steps=6)
    return {name: made.get_variable_value(name) for name in made.get_variable_names()}


# After six steps: the weights, and the rows of the table.
TRAINED = {
    "own": ([1.125, 0.75], [0.75, 0.125, -0.75]),
    "of duplicates": ([1.0, 0.75], [0.354654, 0.067177, -0.131397]),
    "of Adam": ([0.44166, 0.442152], [-0.737573, -0.735411, -0.705058]),
    "of gradient descent": ([1.01218, 0.820656], [0.615517, 0.088478, -0.258984]),
}


@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("case", OPTIMIZERS)
def test_methods_for_reference_variables_train(without_resource_variables, tmp_path, case, loop):
    trained = weights_of(tmp_path, OPTIMIZERS[case], loop)
    w, table = TRAINED[case]
    assert trained["w"].ravel() == pytest.approx(w, abs=1e-5)
    assert trained["table"].ravel() == pytest.approx(table, abs=1e-5)


def test_a_constraint_holds(without_resource_variables, tmp_path):
    trained = weights_of(tmp_path, Signs, within=lambda w: tf.minimum(w, 0.75))
    assert trained["w"].max() <= 0.75


class Counting(v1.train.Optimizer):
    """As Adam of TensorFlow 1.5: finds a variable of its own by the default graph."""

    def __init__(self):
        super().__init__(False, "Counting")

    def _power(self):
        return self._get_non_slot_variable("power", graph=v1.get_default_graph())

    def _create_slots(self, var_list):
        first = min(var_list, key=lambda v: v.name)
        self._create_non_slot_variable(initial_value=0.5, name="power", colocate_with=first)

    def _apply_dense(self, grad, var):
        return v1.assign_sub(var, 0.125 * self._power() * grad)

    _resource_apply_dense = _apply_dense

    def _resource_apply_sparse(self, grad, var, indices):
        return v1.scatter_sub(var, indices, 0.125 * self._power() * grad)

    def _apply_sparse(self, grad, var):
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _finish(self, update_ops, name_scope):
        with tf.control_dependencies(update_ops):
            power = self._power()
            return tf.group(*update_ops, power.assign(power * 0.5), name=name_scope)


@pytest.mark.parametrize("loop", [1, 3])
def test_an_optimizer_finds_its_variable_by_the_default_graph(tmp_path, loop):
    assert weights_of(tmp_path, Counting, loop)["power"] == pytest.approx(0.5**7)
