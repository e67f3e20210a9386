"""Defers summaries of a program whose tensors are available only as its outputs.

A v1 summary op makes a string from a tensor, which a TPU cannot do. So inside the program only the
call and its tensor are recorded; afterwards the op is built on the host, from the first replica's
value.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf

_VALUES = ("values", "tensor")


@dataclasses.dataclass(eq=False)
class Deferred:
    """The placeholder object that `tf.compat.v1.summary` returns for a deferred summary op.

    Attributes:
      make: builds the op.
      arguments: the arguments of `make`; its tensors belong to the program.
      built: the op's output on the host: scalar, string; None before it is built.
    """

    make: Callable[..., tf.Tensor]
    arguments: dict[str, Any]
    built: tf.Tensor | None = None


class DeferredSummaries:
    """The deferred summaries of one program, in the order of the model's calls."""

    def __init__(self) -> None:
        """Starts without summaries."""
        self._ones: list[Deferred] = []

    def deferring(self) -> contextlib.AbstractContextManager[None]:
        """Makes `tf.compat.v1.summary` defer its ops inside the block, in any thread."""
        return _tf.summary_ops_replaced(self._defer)

    def tensors(self) -> list[tf.Tensor]:
        """Returns the tensors that the program must output, in the order that `build` expects."""
        return [v for one in self._ones for v in one.arguments.values() if tf.is_tensor(v)]

    def build(self, values: Sequence[tf.Tensor]) -> None:
        """Builds the ops in the default graph and puts them into the collections.

        Args:
          values: the values of `tensors()`, on the host.
        """
        left = iter(values)
        for one in self._ones:
            arguments = {
                key: next(left) if tf.is_tensor(value) else _built(value)
                for key, value in one.arguments.items()
            }
            one.built = one.make(**arguments)
        self._replace_in_collections()

    def drop(self) -> None:
        """Removes the deferred summaries from the collections; they are never built."""
        self._ones.clear()
        self._replace_in_collections()

    def _defer(self, make: Callable[..., tf.Tensor], /, **arguments: Any) -> Deferred:
        for key in _VALUES:
            if key in arguments:
                arguments[key] = tf.convert_to_tensor(arguments[key])
        # Drops the caller's name, whose scope belongs to the program.
        arguments.pop("name", None)
        self._ones.append(Deferred(make, arguments))
        return self._ones[-1]

    def _replace_in_collections(self) -> None:
        graph = tf.compat.v1.get_default_graph()
        for name in graph.collections:
            ones = graph.get_collection_ref(name)
            if any(isinstance(one, Deferred) for one in ones):
                ones[:] = [one for one in map(_built, ones) if one is not None]


def _built(value: Any) -> Any:
    """Replaces deferred summaries by the ops' outputs, also in a list."""
    if isinstance(value, list | tuple):
        return [_built(one) for one in value]
    return value.built if isinstance(value, Deferred) else value
