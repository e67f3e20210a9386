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


def keras_names_as_in_tf_keras() -> Patch:
    """Inside, variables of Keras 3 in a graph get the names that tf-keras gives them.

    Checkpoints of tf.estimator have those. By itself, Keras 3 names them by the name scope, and

    - opens one to build a layer and another one to call it, so that the variables of the second
      layer are in `dense_1_1`. Inside, a call has one scope.
    - builds layers of a subclassed model in a symbolic call, and makes their variables after it, in
      the scope of the model: `model/kernel_1`, which depends on what else the model builds. Inside,
      the layers are part of the name, as they are of `Variable.path`.
    - opens one to build a Sequential model that has an Input, which tf-keras does not.

    `keras.src.backend`, `keras.src.layers.layer` 3.12 to 3.16.
    """
    backend = sys.modules.get("keras.src.backend")
    if backend is None:
        return contextlib.nullcontext()
    scopes = functools.partial(_with_scopes_of_tf_keras, built_in={})
    return together(
        [
            patched(backend.name_scope, "__enter__", scopes),
            patched(backend.Variable, "_initialize", _with_layers_in_name),
        ]
    )


def _with_scopes_of_tf_keras(original: Callable, *, built_in: dict[Any, str]) -> Callable:
    """Wraps how a name scope is entered; `built_in` is by the stack frame of a layer's call."""
    sequential = sys.modules["keras.src.models.sequential"].Sequential

    @functools.wraps(original)
    def enter(scope: Any) -> Any:
        frame = sys._getframe(1)
        function = frame.f_code.co_name
        if function == "_maybe_build" and frame.f_back is not None:  # Of Keras 3.16.
            frame, function = frame.f_back, frame.f_back.f_code.co_name
        if tf.executing_eagerly() or scope.caller is None:
            return original(scope)
        if function == "build_wrapper" and isinstance(scope.caller, sequential):
            scope._tf_name_scope = contextlib.nullcontext()
        elif frame in built_in:
            scope._tf_name_scope = tf.name_scope(f"{built_in.pop(frame)}/")
        elif function == "__call__":
            original(scope)
            built_in[frame] = tf.get_current_name_scope()
            return scope
        return original(scope)

    return enter


def _with_layers_in_name(original: Callable) -> Callable:
    """Wraps how a Keras variable makes its TensorFlow variable."""
    current_path = sys.modules["keras.src.backend.common.name_scope"].current_path

    @functools.wraps(original)
    def initialize(variable: Any, value: Any) -> None:
        layers, around = variable.path.rpartition("/")[0], current_path()
        layers = "" if layers == around else layers.removeprefix(f"{around}/")
        if tf.executing_eagerly() or not layers:
            original(variable, value)
            return
        scope = tf.get_current_name_scope()
        with tf.name_scope(f"{scope}/{layers}/" if scope else f"{layers}/"):
            original(variable, value)

    return initialize


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
