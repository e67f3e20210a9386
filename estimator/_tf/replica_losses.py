"""Losses that the replicas of a strategy leave in one graph: each replica finds its own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import variable_scope

from estimator._tf.patches import Patch, patched, together


def keep_collections_apart(graph: tf.Graph) -> None:
    """From now on, a replica that reads a collection does not find tensors of other replicas in it.

    Replicas build in one graph, so `tf.compat.v1.losses.get_total_loss()` of the second one would
    have the losses of the first one, too, as in tf.estimator; where replicas share variables, their
    gradients as well. Whoever is not a replica finds all. `Graph._collections` 2.16 to 2.21.
    """
    if not isinstance(graph._collections, _Collections):
        graph._collections = _Collections(graph._collections)


def layer_regularizers_by_replica() -> Patch:
    """Inside, a regularizer of a layer of `tf.layers` counts on each replica.

    The layer calls it when it makes its variable, which only the first replica does. Here, what it
    notes is computed by whoever reads it, as for `get_variable`: from the replica's own copy of the
    variable. `Layer.add_loss` of tf-keras's and TensorFlow's legacy layers, and
    `variable_scope._LazyEvalTensor`, 2.16 to 2.21.
    """
    modules = ["tensorflow.python.keras.legacy_tf_layers.base"]
    if "tf_keras" in sys.modules:
        modules.append("tf_keras.src.legacy_tf_layers.base")
    layers = [importlib.import_module(name).Layer for name in modules]
    return together([patched(layer, "add_loss", _adding_lazy_losses) for layer in layers])


def _adding_lazy_losses(original: Callable) -> Callable:
    def add_loss(layer: Any, losses: Any, inputs: Any = None) -> None:
        if _this_replica() is not None:
            losses = [_lazy(one) if callable(one) else one for one in tf.nest.flatten(losses)]
        original(layer, losses, inputs)

    return add_loss


def _lazy(loss: Callable[[], Any]) -> Callable[[], Any]:
    def compute() -> Any:
        value = variable_scope._LazyEvalTensor(loss)
        return None if value._master_tensor is None else value

    return compute


def _this_replica() -> int | None:
    """Returns a number that differs between replicas; None if this thread is not one of several."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return threading.get_ident()


class _Collections(dict):
    """The collections of a graph by name; new ones are `_ByReplica`."""

    def __setitem__(self, name: Any, values: Iterable) -> None:
        super().__setitem__(name, _ByReplica(values))

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            self[name] = []  # `get_collection_ref` would return a list other than the one kept.
        return self[name]


class _ByReplica(list):
    """A collection in which a replica finds all but the tensors that other replicas put there."""

    def __init__(self, values: Iterable) -> None:
        super().__init__()
        self._replicas: dict[int, int | None] = {}  # By the tensors' ids.
        for value in values:
            self.append(value)

    def append(self, value: Any) -> None:
        if isinstance(value, tf.Tensor):
            self._replicas[id(value)] = _this_replica()
        super().append(value)

    def __iter__(self) -> Iterator[Any]:
        replica = _this_replica()
        for value in super().__iter__():
            if replica is None or self._replicas.get(id(value)) in (None, replica):
                yield value
