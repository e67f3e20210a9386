"""Private parts of savers and checkpoints."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2 as _object_graph
from tensorflow.python.checkpoint import graph_view as _graph_view
from tensorflow.python.training import checkpoint_utils as _checkpoint_utils
from tensorflow.python.training import saver as _saver
from tensorflow.python.training.saving import saveable_object as _saveable_object

from estimator._tf.distribute import copies
from estimator._tf.graph import is_loop_body
from estimator._tf.patches import Patch, patched


def slice_of(variable: tf.Variable) -> Any:
    """Returns the slice info of a part of a partitioned variable; None for any other variable.

    It has full_name, full_shape and var_offset. There is no public accessor. 2.16 to 2.21.
    """
    return variable._get_save_slice_info()


def object_graph_keys(object_graph: bytes) -> dict[str, list[str]]:
    """Maps variable names to their keys in a checkpoint of `tf.train.Checkpoint`.

    Variables of different objects may share a name. It reads the serialized object graph, whose
    proto class has no public name. 2.16 to 2.21.
    """
    keys: dict[str, list[str]] = collections.defaultdict(list)
    for node in _object_graph.TrackableObjectGraph.FromString(object_graph).nodes:
        for attribute in node.attributes:
            if attribute.full_name:
                keys[attribute.full_name].append(attribute.checkpoint_key)
    return dict(keys)


def object_saveables(checkpoint: tf.train.Checkpoint) -> list[Any]:
    """Returns what a v1 Saver has to save to write `checkpoint` as an object-based checkpoint.

    A Scaffold makes such a Saver when it is finalized, but that also finalizes the graph.
    ObjectGraphView 2.16 to 2.21.
    """
    return _graph_view.ObjectGraphView(checkpoint).frozen_saveable_objects()


class ConstantSaveable(_saveable_object.SaveableObject):
    """A string that a v1 Saver saves under a name; to restore it does nothing. 2.16 to 2.21."""

    def __init__(self, name: str, value: bytes) -> None:
        """Adds the string to the default graph."""
        with tf.device("/cpu:0"):
            constant = tf.constant(value, name=name)
        super().__init__(constant, [_saveable_object.SaveSpec(constant, "", name)], name)

    def restore(self, restored_tensors: Any, restored_shapes: Any) -> tf.Operation:
        """Returns an op that does nothing."""
        return tf.no_op()


def checkpoint_initializers_outside_loops() -> Patch:
    """Inside, `init_from_checkpoint` in a loop's body makes its ops in the graph around the loop.

    It replaces the initializer of a variable. A session could not run that op inside the loop; and
    under CentralStorage only the wrapper's initializer would be replaced, which no session runs.
    The previous initializer is kept for `initializer_before_checkpoint`. Builds hold a lock.
    checkpoint_utils._set_checkpoint_initializer 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        def set_initializer(variable: Any, *args: Any, **kwargs: Any) -> None:
            with tf.init_scope():
                before = initializer_before_checkpoint(variable) or variable.initializer
                original(variable, *args, **kwargs)
            variable._initializer_before_checkpoint = before
            # A getattr of a variable with a value on each replica would read it, from all workers.
            for copy in copies(variable) if "_v" in vars(variable) else ():
                copy._initializer_op = variable._initializer_op

        return set_initializer

    return patched(_checkpoint_utils, "_set_checkpoint_initializer", make)


def initializer_before_checkpoint(variable: Any) -> tf.Operation | None:
    """Returns the initializer that `init_from_checkpoint` replaced; None if it was not called."""
    return vars(variable).get("_initializer_before_checkpoint")


@contextlib.contextmanager
def savers_apart() -> Iterator[list[tf.Operation]]:
    """Inside, a v1 Saver that is made in a loop's body makes its ops in the graph around the loop.

    A session runs these ops by name, which it cannot do inside the loop. In addition, a Saver that
    is given a dict restores all copies of a variable, as with a list, not only the first. Builds
    hold a lock. 2.16 to 2.21.

    Yields:
      A list of the ops that savers make, none of which a step runs.
    """
    ops: list[tf.Operation] = []
    around = tf.compat.v1.get_default_graph()

    def make(original: Callable) -> Callable:
        def build(self: Any) -> None:
            # A function of the model may have a saver inside, as a SavedModel of TensorFlow 1 has.
            is_inside = is_loop_body(around) and tf.compat.v1.get_default_graph() is around
            with tf.init_scope() if is_inside else contextlib.nullcontext():
                graph = tf.compat.v1.get_default_graph()
                num_ops_before = len(graph.get_operations())
                if isinstance(self._var_list, dict):
                    self._var_list = {k: _as_saveable(v, k) for k, v in self._var_list.items()}
                original(self)
                ops.extend(graph.get_operations()[num_ops_before:])

        return build

    with patched(tf.compat.v1.train.Saver, "build", make):
        yield ops


def meta_graphs_refused(graph: tf.Graph, error: Exception) -> Patch:
    """Inside, importing a meta graph into `graph` raises `error`.

    `import_meta_graph` and `hub.Module` do so, by `_import_meta_graph_with_return_elements` of
    saver.py (2.16 to 2.21).
    """

    def make(original: Callable) -> Callable:
        def import_meta_graph(*args: Any, **kwargs: Any) -> Any:
            if tf.compat.v1.get_default_graph() is graph:
                raise error
            return original(*args, **kwargs)

        return import_meta_graph

    return patched(_saver, "_import_meta_graph_with_return_elements", make)


def _as_saveable(value: Any, name: str) -> Any:
    if not isinstance(value, tf.distribute.DistributedValues):
        return value
    (make_saveable,) = value._gather_saveables_for_checkpoint().values()
    return make_saveable(name)
