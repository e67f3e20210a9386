"""Keeps the names of variables that replicas share consistent.

The first replica creates the variables. On other replicas, TensorFlow hands out existing variables
of the same name in turn to every creation. But `get_variable` finds its own variable without taking
one, so the next creation of that name, such as the "total" and "count" of `tf.compat.v1.metrics`,
would get the wrong variable. So what `get_variable` creates is marked.

A name that includes the name scope, as in `tf.compat.v1.metrics.recall_at_k`, or the name of a
tensor, as in `ExponentialMovingAverage.apply`, begins with "replica_1/" on the second replica, and
TensorFlow would take it for a different variable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# No variable name ends with this.
_MARK = "//"


@contextlib.contextmanager
def marking_get_variable() -> Iterator[None]:
    """Marks the names of variables that `get_variable` creates in the block, in a replica.

    Also removes the replica's name scope from the front of names, and adds the dtype of an initial
    value: `get_variable` itself looks at the value only where it creates the variable.
    """
    names: list[str] = []
    scope = tf.get_current_name_scope()
    around, _, own = scope.rpartition("/")
    is_replicas = re.fullmatch(r"replica_\d+", own) is not None

    def without_replica(name: str) -> str:
        if not is_replicas or not name.startswith(f"{scope}/"):
            return name
        rest = name.removeprefix(f"{scope}/")
        return f"{around}/{rest}" if around else rest

    def note(getter: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
        name = without_replica(name)
        value = kwargs.get("initializer")
        if is_replicas and value is not None and not callable(value):
            kwargs["dtype"] = tf.convert_to_tensor(value).dtype.base_dtype
        names.append(name)
        try:
            return getter(name, *args, **kwargs)
        finally:
            names.pop()

    def mark(next_creator: Callable, **kwargs: Any) -> tf.Variable:
        if name := kwargs.get("name"):
            name = kwargs["name"] = without_replica(name)
        if names and name and name.startswith(names[-1]):
            kwargs["name"] = name + _MARK
        return next_creator(**kwargs)

    v1 = tf.compat.v1
    with (
        v1.variable_scope(v1.get_variable_scope(), custom_getter=note, auxiliary_name_scope=False),
        tf.variable_creator_scope(mark),
    ):
        yield


def without_mark(name: str | None) -> str | None:
    """Returns the name without the mark of `marking_get_variable`."""
    return name.removesuffix(_MARK) if name else name
