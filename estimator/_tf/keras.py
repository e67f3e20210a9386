"""Keras 3 and tf-keras: names of layers, dtype policies, metrics."""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator._tf.distribute import copies
from estimator._tf.patches import patched


@contextlib.contextmanager
def fresh_keras_names() -> Iterator[None]:
    """Inside, Keras 3 names its first Dense layer `dense` again, as in a new process.

    The counters belong to the thread and only ever count up, so that a model built twice would
    get other variable names and not match its checkpoint; `clear_session` would also throw away
    the user's models. `keras.src...global_state` since Keras 3.0.
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


@contextlib.contextmanager
def tf_keras_names_by_thread() -> Iterator[None]:
    """Inside, tf-keras numbers the layers of each replica, which has a thread, on their own.

    It numbers those of a graph, so the first replica's names would depend on where replicas wait
    for each other in `model_fn`. Builds hold a lock. tf-keras 2.16 to 2.21.
    """
    backend = sys.modules.get("tf_keras.src.backend")
    if backend is None:
        yield
        return
    maps: dict[tuple[int, tf.Graph], Any] = {}

    def map_of_thread() -> Any:
        key = threading.get_ident(), tf.compat.v1.get_default_graph()
        return maps.setdefault(key, collections.defaultdict(int))

    with patched(backend, "get_default_graph_uid_map", lambda original: map_of_thread):
        yield


@contextlib.contextmanager
def keras_policy(name: str) -> Iterator[None]:
    """Inside, layers of `tf.keras`, Keras 3 and tf-keras have this dtype policy.

    All of it is public but whether tf-keras has policies at all: it refuses one, and its layers
    follow their inputs, after `tf.compat.v1.disable_v2_behavior()`. That of Keras 3 is the
    thread's, that of tf-keras the process's. tf-keras 2.16 to 2.21.
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


def metric_variables(metric: Any) -> list[Sequence[tf.Variable]]:
    """The TensorFlow variables behind a Keras metric's, each as its replicas' copies.

    Keras 3 wraps a `tf.Variable` in a variable of its own; a tf-keras variable is one.
    """
    return [copies(v if isinstance(v, tf.Variable) else v.value) for v in metric.variables]
