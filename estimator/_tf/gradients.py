"""How an optimizer reduces gradients over replicas."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.training import optimizer as _v1_optimizer

_thread = threading.local()


@contextlib.contextmanager
def gradient_reduction(reduction: str) -> Iterator[None]:
    """Inside, on this thread, optimizers reduce over replicas by `reduction`: "mean" or "sum"."""
    before = getattr(_thread, "reduction", None)
    _thread.reduction = reduction
    try:
        yield
    finally:
        _thread.reduction = before


@contextlib.contextmanager
def mean_gradients(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, every optimizer applies the mean over the replicas of `strategy`, not the sum.

    v1 and Keras optimizers sum gradients over replicas, and expect that somebody scaled the loss.
    A plain optimizer in a `model_fn` knows nothing of replicas, so its gradients are scaled where
    they enter the sum. The places are methods of TensorFlow and Keras classes, replaced while one
    graph is built (builds hold a lock) and for the replicas of that one strategy only.
    Optimizer.apply_gradients 2.16 to 2.21; TFOptimizer since Keras 3.0; tf-keras 2.16 to 2.21.
    """
    num_replicas = strategy.num_replicas_in_sync

    def scale(grads_and_vars: Any) -> list:
        grads_and_vars = list(grads_and_vars)
        is_ours = tf.distribute.get_strategy() is strategy
        if num_replicas == 1 or not is_ours or tf.distribute.in_cross_replica_context():
            return grads_and_vars
        factor = 1.0 if _reduction() == "sum" else 1.0 / num_replicas
        return [(scaled(grad, factor), var) for grad, var in grads_and_vars]

    with contextlib.ExitStack() as stack:
        for owner, name, is_method in _gradient_sums():
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            if owner is _v1_optimizer.Optimizer:
                original = _also_across_replicas(original)
            setattr(owner, name, _with_scaled_gradients(original, scale, is_method))
        yield


def _also_across_replicas(apply_gradients: Callable) -> Callable:
    """A v1 optimizer's `apply_gradients`, also where no replica is current: one for all of them.

    There it raises, and `_distributed_apply`, which it names instead, sums over replicas: each is
    given its part of the gradient.
    """

    def apply(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not (tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()):
            return apply_gradients(self, grads_and_vars, *args, **kwargs)
        strategy = tf.distribute.get_strategy()
        factor = 1.0 / strategy.num_replicas_in_sync
        parts = []
        for grad, var in grads_and_vars:
            if grad is not None:
                part = scaled(grad, factor)
                parts.append((_on_each_replica(strategy, part), var))
        return self._distributed_apply(strategy, parts, *args, **kwargs)

    return apply


def _on_each_replica(strategy: tf.distribute.Strategy, value: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda _: value)


def _reduction() -> str:
    """Says "sum" where a CrossShardOptimizer asks for it or the last v1 loss was itself a sum."""
    asked = getattr(_thread, "reduction", None)
    if asked is None:
        last = last_loss_reduction(tf.compat.v1.get_default_graph())
        return "sum" if last == tf.compat.v1.losses.Reduction.SUM else "mean"
    return asked


def last_loss_reduction(graph: tf.Graph) -> str | None:
    """The `reduction` of the last `tf.compat.v1.losses` call in `graph`, else None (2.16)."""
    return graph._last_loss_reduction


def _gradient_sums() -> Iterator[tuple[Any, str, bool]]:
    yield _v1_optimizer.Optimizer, "apply_gradients", True
    if keras := sys.modules.get("keras.src.backend.tensorflow.optimizer"):
        yield keras.TFOptimizer, "_all_reduce_sum_gradients", True
    if tf_keras := sys.modules.get("tf_keras.src.optimizers.utils"):
        yield tf_keras, "all_reduce_sum_gradients", False


def _with_scaled_gradients(original: Callable, scale: Callable, is_method: bool) -> Callable:
    if is_method:

        def method(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, scale(grads_and_vars), *args, **kwargs)

        return method

    def function(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        return original(scale(grads_and_vars), *args, **kwargs)

    return function


def scaled(grad: Any, factor: float) -> Any:
    """A gradient (a tensor, IndexedSlices or None) times a factor, to be summed over replicas."""
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(grad.values, factor), grad.indices, grad.dense_shape)
    # An all-reduce looks for the variables behind what it sums, up to the first op without a
    # gradient, and fails on those of other replicas.
    return tf.stop_gradient(grad * tf.cast(factor, grad.dtype))
