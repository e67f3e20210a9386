"""Changes how optimizers reduce gradients over replicas."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import values as _values
from tensorflow.python.framework import ops as _ops

from estimator._tf.keras_losses import last_loss_is_sum
from estimator._tf.patches import patched
from estimator._tf.replica_updates import (
    own_copies_noted,
    replicas_apart,
    synchronization_in_branches_explained,
)

_TF_KERAS = "tf_keras.src.optimizers.optimizer"
_TF_KERAS_SUMS = "tf_keras.src.optimizers.utils"
_LEGACY = "tf_keras.src.optimizers.legacy.optimizer_v2"
_thread = threading.local()


@contextlib.contextmanager
def gradient_reduction(reduction: str) -> Iterator[None]:
    """Inside, optimizers on this thread reduce gradients by `reduction`: "mean" or "sum"."""
    before = getattr(_thread, "reduction", None)
    _thread.reduction = reduction
    try:
        yield
    finally:
        _thread.reduction = before


@contextlib.contextmanager
def mean_gradients(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, every optimizer applies the mean over the replicas of `strategy`, not the sum.

    v1 and Keras optimizers sum gradients over replicas and expect a loss that is scaled for that.
    A plain `model_fn` does not scale its loss, so its gradients are scaled before they are summed.
    This replaces methods of TensorFlow and Keras classes while one graph is built (builds hold a
    lock), and affects only the replicas of that strategy.

    A v1 optimizer reduces gradients first. A Keras optimizer may clip them before, or reduce them
    in a branch, where replicas cannot wait for each other. So a Keras optimizer's gradients are
    reduced before its apply method runs. From there on, all replicas do the same, each to its own
    copies of the variables.
    Optimizer.apply_gradients 2.16 to 2.21; TFOptimizer since Keras 3.0; tf-keras 2.16 to 2.21.
    """
    num_replicas = strategy.num_replicas_in_sync

    def is_on_replica() -> bool:
        is_ours = tf.distribute.get_strategy() is strategy
        return is_ours and not tf.distribute.in_cross_replica_context()

    def scale(grads_and_vars: Any) -> list:
        grads_and_vars = list(grads_and_vars)
        if num_replicas == 1 or not is_on_replica():
            return grads_and_vars
        factor = 1.0 if _reduction() == "sum" else 1.0 / num_replicas
        return [(scaled(grad, factor), var) for grad, var in grads_and_vars]

    def reduce(grads: Sequence[Any]) -> list:
        there = [(grad, None) for grad in grads if grad is not None]
        if num_replicas == 1 or not there:
            return list(grads)
        parts = [part for part, _ in scale(there)]
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, parts)
        left = iter(sums)
        return [None if grad is None else next(left) for grad in grads]

    with contextlib.ExitStack() as stack:

        def patch(owner: Any, name: str, make: Callable, *bound: Callable) -> None:
            stack.enter_context(patched(owner, name, lambda original: make(original, *bound)))

        patch(tf.compat.v1.train.Optimizer, "apply_gradients", _scaled_first, scale)
        for owner, name in _keras_sums():
            patch(owner, name, _unless_reduced, scale)
        if legacy := sys.modules.get(_LEGACY):
            patch(legacy.OptimizerV2, "_aggregate_gradients", _by_name)
        for owner, name in _keras_apply_methods():
            patch(owner, name, _reduced_first, reduce, is_on_replica)
        patch(_ops, "_op_to_colocate_with", _beside_first_copy)
        stack.enter_context(replicas_apart(strategy, _is_applying_reduced))
        stack.enter_context(synchronization_in_branches_explained())
        stack.enter_context(own_copies_noted(_is_applying_reduced))
        stack.enter_context(_refusing_late_import())
        yield


@contextlib.contextmanager
def _refusing_late_import() -> Iterator[None]:
    """Raises ValueError if tf-keras is imported inside, and was not before."""
    was_imported = _TF_KERAS in sys.modules
    yield
    if _TF_KERAS in sys.modules and not was_imported:
        raise ValueError(
            "`model_fn` or `input_fn` imports tf_keras for the first time, when its optimizers "
            "can no longer be prepared for graphs and replicas. Import it at the top of the "
            "program, or set TF_USE_LEGACY_KERAS=1."
        )


def _beside_first_copy(original: Callable) -> Callable:
    """Lets ops be colocated with a mirrored variable in cross-replica context: with its first copy.

    TensorFlow reads the variable's handle, which raises an error there, as for the slots of
    ProximalAdagrad and AdagradDA (2.16 to 2.21).
    """

    def op_to_colocate_with(v: Any, graph: tf.Graph) -> Any:
        if isinstance(v, _values.DistributedVariable) and tf.distribute.in_cross_replica_context():
            v = v._get_on_device_or_primary()
        return original(v, graph)

    return op_to_colocate_with


def _is_applying_reduced() -> bool:
    """Returns whether this thread is in a Keras optimizer whose gradients are already reduced."""
    return getattr(_thread, "is_reduced", False)


def _reduced_first(
    original: Callable, reduce: Callable[[Sequence[Any]], list], is_on_replica: Callable[[], bool]
) -> Callable:
    """Wraps a Keras optimizer's method that applies gradients, to reduce the gradients first."""

    @functools.wraps(original)
    def apply_reduced(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_applying_reduced() or not is_on_replica():
            return original(self, *args, **kwargs)
        call = inspect.signature(original).bind(self, *args, **kwargs)
        name = list(call.arguments)[1]  # "grads" or "grads_and_vars"
        gradients = list(call.arguments[name])
        if original.__name__ == "apply":
            gradients = reduce(gradients)
        elif not _is_told_to_skip(call.arguments):
            grads = reduce([grad for grad, _ in gradients])
            gradients = [(g, var) for g, (_, var) in zip(grads, gradients, strict=True)]
        call.arguments[name] = gradients
        _thread.is_reduced = True
        try:
            return original(*call.args, **call.kwargs)
        finally:
            _thread.is_reduced = False

    return apply_reduced


def _is_told_to_skip(arguments: Mapping[str, Any]) -> bool:
    """Returns whether the caller of tf-keras's `apply_gradients` has reduced the gradients."""
    named = {**arguments, **arguments.get("kwargs", {})}
    skips = named.get("skip_gradients_aggregation", False)
    return skips or not named.get("experimental_aggregate_gradients", True)


def _scaled_first(original: Callable, scale: Callable) -> Callable:
    """Wraps a v1 optimizer's `apply_gradients` to scale the gradients first.

    In cross-replica context it raises an error that refers to `_distributed_apply`, which sums over
    replicas. So that is called instead, with each replica's part of the gradient.
    """

    @functools.wraps(original)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not (tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()):
            return original(self, scale(grads_and_vars), *args, **kwargs)
        strategy = tf.distribute.get_strategy()
        factor = 1.0 / strategy.num_replicas_in_sync
        parts = [
            (_on_each_replica(strategy, scaled(grad, factor)), var)
            for grad, var in grads_and_vars
            if grad is not None
        ]
        return self._distributed_apply(strategy, parts, *args, **kwargs)

    return apply_gradients


def _on_each_replica(strategy: tf.distribute.Strategy, value: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda _: value)


def _reduction() -> str:
    """Returns "sum" if a CrossShardOptimizer asks for it or the last loss is a sum."""
    asked = getattr(_thread, "reduction", None)
    if asked is None:
        return "sum" if last_loss_is_sum(tf.compat.v1.get_default_graph()) else "mean"
    return asked


def _keras_sums() -> Iterator[tuple[Any, str]]:
    """Yields the functions with which Keras sums gradients over replicas: owner and name."""
    if keras := sys.modules.get("keras.src.backend.tensorflow.optimizer"):
        yield keras.TFOptimizer, "_all_reduce_sum_gradients"
    if tf_keras := sys.modules.get(_TF_KERAS_SUMS):
        yield tf_keras, "all_reduce_sum_gradients"


def _keras_apply_methods() -> Iterator[tuple[Any, str]]:
    """Yields the methods of all Keras optimizer classes that apply gradients: owner and name."""
    roots = (
        ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
        (_TF_KERAS, "_BaseOptimizer", "apply_gradients"),
        (_LEGACY, "OptimizerV2", "apply_gradients"),
    )
    for module, root, name in roots:
        if module in sys.modules:
            owners = [getattr(sys.modules[module], root)]
            for owner in owners:
                owners.extend(set(owner.__subclasses__()).difference(owners))
                if name in owner.__dict__:
                    yield owner, name


def _unless_reduced(original: Callable, scale: Callable) -> Callable:
    """Wraps a function that sums gradients, to scale them first, or to skip reduced ones.

    Its last positional argument is the pairs of gradients and variables.
    """

    @functools.wraps(original)
    def all_reduce_sum_gradients(*args: Any, **kwargs: Any) -> Any:
        *first, grads_and_vars = args
        if _is_applying_reduced():
            return list(grads_and_vars)
        return original(*first, scale(grads_and_vars), **kwargs)

    return all_reduce_sum_gradients


def _by_name(original: Callable) -> Callable:
    """Has a legacy optimizer that was made before TensorFlow's sum was replaced use the new one."""

    def aggregate_gradients(self: Any, grads_and_vars: Any) -> Any:
        current = sys.modules[_TF_KERAS_SUMS].all_reduce_sum_gradients
        if inspect.unwrap(self.gradient_aggregator) is inspect.unwrap(current):
            return current(grads_and_vars)
        return original(self, grads_and_vars)

    return aggregate_gradients


def scaled(grad: Any, factor: Any) -> Any:
    """Returns a gradient (a tensor, IndexedSlices or None) times a factor, to sum over replicas."""
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(grad.values, factor), grad.indices, grad.dense_shape)
    # An all-reduce searches its inputs for variables, up to the first op without a gradient, and
    # fails if it finds another replica's.
    return tf.stop_gradient(grad * tf.cast(factor, grad.dtype))
