"""Private parts of tf.data: the names of its ops, and the threads that run its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import map_op as _map_op
from tensorflow.python.data.util import nest as _nest

from estimator._tf.callers import is_made_by_tf_data
from estimator._tf.patches import Patch, patched, together


def ops_of_datasets_in(scope: str) -> Patch:
    """Inside, the ops that tf.data itself makes in the default graph are named `scope/...`.

    A dataset makes constants for its arguments, such as `count` and `step`; a variable of the model
    could then no longer have such a name. Ops that the program makes keep their names.
    All names come from `Graph.unique_name`, which is public; the folder of tf.data, which tells
    whose op it is, is not. 2.16 to 2.21.
    """
    graph = tf.compat.v1.get_default_graph()

    def make(original: Callable) -> Callable:
        def unique_name(name: str, mark_as_used: bool = True) -> str:
            is_in_scope = f"{graph.get_name_scope()}/".startswith(f"{scope}/")
            if not is_in_scope and is_made_by_tf_data():
                name = f"{scope}/{name}"
            return original(name, mark_as_used)

        return unique_name

    return patched(graph, "unique_name", make)


def components_replaced(replace: Callable[[Any], Any]) -> Patch:
    """Inside, `from_tensor_slices` and `from_tensors` take `replace(component)` in this graph.

    That is each array or tensor of their argument, whose structure is tf.data's own: a list is a
    tensor. The two functions are public, the walk through their argument is not. 2.16 to 2.21.
    """
    graph = tf.compat.v1.get_default_graph()

    def make(original: Callable) -> Any:
        def make_dataset(tensors: Any, *args: Any, **kwargs: Any) -> tf.data.Dataset:
            if tf.compat.v1.get_default_graph() is graph and not tf.executing_eagerly():
                tensors = _nest.map_structure(replace, tensors)
            return original(tensors, *args, **kwargs)

        return staticmethod(make_dataset)

    names = ("from_tensor_slices", "from_tensors")
    return together(patched(tf.data.Dataset, name, make) for name in names)


def map_in_line(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, but runs the function on the thread that asks for elements.

    `map` passes each element to another thread and waits for it. That takes at least 50 us, too
    long for a cheap function. 2.16 to 2.21.
    """
    return _map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)
