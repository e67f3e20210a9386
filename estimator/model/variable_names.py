"""Names of variables that replicas share.

The first replica makes the variables. On others TensorFlow hands out those of the same name, one
after the other, to whoever makes one; but `get_variable` finds its own by itself and takes none, so
that the next to make a variable of that name would get it. `tf.compat.v1.metrics` makes a "total"
and a "count". So what `get_variable` makes is marked.

And a name that was made of the name scope, as `tf.compat.v1.metrics.recall_at_k` makes one, begins
with "replica_1/" on the second replica; TensorFlow would take it for another variable.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

# No variable's name ends like this.
_MARK = "//"


@contextlib.contextmanager
def marking_get_variable() -> Iterator[None]:
    """Inside, in a replica, what `get_variable` makes has a mark at the end of its name.

    And no name begins with the replica's name scope.
    """
    names: list[str] = []
    scope = tf.get_current_name_scope()
    around, _, own = scope.rpartition("/")
    is_replicas = re.fullmatch(r"replica_\d+", own) is not None

    def note(getter: Callable, name: str, *args: Any, **kwargs: Any) -> Any:
        names.append(name)
        try:
            return getter(name, *args, **kwargs)
        finally:
            names.pop()

    def mark(next_creator: Callable, **kwargs: Any) -> tf.Variable:
        name = kwargs.get("name")
        if is_replicas and name and name.startswith(f"{scope}/"):
            rest = name.removeprefix(f"{scope}/")
            name = kwargs["name"] = f"{around}/{rest}" if around else rest
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
    """The name that `get_variable` was called with; any other as it is."""
    return name.removesuffix(_MARK) if name else name
