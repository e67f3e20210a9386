"""What resource variables are in programs that were written for the variables of TensorFlow 1."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.training import optimizer as v1_optimizer

from estimator._tf.graph import initialized_value
from estimator._tf.patches import Patch, patched, together

# The methods of a v1 optimizer for reference variables, and their counterparts.
_DENSE = ("_apply_dense",), ("_resource_apply_dense",)
_SPARSE = (
    ("_apply_sparse", "_apply_sparse_duplicate_indices"),
    ("_resource_apply_sparse", "_resource_apply_sparse_duplicate_indices"),
)


def variables_as_in_v1() -> Patch:
    """Inside, variables of a graph behave as in v1 if the program has disabled v2 behavior.

    `bool(variable)` is True: that of a resource variable would read it, and a graph tensor has no
    truth value. `variable.initialized_value()` works. Builds hold a lock. 2.16 to 2.21.
    """
    if tf.compat.v1.resource_variables_enabled():
        return contextlib.nullcontext()

    def is_true(original: Callable) -> Callable:
        return lambda self: original(self) if tf.executing_eagerly() else True

    owner = resource_variable_ops.BaseResourceVariable
    return together(
        [
            patched(owner, "__bool__", is_true),
            patched(owner, "initialized_value", lambda original: initialized_value),
        ]
    )


def optimizers_as_in_v1() -> Patch:
    """Inside, optimizers written for reference variables train if v2 behavior is disabled.

    TensorFlow calls `_resource_apply_dense` for a resource variable. If the optimizer's class
    implements `_apply_dense`, and only a base class that one, `_apply_dense` is called, which may
    call that of a base class in TensorFlow. Likewise for `_apply_sparse`. Builds hold a lock.
    training.optimizer 2.16 to 2.21.
    """
    if tf.compat.v1.resource_variables_enabled():
        return contextlib.nullcontext()
    processor = v1_optimizer._DenseResourceVariableProcessor
    by_own_methods = patched(processor, "update_op", _by_own_methods)
    on_resources = [patched(*methods) for methods in _stock_methods()]
    return together([by_own_methods, *on_resources])


def non_slots_in_loops() -> Patch:
    """Inside, a v1 optimizer finds its non-slot variables from a loop's body, too.

    Adam of TensorFlow 1.5, which programs have copied, looks for `beta1_power` in the default
    graph. There, that is the body, and variables are outside of it. Builds hold a lock.
    Optimizer._get_non_slot_variable 2.16 to 2.21.
    """

    def also_outside(original: Callable) -> Callable:
        def get(self: Any, name: str, graph: tf.Graph | None = None) -> Any:
            found = original(self, name, graph)
            while found is None and (graph := getattr(graph, "outer_graph", None)) is not None:
                found = original(self, name, graph)
            return found

        return get

    return patched(tf.compat.v1.train.Optimizer, "_get_non_slot_variable", also_outside)


def gradients_not_gated() -> Patch:
    """Inside, v1 optimizers do not make the gradients of an op wait for each other.

    By default (`GATE_OP`) they do, so that no update changes a variable that another gradient of
    the same op has yet to read. Only reference variables need that: of a resource variable, a
    gradient has the value that was read, and if it reads the variable again, as `tf.recompute_grad`
    does, the order of the step puts that before the update. `GATE_GRAPH` is left as it is. Builds
    hold a lock. training.optimizer 2.16 to 2.21.
    """

    def not_gated(original: Callable) -> Callable:
        gate_op, gate_none = v1_optimizer.Optimizer.GATE_OP, v1_optimizer.Optimizer.GATE_NONE

        @functools.wraps(original)
        def compute_gradients(
            self: Any,
            loss: Any,
            var_list: Any = None,
            gate_gradients: int = gate_op,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            variables = tf.compat.v1.global_variables()
            are_resources = all(map(resource_variable_ops.is_resource_variable, variables))
            if gate_gradients == gate_op and are_resources:
                gate_gradients = gate_none
            return original(self, loss, var_list, gate_gradients, *args, **kwargs)

        return compute_gradients

    return patched(tf.compat.v1.train.Optimizer, "compute_gradients", not_gated)


def _by_own_methods(original: Callable) -> Callable:
    """Wraps the update of a variable to call the methods that the optimizer's class implements."""

    def update_op(self: Any, optimizer: Any, gradient: Any) -> Any:
        methods = _SPARSE if isinstance(gradient, tf.IndexedSlices) else _DENSE
        own, counterparts = (_depth(type(optimizer), names) for names in methods)
        if tf.executing_eagerly() or own >= counterparts:
            return original(self, optimizer, gradient)
        return v1_optimizer._RefVariableProcessor(self.target()).update_op(optimizer, gradient)

    return update_op


def _depth(cls: type, names: tuple[str, ...]) -> int:
    """Returns how far up the nearest base class is that implements one of the methods."""
    return next(i for i, base in enumerate(cls.__mro__) if not vars(base).keys().isdisjoint(names))


def _stock_methods() -> Iterator[tuple[type, str, Callable]]:
    """Yields the class, name and replacement of TensorFlow's methods that subclasses may call."""
    base = tf.compat.v1.train.Optimizer
    for cls in {one for one in vars(tf.compat.v1.train).values() if isinstance(one, type)}:
        for name in (*_DENSE[0], *_SPARSE[0]):
            if issubclass(cls, base) and cls is not base and name in vars(cls):
                yield cls, name, _on_resources(getattr(cls, f"_resource{name}"))


def _on_resources(counterpart: Callable) -> Callable[[Callable], Callable]:
    def make(original: Callable) -> Callable:
        def apply(self: Any, gradient: Any, variable: Any) -> Any:
            if not resource_variable_ops.is_resource_variable(variable):
                return original(self, gradient, variable)
            if isinstance(gradient, tf.IndexedSlices):
                return counterpart(self, gradient.values, variable, gradient.indices)
            return counterpart(self, gradient, variable)

        return apply

    return make
