"""AdamW with a rate for each layer, as Transformers are trained: lower layers change less."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class LayerwiseAdamW(tf.compat.v1.train.AdamOptimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2017), a factor for each variable.

    Matrices decay; vectors (biases, and the scales of normalizations) do not. What a weight loses
    in a step is its rate times `weight_decay`, so the decay follows the schedule and the factors.
    """

    def __init__(
        self,
        learning_rate: float | tf.Tensor,
        weight_decay: float,
        find_factor: Callable[[str], float] = lambda name: 1.0,
    ) -> None:
        """`find_factor` takes a variable's name and returns what its rate is multiplied by."""
        super().__init__(learning_rate, name="LayerwiseAdamW")
        self._weight_decay = weight_decay
        self._find_factor = find_factor

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        rate = tf.cast(self._lr_t, grad.dtype) * self._find_factor(var.name.split(":")[0])
        with tf.control_dependencies([grad]):  # The gradient is that of the weights before.
            is_matrix = len(var.shape) >= 2
            decays = [var.assign_sub(rate * self._weight_decay * var)] if is_matrix else []
        beta1_power, beta2_power = self._get_beta_accumulators()
        with tf.control_dependencies(decays):
            return tf.raw_ops.ResourceApplyAdam(
                var=var.handle,
                m=self.get_slot(var, "m").handle,
                v=self.get_slot(var, "v").handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=rate,
                beta1=self._beta1_t,
                beta2=self._beta2_t,
                epsilon=self._epsilon_t,
                grad=grad,
            )

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: Any, indices: tf.Tensor
    ) -> tf.Operation:
        """Updates all rows of an embedding, also those that no example had: all of them decay."""
        shape = tf.shape(handle, indices.dtype)
        dense = tf.scatter_nd(indices[:, tf.newaxis], grad, shape)
        return self._resource_apply_dense(dense, handle)
