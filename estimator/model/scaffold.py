"""Merges the Scaffolds of a model's replicas into one whose parts a session can run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError
from estimator.rewrite.hoist import Hoist

Scaffold: TypeAlias = tf.compat.v1.train.Scaffold
_keys = tf.compat.v1.GraphKeys

# The collections in which a Scaffold looks for parts that it was not given.
_COLLECTIONS = {
    "init_op": _keys.INIT_OP,
    "ready_op": _keys.READY_OP,
    "ready_for_local_init_op": _keys.READY_FOR_LOCAL_INIT_OP,
    "local_init_op": _keys.LOCAL_INIT_OP,
    "summary_op": _keys.SUMMARY_OP,
    "saver": _keys.SAVERS,
}


def build_scaffold(scaffolds: Sequence[Scaffold], hoist: Hoist | None) -> Scaffold:
    """Completes the first replica's Scaffold so that it initializes all replicas.

    It stays the object that `init_fn` and the model's hooks refer to, and keeps its own `saver`,
    `init_fn` and `summary_op`.

    Args:
      scaffolds: one for each replica, or one for all of them.
      hoist: copies ops out of a loop's body; None without a loop.

    Raises:
      ValueError: a part exists only inside the loop, or a collection holds several values.
    """
    first = scaffolds[0]
    parts = {name: _part(first, name) for name in ("summary_op", "saver")}
    _check_saver(parts["saver"])
    for name in ("init_op", "local_init_op"):
        parts[name] = _as_one(_all_parts(scaffolds, name, hoist), lambda ops: tf.group(*ops))
    for name in ("ready_op", "ready_for_local_init_op"):
        parts[name] = _as_one(_all_parts(scaffolds, name, hoist), lambda ops: tf.concat(ops, 0))
    for name in ("init_feed_dict", "local_init_feed_dict"):
        parts[name] = _feeds([getattr(scaffold, name) for scaffold in scaffolds], name, hoist)
    _tf.set_scaffold_parts(first, parts)
    return first


def _part(scaffold: Scaffold, name: str) -> Any:
    value = getattr(scaffold, name)
    if value is not None:
        return value
    found = tf.compat.v1.get_collection(_COLLECTIONS[name])
    if len(found) > 1:
        raise ValueError(
            f"The collection {_COLLECTIONS[name]!r} holds {len(found)} values: {found}. Pass the "
            f"one to use: tf.compat.v1.train.Scaffold({name}=...)."
        )
    return _first(found)


def _first(values: Sequence[Any]) -> Any:
    return values[0] if values else None


def _all_parts(scaffolds: Sequence[Scaffold], name: str, hoist: Hoist | None) -> list[Any]:
    """Returns the ops and tensors of a part of all replicas, without repeats, outside any loop."""
    values = [_part(scaffold, name) for scaffold in scaffolds]
    flat = [op for value in values if value is not None for op in _flat(value)]
    if hoist is not None:
        flat = [hoist.build(f"The `{name}` of the Scaffold", op) for op in flat]
    return list({id(op): op for op in flat}.values())


def _flat(value: Any) -> list[Any]:
    """Returns the ops and tensors in a structure of anything that a session may run."""
    found = []
    for part in tf.nest.flatten(value):
        if isinstance(part, tf.distribute.DistributedValues):
            found += _flat(list(part.values))
        elif isinstance(part, str):
            found.append(_by_name(part))
        elif isinstance(part, tf.Operation) or tf.is_tensor(part) and hasattr(part, "value_index"):
            found.append(part)
        else:
            found.append(part.op)  # The result of `assign` is a variable.
    return found


def _by_name(name: str) -> Any:
    """Returns the op or tensor with a name, in a loop's body or around it."""
    *inside, home = _tf.outer_graphs(tf.compat.v1.get_default_graph())
    for graph in inside:
        with contextlib.suppress(KeyError):
            return graph.as_graph_element(name)
    return home.as_graph_element(name)


def _as_one(ops: list[Any], join: Callable[[list[Any]], Any]) -> Any:
    """Returns None for no ops; joins several in the graph around the loop."""
    if len(ops) < 2:
        return _first(ops)
    with tf.init_scope():
        return join(ops)


def _feeds(feeds: Sequence[Any], name: str, hoist: Hoist | None) -> dict[Any, Any] | None:
    """Merges the feeds of all replicas."""
    given = [feed for feed in feeds if feed is not None]
    for feed in given:
        if not isinstance(feed, Mapping):
            raise WrongTypeError(
                f"`{name}` of the Scaffold ({feed!r}) must be a dict from tensors to values."
            )
    pairs = [(key, value) for feed in given for key, value in feed.items()]
    if hoist is not None:
        build = functools.partial(hoist.build, f"The `{name}` of the Scaffold")
        pairs = [
            (tf.nest.map_structure(build, key, expand_composites=True), value)
            if isinstance(key, tf.SparseTensor)
            else (build(_flat(key)[0]), value)
            for key, value in pairs
        ]
    return dict(pairs) if given else None


def _check_saver(saver: Any) -> None:
    if saver is None or isinstance(saver, tf.train.Checkpoint):
        return
    if not callable(getattr(saver, "restore", None)) or not callable(getattr(saver, "save", None)):
        raise WrongTypeError(
            f"`saver` of the Scaffold ({saver!r}) must be a tf.compat.v1.train.Saver or a "
            "tf.train.Checkpoint."
        )
