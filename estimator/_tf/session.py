"""Sessions and Scaffolds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config_pb2


def make_callable(
    session: tf.compat.v1.Session, fetches: Sequence[Any], feeds: Sequence[tf.Tensor]
) -> Callable[..., list]:
    """A function of arrays, of the dtypes of `feeds`, that runs `fetches` and returns a list.

    The public `Session.make_callable` goes through all of `Session.run` if anything is fed: 0.1 ms
    of Python a call. `_do_call` adds to an error where the program made the op. 2.16 to 2.21.
    """
    # A callable knows no composite tensors, and nothing that is fed as well.
    is_simple = all(isinstance(fetch, tf.Tensor | tf.Operation) for fetch in fetches)
    if not is_simple or not {id(feed) for feed in feeds}.isdisjoint(map(id, fetches)):
        return session.make_callable(list(fetches), feed_list=list(feeds))
    tensors = list(dict.fromkeys(f.name for f in fetches if isinstance(f, tf.Tensor)))
    options = _config_pb2.CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=tensors,
        target=[fetch.name for fetch in fetches if isinstance(fetch, tf.Operation)],
    )
    places = [tensors.index(f.name) if isinstance(f, tf.Tensor) else None for f in fetches]
    run = session._make_callable_from_options(options)

    def call(*values: Any) -> list:
        results = session._do_call(run, *values)
        return [None if place is None else results[place] for place in places]

    return call


def set_scaffold_parts(scaffold: tf.compat.v1.train.Scaffold, parts: dict[str, Any]) -> None:
    """Gives a Scaffold its parts, as finalizing it does, which finalizes the graph too (2.16)."""
    for name, part in parts.items():
        setattr(scaffold, f"_{name}", part)
