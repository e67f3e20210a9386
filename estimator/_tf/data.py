"""What tf.data makes in a graph: names, and where functions run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow.python.data.ops import map_op as _map_op

from estimator._tf.callers import is_made_by_tf_data
from estimator._tf.patches import patched


@contextlib.contextmanager
def ops_of_datasets_in(scope: str) -> Iterator[None]:
    """Inside, what tf.data makes for itself in the default graph is named `scope/...`.

    A dataset has constants for its arguments, such as `count` and `step`, whose names a variable
    of the model would not get any more. What the program makes itself keeps its name.
    Every op and name scope gets its name of `Graph.unique_name`, which is public; the folder of
    tf.data is not. 2.16 to 2.21.
    """
    graph = tf.compat.v1.get_default_graph()

    def make(original: Callable) -> Callable:
        def unique_name(name: str, mark_as_used: bool = True) -> str:
            is_in_scope = f"{graph.get_name_scope()}/".startswith(f"{scope}/")
            if not is_in_scope and is_made_by_tf_data():
                name = f"{scope}/{name}"
            return original(name, mark_as_used)

        return unique_name

    with patched(graph, "unique_name", make):
        yield


def map_in_line(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """`dataset.map(function)`, whose elements are made on the thread that asks for them.

    `map` hands each to another thread and waits for it, which takes 50 us and more; that is for
    functions with work in them. 2.16 to 2.21.
    """
    return _map_op._MapDataset(dataset, function, use_inter_op_parallelism=False)
