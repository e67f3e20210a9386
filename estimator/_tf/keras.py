"""Private parts of Keras 3 and tf-keras: constants, dtype policies, metrics, variables."""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training import checkpoint_utils as _checkpoint_utils

from estimator._tf.distribute import copies
from estimator._tf.patches import Patch, patched, together


def tf_keras_constants_in_graph() -> Patch:
    """Inside, a functional model of tf-keras keeps the constants of TensorFlow's ops as tensors.

    By default a session evaluates them in the graph around a loop, where those of a loop's body are
    not. `tf_keras.src.engine.base_layer_utils` 2.16 to 2.21.
    """
    utils = sys.modules.get("tf_keras.src.engine.base_layer_utils")
    if utils is None:
        return contextlib.nullcontext()
    return patched(utils, "_UNSAFE_GRAPH_OP_LAYER_CREATION", lambda original: True)


def tf_keras_updates_of_trained() -> Patch:
    """Inside, a layer of tf-keras that is frozen in a v1 graph makes no updates.

    Its property `updates` is empty then, so no program of TensorFlow 1 runs any, not even that of
    moving statistics. Updates that are ops already are made. tf-keras 2.16 to 2.21.
    """
    if "tf_keras" not in sys.modules:
        return contextlib.nullcontext()
    layers = importlib.import_module("tf_keras.src.engine.base_layer_v1")

    def of_trained(original: Callable) -> Callable:
        def add_update(layer: Any, updates: Any) -> None:
            if not layer.trainable and not layer.stateful:
                updates = [u for u in tf.nest.flatten(updates) if not callable(u)]
            original(layer, updates)

        return add_update

    return patched(layers.Layer, "add_update", of_trained)


@contextlib.contextmanager
def keras_policy(name: str) -> Iterator[None]:
    """Inside, layers of `tf.keras`, Keras 3 and tf-keras have this dtype policy.

    After `tf.compat.v1.disable_v2_behavior()`, tf-keras refuses a policy, and its layers use the
    dtype of their inputs; only the check for that is private. The policy of Keras 3 is per thread,
    that of tf-keras per process. tf-keras 2.16 to 2.21.
    """
    libraries = [tf.keras, *(sys.modules.get(name) for name in ("keras", "tf_keras"))]
    modules = {id(m): m for m in (getattr(lib, "mixed_precision", None) for lib in libraries) if m}
    utils = sys.modules.get("tf_keras.src.engine.base_layer_utils")
    with contextlib.ExitStack() as stack:
        for module in modules.values():
            is_tf_keras = module.__name__.startswith("tf_keras")
            if is_tf_keras and utils is not None and not utils.v2_dtype_behavior_enabled():
                continue
            stack.callback(module.set_global_policy, module.global_policy())
            module.set_global_policy(name)
        yield


def compile_arguments(model: Any) -> dict[str, Any]:
    """Returns the arguments that a model was compiled with, as they were given.

    `get_compile_config` serializes them, which a user's own loss function does not survive.
    Keras 3.12 to 3.15; tf-keras 2.16 to 2.21, also a model that it made in a v1 graph.
    """
    if not hasattr(model, "_compile_config"):
        return {
            "loss": model.loss,
            "loss_weights": model.loss_weights,
            "metrics": model._compile_metrics,
            "weighted_metrics": model._compile_weighted_metrics,
        }
    return dict(model._compile_config.config)


def names_without_weight_decay(optimizer: Any) -> list[str]:
    """Returns patterns for what `exclude_from_weight_decay(var_names=...)` was given.

    Keras 3.12 to 3.15; tf-keras 2.16 to 2.21.

    Raises:
      ValueError: variables were excluded themselves, which copies of the model do not have.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(inner, "_exclude_from_weight_decay", None):
        raise ValueError(
            f"The optimizer of `keras_model` ({inner.name!r}) excludes variables from weight "
            "decay. Exclude them by name: `exclude_from_weight_decay(var_names=[...])`."
        )
    pattern = getattr(inner, "_exclude_from_weight_decay_pattern", None)
    names = getattr(inner, "_exclude_from_weight_decay_names", [])  # Of tf-keras.
    return list(names) if pattern is None else [pattern.pattern]


def keras_layers(model: Any) -> list[Any]:
    """Returns all layers of a model, those inside layers too.

    Keras 3.12 to 3.15; tf-keras 2.16 to 2.21.
    """
    return list(model._flatten_layers(include_self=False))


def copy_trainable(model: Any, copy: Any) -> None:
    """Freezes the layers of a copy that are frozen in the model, which not every config says.

    Layers that are made only when a model is called are not in the copy yet; they come last.
    `_flatten_layers` of Keras 3.12 to 3.15; tf-keras 2.16 to 2.21.
    """
    copy.trainable = model.trainable  # Sets that of all layers inside, too.
    parts = (one._flatten_layers(recursive=False, include_self=False) for one in (model, copy))
    for layer, own in zip(*parts, strict=False):
        if type(layer) is type(own):
            copy_trainable(layer, own)


def keras_functions_trusted() -> contextlib.AbstractContextManager[Any]:
    """Inside, Keras 3 copies a layer that holds a lambda, which it does not load from a file.

    `keras.src.saving.serialization_lib` since Keras 3.0.
    """
    module = sys.modules.get("keras.src.saving.serialization_lib")
    return contextlib.nullcontext() if module is None else module.SafeModeScope(safe_mode=False)


def copied_lookup(layer: Any) -> Any:
    """Returns a copy of a lookup layer of Keras 3, with the vocabulary that `adapt` found.

    The layer would compare the size of its vocabulary with a tensor when it is made in a v1 graph,
    where its config cannot be read again: a copy keeps it. 3.12 to 3.15.
    """
    kept = getattr(layer, "_config_of_copy", None)
    config = dict(kept()) if kept else layer.get_config()
    if config.get("vocabulary") is None:
        config["vocabulary"] = list(layer.get_vocabulary(include_special_tokens=False)) or None
    keeping: Callable = functools.partial(dict, config.copy())  # Keras would replace a dict.
    size = config.pop("vocabulary_size", None)
    copy = type(layer).from_config(config)
    copy._config_of_copy = keeping
    getattr(copy, "_lookup_layer", copy)._frozen_vocab_size = size
    return copy


@contextlib.contextmanager
def tf_keras_classes_kept() -> Iterator[None]:
    """Inside, a v1 graph may be built; afterwards tf-keras's models work eagerly again.

    In a v1 graph, making a model or layer changes the base classes of its class, and so those of
    all models that there are. `tf_keras.src.utils.version_utils` of 2.16 to 2.21.
    """
    utils = sys.modules.get("tf_keras.src.utils.version_utils")
    if utils is None or not tf.executing_eagerly():
        yield
        return
    swapped: dict[tuple[type, type, type], None] = {}

    def noting(original: Callable) -> Callable:
        def swap_class(cls: type, v2: type, v1: type, use_v2: bool) -> type:
            if not use_v2:
                swapped[cls, v2, v1] = None
            return original(cls, v2, v1, use_v2)

        return swap_class

    try:
        with patched(utils, "swap_class", noting):
            yield
    finally:
        for classes in swapped:
            utils.swap_class(*classes, use_v2=True)


def clones_uncompiled(model: Any) -> Patch:
    """Inside, `clone_model` of Keras 3 makes a model that is not compiled.

    To compile the clone, it would serialize the arguments (see `compile_arguments`), and read
    variables of the optimizer, which have no values in a v1 graph. Keras 3.12 to 3.15.
    """
    if not hasattr(model, "compiled"):  # Of tf-keras, which does not compile clones.
        return contextlib.nullcontext()
    return patched(model, "compiled", lambda is_compiled: False)


def compiled_metrics(model: Any) -> dict[str, Any]:
    """Returns the metrics of a compiled model of Keras 3 that has seen a batch, by name.

    Without the mean of the loss, and with those of the losses of several outputs. Keras puts the
    metrics of all outputs into one metric, whose result names them: 3.12 to 3.15.
    """
    container = model._compile_metrics
    made = [] if container is None else container.metrics
    found = dict(zip(container.result() if made else (), made, strict=True))
    known = {id(model._loss_tracker), id(container)}
    return {m.name: m for m in model.metrics if id(m) not in known} | found


def metric_variables(metric: Any) -> list[Sequence[tf.Variable]]:
    """Returns the TensorFlow variables of a Keras metric, each as the copies of all replicas."""
    return [copies(variable_of(v)) for v in metric.variables]


def variable_of(variable: Any) -> Any:
    """Returns the TensorFlow variable that one of Keras 3 wraps; anything else as it is."""
    value = getattr(variable, "value", None)  # A method of TensorFlow's own variables.
    return value if isinstance(value, tf.Variable) else variable


def keras_constraints_shared() -> Patch:
    """Inside, a TensorFlow variable that one of Keras 3 wraps gets the wrapper's constraint.

    Optimizers are given the wrapped variables, or take them from the graph, and apply what these
    have. A layer sets its variable's constraint; in a symbolic call, before the wrapped variable is
    made. `keras.src.backend.Variable` 2.16 to 2.21.
    """
    backend = sys.modules.get("keras.src.backend")
    if backend is None:
        return contextlib.nullcontext()

    def sharing(original: Callable) -> Callable:
        @functools.wraps(original)
        def method(variable: Any, *args: Any) -> None:
            original(variable, *args)
            if variable.constraint is not None and isinstance(variable._value, tf.Variable):
                for one in copies(variable._value):
                    one._constraint = variable.constraint

        return method

    def of_property(original: Any) -> property:
        return property(original.fget, sharing(original.fset), doc=original.__doc__)

    return together(
        [
            patched(backend.Variable, "constraint", of_property),
            patched(backend.Variable, "_deferred_initialize", sharing),
        ]
    )


def keras_additions_in_one_op() -> Patch:
    """Inside, `assign_add` and `assign_sub` of a Keras 3 variable in a graph are one op each.

    By itself, Keras reads the variable and assigns the sum, so workers that share it lose steps
    that an optimizer counts. A method of Keras's optimizers, which uses nothing of its optimizer,
    makes the op: so `callers.py` finds Keras on the stack.
    `keras.src.backend.tensorflow.optimizer` 3.12 to 3.16.
    """
    backend = sys.modules.get("keras.src.backend")
    if backend is None:
        return contextlib.nullcontext()
    is_stateless = sys.modules["keras.src.backend.common.stateless_scope"].in_stateless_scope
    optimizer = sys.modules["keras.src.backend.tensorflow.optimizer"].TFOptimizer

    def in_one_op(original: Callable, *, change: Callable, result: Callable) -> Callable:
        @functools.wraps(original)
        def method(variable: Any, value: Any) -> Any:
            wrapped = variable._value  # In mixed precision, `variable.value` is a cast tensor.
            if tf.executing_eagerly() or is_stateless() or wrapped is None:
                return original(variable, value)
            changed = result(variable, value)
            value = tf.broadcast_to(tf.cast(value, wrapped.dtype), wrapped.shape)
            change(None, wrapped, value)
            return changed

        return method

    add = functools.partial(in_one_op, change=optimizer.assign_add, result=operator.add)
    subtract = functools.partial(in_one_op, change=optimizer.assign_sub, result=operator.sub)
    return together(
        [
            patched(backend.Variable, "assign_add", add),
            patched(backend.Variable, "assign_sub", subtract),
        ]
    )


# Functions of tf.compat.v1 whose first argument is a variable or a list of them, by its name.
_TAKING_VARIABLES = {
    "ref": (
        *("assign", "assign_add", "assign_sub", "is_variable_initialized"),
        *("scatter_add", "scatter_sub", "scatter_update"),
    ),
    "var_list": ("report_uninitialized_variables", "variables_initializer"),
}


@contextlib.contextmanager
def keras_variables_in_v1() -> Iterator[None]:
    """Inside, v1 code takes variables of Keras 3, as it does those of tf-keras.

    A GAN passes those of one network to an optimizer; a Saver would save nothing of them, without
    an error; a copy of a network is assigned to. Public functions and classes, and
    checkpoint_utils._init_from_checkpoint 2.16 to 2.21.
    """
    v1 = tf.compat.v1
    optimizer, average = v1.train.Optimizer, tf.train.ExponentialMovingAverage
    methods = [
        (optimizer, "compute_gradients", "var_list", 2),
        (optimizer, "apply_gradients", "grads_and_vars", 1),
        (optimizer, "get_slot", "var", 1),
        (average, "apply", "var_list", 1),
        (average, "average", "var", 1),
        (average, "average_name", "var", 1),
        (v1.train.Saver, "__init__", "var_list", 1),
        (_checkpoint_utils, "_init_from_checkpoint", "assignment_map", 1),
        *((v1, name, arg, 0) for arg, names in _TAKING_VARIABLES.items() for name in names),
        *((module, "embedding_lookup_sparse", "params", 0) for module in (tf.nn, v1.nn)),
        *(
            (module, "safe_embedding_lookup_sparse", "embedding_weights", 0)
            for module in (tf.nn, v1.nn)
        ),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, argument, position in methods:
            make = functools.partial(_of_tensorflow, argument=argument, position=position)
            stack.enter_context(patched(owner, name, make))
        yield


def _of_tensorflow(original: Callable, *, argument: str, position: int) -> Callable:
    """Replaces variables of Keras 3 in one argument of a method by those that they wrap."""

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if argument in kwargs:
            kwargs[argument] = _unwrapped(kwargs[argument])
        elif len(args) > position:
            args = (*args[:position], _unwrapped(args[position]), *args[position + 1 :])
        return original(*args, **kwargs)

    return method


def _unwrapped(variables: Any) -> Any:
    if isinstance(variables, Iterator):  # Such as of `zip`.
        variables = list(variables)
    return tf.nest.map_structure(variable_of, variables)
