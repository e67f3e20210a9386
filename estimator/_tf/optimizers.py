"""Makes Keras optimizers work in a graph where they rely on eager execution."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator._tf.distribute import copies
from estimator._tf.graph import initialized_value, set_input
from estimator._tf.keras import variable_of
from estimator._tf.patches import patched

# The graph in which a program has last scaled a loss by an optimizer.
_scaled_in: weakref.WeakKeyDictionary[Any, weakref.ref[tf.Graph]] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def keras_optimizers_in_graphs() -> Iterator[None]:
    """Inside, Keras optimizers accept plain variables, and run per step what belongs to a step.

    - Muon and OptimizerMap use a variable's `path`, which only Keras's own variables have, and
      Adafactor names its variables after the model's, where a `/` is an error.
    - Until it is built, LossScaleOptimizer scales by a Python number. Eagerly that affects the
      first step only, but a graph would keep the number.
    - ScheduleFreeAdamW assigns variables in `build`; in a graph, each step would do so again.
    - Whether a program scales a loss by itself is noted for `scaled_loss`.
    - Nadam of tf-keras counts in Python how often the value that its variables share was computed.

    Builds hold a lock. keras.src.optimizers since Keras 3.3 (Muon and OptimizerMap: 3.10,
    ScheduleFreeAdamW: 3.13); tf-keras 2.16 to 2.21.
    """
    with contextlib.ExitStack() as stack:

        def replace(module: str, owner: str, name: str, make: Callable) -> None:
            place: Any = sys.modules.get(
                module if "." in module else f"keras.src.optimizers.{module}"
            )
            if owner:
                place = getattr(place, owner, None)
            if hasattr(place, name):
                stack.enter_context(patched(place, name, make))

        waiting: dict[int, list[tf.Operation]] = {}
        replace("base_optimizer", "BaseOptimizer", "add_variable", _of_any_name)
        replace("adafactor", "", "backend", _Backend)
        replace("muon", "Muon", "build", _giving_paths)
        replace("muon", "Muon", "_should_use_adamw", _of_path)
        replace("multi_optimizer", "OptimizerMap", "__call__", _of_path)
        replace("loss_scale_optimizer", "LossScaleOptimizer", "scale_loss", _scaling(waiting))
        replace("loss_scale_optimizer", "LossScaleOptimizer", "scale_loss", _noting_scaled)
        replace("base_optimizer", "BaseOptimizer", "scale_loss", _noting_scaled)
        replace("loss_scale_optimizer", "LossScaleOptimizer", "build", _building(waiting))
        replace("schedule_free_adamw", "ScheduleFreeAdamW", "build", _starting_at_weights)
        replace("tf_keras.src.optimizers.nadam", "Nadam", "build", _counting_in_graph)
        yield


def scaled_loss(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """Scales a loss for an optimizer that divides gradients by a scale, unless the program has.

    Those of Keras 3 take gradients only, so they scale no loss by themselves.
    """
    if not hasattr(optimizer, "scale_loss"):
        return loss
    graph = _scaled_in.get(optimizer)
    is_scaled = graph is not None and graph() is tf.compat.v1.get_default_graph()
    return loss if is_scaled else _scale(optimizer, loss)


def loss_scale(optimizer: Any) -> tf.Tensor | float:
    """Returns by what an optimizer divides the gradients that it is given."""
    return _scale(optimizer, tf.constant(1.0)) if hasattr(optimizer, "scale_loss") else 1.0


def _scale(optimizer: Any, value: tf.Tensor) -> tf.Tensor:
    """Scales a value by an optimizer; this is not noted as a call of the program."""
    noted = _scaled_in.get(optimizer)
    scaled = optimizer.scale_loss(value)
    if noted is None:
        _scaled_in.pop(optimizer, None)
    else:
        _scaled_in[optimizer] = noted
    return scaled


def _noting_scaled(original: Callable) -> Callable:
    def scale_loss(self: Any, loss: Any) -> Any:
        _scaled_in[self] = weakref.ref(tf.compat.v1.get_default_graph())
        return original(self, loss)

    return scale_loss


def copied_legacy_optimizer(optimizer: Any) -> Any:
    """Copies one of `tf_keras.optimizers.legacy`; returns None for others, or if it has variables.

    What `get_config` returns lacks what a subclass has added, and functions: those that transform
    gradients, and the function of a hyperparameter, of which it has a value. tf-keras 2.16 to 2.21.
    """
    own = vars(optimizer)
    hyperparameters = own.get("_hyper")
    if hyperparameters is None or own["_hypers_created"] or own["_iterations"] is not None:
        return None
    if any(map(tf.is_tensor, hyperparameters.values())):
        return None  # Of another graph, or of eager execution.
    copied = copy.copy(optimizer)
    # Optimizers keep what they make for a graph in containers.
    containers = {k: copy.copy(v) for k, v in own.items() if isinstance(v, dict | list | set)}
    vars(copied).update(containers)
    return copied


def legacy_name(optimizer: Any) -> str | None:
    """Returns the name of one of `tf_keras.optimizers.legacy`, a scope; None for others.

    `get_config` has it, too, and evaluates variables. tf-keras 2.16 to 2.21.
    """
    own = vars(optimizer)
    return own["_name"] if "_hyper" in own else None


def _starting_at_weights(original: Callable) -> Callable:
    def build(self: Any, var_list: Any) -> None:
        add = self.add_variable_from_reference

        def add_variable(reference: Any, name: Any = None, initializer: Any = "zeros") -> Any:
            if name == "momentum":
                first = copies(variable_of(reference))[0]

                def initializer(shape: Any, dtype: Any = None) -> tf.Tensor:
                    return tf.cast(initialized_value(first), dtype or first.dtype)

            return add(reference, name=name, initializer=initializer)

        object.__setattr__(self, "add_variable_from_reference", add_variable)
        object.__setattr__(self, "assign", lambda variable, value: None)
        try:
            original(self, var_list)
        finally:
            object.__delattr__(self, "add_variable_from_reference")
            object.__delattr__(self, "assign")

    return build


class _Made:
    """Replaces a count of steps: whether the value that is computed once a step exists yet."""

    def __init__(self, is_made: bool) -> None:
        self._is_made = is_made

    def __eq__(self, other: object) -> Any:
        return tf.constant(self._is_made)

    def __add__(self, other: int) -> _Made:
        return _Made(True)

    __hash__ = None  # type: ignore[assignment]


def _counting_in_graph(original: Callable) -> Callable:
    def build(self: Any, var_list: Any) -> None:  # Called by each `apply_gradients`.
        original(self, var_list)
        self._u_product_counter = _Made(False)

    return build


def _of_any_name(original: Callable) -> Callable:
    @functools.wraps(original)
    def make_variable(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        # The replacement that Keras itself makes in `add_variable_from_reference`.
        name = name and name.replace("/", "_").replace(":", "_")
        return original(*args, name=name, **kwargs)

    return make_variable


class _Backend:
    """Keras's backend, but with variables that accept any name."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.Variable = _of_any_name(backend.Variable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _of_path(original: Callable) -> Callable:
    def of_path(self: Any, variable: Any) -> Any:
        if isinstance(variable, tf.Variable):
            path = variable.name.partition(":")[0]
            variable = types.SimpleNamespace(path=path, shape=variable.shape)
        return original(self, variable)

    return of_path


def _giving_paths(original: Callable) -> Callable:
    def build(self: Any, var_list: Any) -> None:
        # Up to Keras 3.12 Muon looks up its slots by path in each step, for each copy separately.
        # The path is the whole name, because Keras derives the slots' names in checkpoints from it.
        for variable in var_list:
            if isinstance(variable, tf.Variable):
                for one in {id(v): v for v in (variable, *copies(variable))}.values():
                    one.path = variable.name
        original(self, var_list)

    return build


def _scaling(waiting: dict[int, list[tf.Operation]]) -> Callable:
    def make(original: Callable) -> Callable:
        def scale_loss(self: Any, loss: Any) -> Any:
            if self.built or tf.executing_eagerly():
                return original(self, loss)
            scale = tf.identity(tf.constant(self.initial_scale, tf.float32), "loss_scale")
            waiting.setdefault(id(self), []).append(scale.op)
            return loss * tf.cast(scale, loss.dtype)

        return scale_loss

    return make


def _building(waiting: dict[int, list[tf.Operation]]) -> Callable:
    reads: dict[Any, tf.Tensor] = {}  # By the variable's handle.

    def make(original: Callable) -> Callable:
        def build(self: Any, var_list: Any) -> None:
            original(self, var_list)
            for op in waiting.pop(id(self), []):
                with op.graph.as_default(), tf.control_dependencies(None):
                    read = tf.convert_to_tensor(self.dynamic_scale.value)
                    # If replicas share the variable, the first one may already have updated it, so
                    # all use the first read.
                    set_input(op, reads.setdefault(_handle_behind(read), read))

        return build

    return make


def _handle_behind(read: tf.Tensor) -> Any:
    op = read.op
    while op.type != "ReadVariableOp":
        op = op.inputs[0].op
    return op.inputs[0].ref()
