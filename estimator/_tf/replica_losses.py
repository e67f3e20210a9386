"""Losses that the replicas of a strategy leave in one graph: each replica finds its own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import variables

from estimator._tf.patches import Patch, patched, together

_KEYS = tf.compat.v1.GraphKeys
_LOSSES = {_KEYS.LOSSES, _KEYS.REGULARIZATION_LOSSES}
# Collections of TensorFlow for other things, some of which only the first replica makes.
_SHARED = {name for name in vars(_KEYS).values() if isinstance(name, str)} - _LOSSES


def keep_losses_apart(graph: tf.Graph) -> None:
    """From now on, a replica that reads a collection does not find losses of other replicas in it.

    Replicas build in one graph, so `tf.compat.v1.losses.get_total_loss()` of the second one would
    have the losses of the first one, too, as in tf.estimator; where replicas share variables, their
    gradients as well. Losses are floating-point tensors in TensorFlow's collections of losses, and
    in those that a program names. Whoever is not a replica finds all. `Graph._collections`, and
    `ReplicaContext._local_replica_id`, 2.16 to 2.21.
    """
    if not isinstance(graph._collections, _Collections):
        graph._collections = _Collections(graph._collections)


def layer_regularizers_by_replica() -> Patch:
    """Inside, a regularizer of a layer of `tf.layers` counts on each replica.

    The layer calls it when it makes its variable, which only the first replica does. Here, another
    replica that reads the collection finds what it is for its own copy of the variable.
    `Layer._handle_weight_regularization` of tf-keras and of TensorFlow's copy of it, 2.16 to 2.21.
    """
    modules = ["tensorflow.python.keras.engine.base_layer_v1"]
    if "tf_keras" in sys.modules:
        modules.append("tf_keras.src.engine.base_layer_v1")
    layers = [importlib.import_module(name).Layer for name in modules]
    name = "_handle_weight_regularization"
    return together([patched(layer, name, _noting_regularizers) for layer in layers])


def _noting_regularizers(original: Callable) -> Callable:
    def handle(layer: Any, name: str, variable: Any, regularizer: Callable) -> None:
        if _this_replica() is None:
            original(layer, name, variable, regularizer)
            return
        losses = tf.compat.v1.get_collection_ref(_KEYS.REGULARIZATION_LOSSES)
        is_partitioned = isinstance(variable, variables.PartitionedVariable)
        for part in variable if is_partitioned else [variable]:
            num_before = len(losses)
            original(layer, name, part, regularizer)
            # A getter may return a tensor instead, which each replica makes itself.
            if isinstance(losses, _ByReplica) and isinstance(part, tf.Variable):
                losses.compute_anew(losses[num_before:], name, regularizer, part)

    return handle


def _this_replica() -> int | None:
    """Returns the number of this replica; None outside of replicas, or if there is only one."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    number = getattr(context, "_local_replica_id", None)
    return (
        number if isinstance(number, int) else None
    )  # A tensor if all replicas are built at once.


class _Collections(dict):
    """The collections of a graph by name; those that losses may be in are `_ByReplica`."""

    def __setitem__(self, name: Any, values: Iterable) -> None:
        super().__setitem__(name, values if name in _SHARED else _ByReplica(values))

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            self[name] = []  # `get_collection_ref` would return a list other than the one kept.
        return self[name]


class _ByReplica(list):
    """A collection in which a replica finds all but the losses that other replicas put there."""

    def __init__(self, values: Iterable) -> None:
        super().__init__()
        self._replicas: dict[int, int | None] = {}  # By the losses' ids.
        self._compute: dict[int, Callable[[], Any]] = {}  # For another replica, likewise.
        self._computed: dict[tuple, Any] = {}
        self.extend(values)

    def append(self, value: Any) -> None:
        if isinstance(value, tf.Tensor) and value.dtype.is_floating:
            self._replicas[id(value)] = _this_replica()
        super().append(value)

    def extend(self, values: Iterable) -> None:
        for value in values:
            self.append(value)

    def __iadd__(self, values: Iterable) -> _ByReplica:  # type: ignore[misc]
        self.extend(values)
        return self

    def __iter__(self) -> Iterator[Any]:
        replica = _this_replica()
        for value in super().__iter__():
            if replica is None or self._replicas.get(id(value)) in (None, replica):
                yield value
            elif id(value) in self._compute:
                yield self._for_this_replica(replica, id(value))

    def compute_anew(
        self, losses: Iterable, name: str, regularizer: Callable, variable: tf.Variable
    ) -> None:
        """Has the other replicas find, for these losses, those of their copies of a variable."""

        def compute() -> Any:
            with tf.name_scope(f"{name}/Regularizer"):
                return regularizer(variable)

        self._compute |= {id(loss): compute for loss in losses}

    def _for_this_replica(self, replica: int, loss: int) -> Any:
        key = replica, loss, tf.compat.v1.get_default_graph()
        if key not in self._computed:
            self._computed[key] = self._compute[loss]()
        return self._computed[key]
