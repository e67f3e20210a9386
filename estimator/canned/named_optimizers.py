"""Optimizers that a model takes by name: their slots have the names of tf.estimator 2.15.

2.15 used Keras's optimizers of that time, whose slots are `training/Adagrad/<variable>/accumulator`
and so on (with n heads `training_n/...`), and whose hyperparameters are variables. Training
therefore resumes with the checkpoint's learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.heads.head import Head

V1 = tf.compat.v1


class _Named:
    """Makes the slots and hyperparameters of a v1 optimizer under Keras's names."""

    keras_name: str
    hyper: dict[str, float]
    counts_itself = False  # Whether a variable of its own, not the global step, counts its steps.
    scope = "training"

    def count(self) -> tf.Variable:
        """Returns the number of its steps so far."""
        if not self.counts_itself:
            return V1.train.get_or_create_global_step()
        with V1.variable_scope(f"{self.scope}/{self.keras_name}", reuse=V1.AUTO_REUSE):
            zero = V1.zeros_initializer()
            return V1.get_variable("iter", [], tf.int64, initializer=zero, trainable=False)

    def _hyper(self, name: str) -> tf.Variable:
        with V1.variable_scope(f"{self.scope}/{self.keras_name}", reuse=V1.AUTO_REUSE):
            return V1.get_variable(name, initializer=float(self.hyper[name]), trainable=False)

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for name in self.hyper:
            self._hyper(name)
        self.count()
        self._create_own_slots(var_list)

    def _create_own_slots(self, var_list: Sequence[tf.Variable]) -> None:
        super()._create_slots(var_list)  # type: ignore[misc]

    def _finish(self, update_ops: Sequence[Any], name_scope: str | None) -> tf.Operation:
        with tf.control_dependencies(update_ops):
            counted = [self.count().assign_add(1)] if self.counts_itself else []
        return tf.group(*update_ops, *counted, name=name_scope)

    def _prepare(self) -> None:
        # TensorFlow's optimizers keep the rate under one of these names.
        self._learning_rate = self._lr = self._hyper("learning_rate").read_value()
        super()._prepare()  # type: ignore[misc]

    def _zeros_slot(self, var: tf.Variable, slot_name: str, op_name: str) -> tf.Variable:
        with V1.variable_scope(f"{self.scope}/{self.keras_name}"):
            return super()._zeros_slot(var, slot_name, slot_name)  # type: ignore[misc]

    def _get_or_make_slot_with_initializer(
        self, var: tf.Variable, initializer: Any, shape: Any, dtype: Any, *names: str
    ) -> tf.Variable:
        slot_name = names[0]
        keras_name = {"accum": "accumulator"}.get(slot_name, slot_name)
        with V1.variable_scope(f"{self.scope}/{self.keras_name}"):
            return super()._get_or_make_slot_with_initializer(  # type: ignore[misc]
                var, initializer, shape, dtype, slot_name, keras_name
            )


class Adagrad(_Named, tf.compat.v1.train.AdagradOptimizer):
    """Adagrad."""

    keras_name = "Adagrad"

    def __init__(self, learning_rate: float) -> None:
        """Makes no variables."""
        self.hyper = {"learning_rate": learning_rate, "decay": 0.0}
        super().__init__(learning_rate, initial_accumulator_value=0.1)


class Ftrl(_Named, tf.compat.v1.train.FtrlOptimizer):
    """FTRL."""

    keras_name = "Ftrl"

    def __init__(self, learning_rate: float) -> None:
        """Makes no variables."""
        self.hyper = {
            "learning_rate": learning_rate,
            "decay": 0.0,
            "learning_rate_power": -0.5,
            "l1_regularization_strength": 0.0,
            "l2_regularization_strength": 0.0,
            "beta": 0.0,
        }
        super().__init__(learning_rate)


class SGD(_Named, tf.compat.v1.train.GradientDescentOptimizer):
    """Gradient descent."""

    keras_name = "SGD"

    def __init__(self, learning_rate: float) -> None:
        """Makes no variables."""
        self.hyper = {"learning_rate": learning_rate, "decay": 0.0, "momentum": 0.0}
        super().__init__(learning_rate)


class Adam(_Named, tf.compat.v1.train.AdamOptimizer):
    """Adam; counts the global step's steps."""

    keras_name = "Adam"

    def __init__(self, learning_rate: float) -> None:
        """Makes no variables."""
        self.hyper = {"learning_rate": learning_rate, "decay": 0.0, "beta_1": 0.9, "beta_2": 0.999}
        super().__init__(learning_rate, epsilon=1e-7)

    def _create_own_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "m", "m")
            self._zeros_slot(variable, "v", "v")

    def _prepare(self) -> None:
        super()._prepare()
        step = tf.cast(self.count() + 1, tf.float32)
        self._powers = tf.pow(0.9, step), tf.pow(0.999, step)

    def _get_beta_accumulators(self) -> Any:
        return self._powers


class RMSProp(_Named, tf.compat.v1.train.Optimizer):
    """RMSProp as in Keras: epsilon is outside of the root, and statistics start at zero."""

    keras_name = "RMSprop"
    _rho, _epsilon = 0.9, 1e-7

    def __init__(self, learning_rate: float) -> None:
        """Makes no variables."""
        self.hyper = {"learning_rate": learning_rate, "decay": 0.0, "rho": 0.9, "momentum": 0.0}
        super().__init__(use_locking=False, name="RMSprop")

    def _create_own_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for variable in var_list:
            self._zeros_slot(variable, "rms", "rms")

    def _resource_apply_dense(self, grad: tf.Tensor, handle: tf.Variable) -> tf.Operation:
        slot = self.get_slot(handle, "rms")
        rms = slot * self._rho + tf.square(grad) * (1 - self._rho)
        step = self._lr * grad / (tf.sqrt(rms) + self._epsilon)
        return tf.group(slot.assign(rms), handle.assign_sub(step))

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        slot = self.get_slot(handle, "rms")
        squares = tf.IndexedSlices(tf.square(grad) * (1 - self._rho), indices)
        rms = slot.assign(slot * self._rho)
        with tf.control_dependencies([rms]):
            rms = slot.scatter_add(squares)
        with tf.control_dependencies([rms]):
            step = self._lr * grad / (tf.sqrt(tf.gather(slot, indices)) + self._epsilon)
        return tf.group(handle.scatter_sub(tf.IndexedSlices(step, indices)))


def make_named(name: str, learning_rate: float, head: Head, *, before: Sequence[Any]) -> Any:
    """Returns the optimizer of a name; those `before` it in the model have the global step."""
    optimizer = NAMED[name](learning_rate)
    optimizer.counts_itself = bool(before)
    optimizer.scope = head.training_scope or optimizer.scope
    scopes = [getattr(one, "keras_name", None) or _tf.legacy_name(one) for one in before]
    if optimizer.keras_name in scopes:
        optimizer.keras_name += "_1"
    return optimizer


NAMED = {"Adagrad": Adagrad, "Adam": Adam, "Ftrl": Ftrl, "RMSProp": RMSProp, "SGD": SGD}
