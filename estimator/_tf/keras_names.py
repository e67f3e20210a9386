"""Names of layers and variables of Keras 3 and tf-keras, which checkpoints are matched by."""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator._tf.graph import outer_graphs
from estimator._tf.patches import Patch, patched, together


@contextlib.contextmanager
def fresh_keras_names() -> Iterator[None]:
    """Inside, Keras 3 names its first Dense layer `dense` again, as in a new process.

    The counters are per thread and only increase, so that a model that is built twice would get
    different variable names and not match its checkpoint. `clear_session` would also drop the
    user's models. `keras.src...global_state` since Keras 3.0.
    """
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state is None:
        yield
        return
    counters = state.get_global_attribute("object_name_uids")
    state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        state.set_global_attribute("object_name_uids", counters)


def keras_names_as_in_tf_keras(graph: tf.Graph) -> Patch:
    """Inside, variables that Keras 3 makes in a graph get the names that tf-keras gives them.

    Checkpoints of tf.estimator have those. By itself, Keras 3 names them by the name scope, and

    - opens one to build a layer and another one to call it, so that the variables of the second
      layer are in `dense_1_1`. Inside, a call has one scope.
    - builds layers of a subclassed model in a symbolic call, and makes their variables after it, in
      the scope of the model: `model/kernel_1`, which depends on what else the model builds. Inside,
      the layers are part of the name, as they are of `Variable.path`.
    - calls the kernel of a depthwise convolution `kernel`, as that of others.
    - opens one to build a Sequential model that has an Input, which tf-keras does not. With each
      layer that is added, it calls all others again; inside, those calls use up no names.

    `keras.src.backend`, `keras.src.layers.layer` 3.12 to 3.16.
    """
    backend = sys.modules.get("keras.src.backend")
    if backend is None:
        return contextlib.nullcontext()
    scopes = functools.partial(_with_scopes_of_tf_keras, graph=graph, scope_by_frame={})
    layers = functools.partial(_with_layers_in_name, graph=graph)
    depthwise = sys.modules["keras.src.layers.convolutional.base_depthwise_conv"]
    kernels = functools.partial(_with_depthwise_kernel, graph=graph)
    return together(
        [
            patched(backend.name_scope, "__enter__", scopes),
            patched(backend.Variable, "_initialize", layers),
            patched(depthwise.BaseDepthwiseConv, "add_weight", kernels),
        ]
    )


def _with_scopes_of_tf_keras(
    original: Callable, *, graph: tf.Graph, scope_by_frame: dict[Any, str]
) -> Callable:
    """Wraps how a name scope is entered.

    `scope_by_frame` maps the stack frame of a layer's call to the scope that the layer was built
    in, for the second scope of that call. If a call opens no second one, its frame stays there.
    """
    state = sys.modules["keras.src.backend.common.global_state"]
    sequential = sys.modules["keras.src.models.sequential"].Sequential

    def is_called_again(layer: Any) -> bool:
        """Whether a Sequential model that is built outside of a call of it calls a built layer."""
        around = (state.get_global_attribute("name_scope_stack") or [None])[-1]
        is_building = isinstance(getattr(around, "_tf_name_scope", None), contextlib.nullcontext)
        return is_building and layer.built

    @functools.wraps(original)
    def enter(scope: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_name == "_maybe_build" and frame.f_back is not None:  # Of Keras 3.16.
            frame = frame.f_back
        function = frame.f_code.co_name
        if scope.caller is None or not _is_in(graph):
            return original(scope)
        if function == "build_wrapper" and isinstance(scope.caller, sequential):
            scope._tf_name_scope = contextlib.nullcontext()
        elif frame in scope_by_frame:
            scope._tf_name_scope = tf.name_scope(f"{scope_by_frame.pop(frame)}/")
        elif function == "__call__" and is_called_again(scope.caller):
            scope._tf_name_scope = tf.name_scope(_inside_scope(scope.name))
        elif function == "__call__":
            original(scope)
            scope_by_frame[frame] = tf.get_current_name_scope()
            return scope
        return original(scope)

    return enter


def _with_layers_in_name(original: Callable, *, graph: tf.Graph) -> Callable:
    """Wraps how a Keras variable makes its TensorFlow variable."""
    current_path = sys.modules["keras.src.backend.common.name_scope"].current_path

    @functools.wraps(original)
    def initialize(variable: Any, value: Any) -> None:
        layers, around = variable.path.rpartition("/")[0], current_path()
        layers = "" if layers == around else layers.removeprefix(f"{around}/")
        if not layers or not _is_in(graph):
            original(variable, value)
            return
        with tf.name_scope(_inside_scope(layers)):
            original(variable, value)

    return initialize


def _with_depthwise_kernel(original: Callable, *, graph: tf.Graph) -> Callable:
    """Wraps how a depthwise convolution makes its weights."""

    @functools.wraps(original)
    def add_weight(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("name") == "kernel" and _is_in(graph):
            kwargs["name"] = "depthwise_kernel"
        return original(layer, *args, **kwargs)

    return add_weight


def _is_in(graph: tf.Graph) -> bool:
    """Returns whether ops are made in `graph` here, or in a function's graph inside it."""
    return outer_graphs(tf.compat.v1.get_default_graph())[-1] is graph


def _inside_scope(name: str) -> str:
    """Returns what enters a scope inside the current one, also if there is one of that name."""
    scope = tf.get_current_name_scope()
    return f"{scope}/{name}/" if scope else f"{name}/"


def tf_keras_names_by_thread() -> Patch:
    """Inside, tf-keras numbers the layers of each replica separately; replicas have own threads.

    By default it numbers layers per graph, so the first replica's names would depend on where
    replicas wait for each other in `model_fn`. Builds hold a lock. tf-keras 2.16 to 2.21.
    """
    backend = sys.modules.get("tf_keras.src.backend")
    if backend is None:
        return contextlib.nullcontext()
    maps: dict[tuple[int, tf.Graph], Any] = {}

    def map_of_thread() -> Any:
        key = threading.get_ident(), tf.compat.v1.get_default_graph()
        return maps.setdefault(key, collections.defaultdict(int))

    return patched(backend, "get_default_graph_uid_map", lambda original: map_of_thread)
