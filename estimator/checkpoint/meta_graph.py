"""A graph as the content of a `.meta` file, exported again only when the graph has changed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.rewrite.collections import only_top_of_graph


class MetaGraph:
    """Exports the graph of a saver, and keeps what it exported last."""

    def __init__(self, saver: tf.compat.v1.train.Saver) -> None:
        """Exports nothing yet."""
        self._saver = saver
        self._state: Any = None
        self._content = b""

    def content(self, graph: tf.Graph) -> bytes:
        """Returns what the saver would write as the `.meta` file of `graph`."""
        state = _state_of(graph)
        if not _is_same(state, self._state):
            with graph.as_default(), only_top_of_graph(graph):
                exported = self._saver.export_meta_graph()
            self._content = exported.SerializeToString(deterministic=True)
            self._state = state
        return self._content


def _state_of(graph: tf.Graph) -> tuple[int, dict[Any, list]]:
    """Returns what changes with the graph: its number of ops, and its collections."""
    keys = graph.get_all_collection_keys()
    return graph.version, {key: list(graph.get_collection_ref(key)) for key in keys}


def _is_same(state: tuple[int, dict[Any, list]], other: tuple[int, dict[Any, list]] | None) -> bool:
    """Returns whether two states have the same objects; variables do not compare as others do."""
    if other is None or state[0] != other[0] or state[1].keys() != other[1].keys():
        return False
    return all(
        len(values) == len(other[1][key])
        and all(a is b for a, b in zip(values, other[1][key], strict=True))
        for key, values in state[1].items()
    )
