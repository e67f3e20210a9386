"""A Keras optimizer that is passed as an object trains as it would in the program's own graph."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

LEGACY_SGD = tf_keras.optimizers.legacy.SGD
SGD = tf.keras.optimizers.SGD


def warm_up(step):
    """The learning rate of a step: 0.05, and 0.1 from the next one on."""
    return 0.1 * tf.minimum(1.0, tf.cast(step + 1, tf.float32) / 2.0)


class WarmUp(tf_keras.optimizers.schedules.LearningRateSchedule):
    """A schedule without a config."""

    def __call__(self, step):
        return warm_up(step)


class KerasWarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that is not registered with Keras."""

    def __call__(self, step):
        return warm_up(step)

    def get_config(self):
        return {}


class Scaled(LEGACY_SGD):
    """An optimizer with an argument that its config lacks."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(0.1, name="Scaled", **kwargs)
        self.factor = factor

    def _resource_apply_dense(self, grad, var, apply_state=None):
        return super()._resource_apply_dense(grad * self.factor, var, apply_state)


class ScaledKeras(SGD):
    """The same of Keras 3."""

    def __init__(self, factor=1.0):
        super().__init__(0.1, name="scaled")
        self._factor = factor


def halved(grads_and_vars):
    return [(grad / 2, var) for grad, var in grads_and_vars]


def rate_of_global_step():
    return warm_up(tf.compat.v1.train.get_global_step())


def changed_later():
    optimizer = LEGACY_SGD(0.5)
    optimizer.learning_rate = 0.1
    optimizer.unrelated = object()
    return optimizer


# The optimizer, and its learning rates in the first two steps.
CASES = {
    "subclass": (lambda: Scaled(factor=0.5), (0.05, 0.05)),
    "subclass with its default": (Scaled, (0.1, 0.1)),
    "functions": (lambda: Scaled(gradient_transformers=[halved]), (0.05, 0.05)),
    "schedule": (lambda: LEGACY_SGD(WarmUp()), (0.05, 0.1)),
    "function of the rate": (lambda: LEGACY_SGD(rate_of_global_step), (0.05, 0.1)),
    "changed later": (changed_later, (0.1, 0.1)),
    "schedule of Keras 3": (lambda: SGD(KerasWarmUp()), (0.05, 0.1)),
}


@pytest.mark.each_value
@pytest.mark.parametrize(
    "strategy", [{}, *({"strategy": s, "num_replicas": 2} for s in ("mirrored", "central_storage"))]
)
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("loop_steps", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_has_all_that_the_object_has(name, loop_steps, wrap, strategy, tmp_path):
    make, rates = CASES[name]
    column = tf.feature_column.numeric_column("x")
    optimizer = est.CrossShardOptimizer(make()) if wrap else make()
    config = est.RunConfig(iterations_per_loop=loop_steps, **strategy)
    model = est.LinearRegressor([column], tmp_path, optimizer=optimizer, config=config)
    element = ({"x": [[1.0], [2.0]]}, [[1.0], [3.0]])
    for _ in range(2):  # Each graph has its own copy.
        model.train(lambda: tf.data.Dataset.from_tensors(element).repeat(), steps=2)

    x, labels = np.float32([[1, 1], [2, 1]]), np.float32([1, 3])
    weights = np.zeros(2, np.float32)
    for rate in (*rates, rates[1], rates[1]):
        weights -= rate * 2 * x.T @ (x @ weights - labels) / 2
    names = ("x/weights", "bias_weights")
    trained = [model.get_variable_value(f"linear/linear_model/{name}").item() for name in names]
    np.testing.assert_allclose(trained, weights, rtol=1e-5)


def test_an_optimizer_whose_config_lacks_an_argument_is_refused():
    columns = [tf.feature_column.numeric_column("x")]
    est.LinearRegressor(columns, optimizer=ScaledKeras)
    with pytest.raises(ValueError, match="what its `get_config` returns lacks 'factor'. Return i"):
        est.LinearRegressor(columns, optimizer=ScaledKeras(factor=0.25))
