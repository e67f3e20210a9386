"""Summaries of a model whose tensors only leave a program as its outputs.

A v1 summary op makes a string of a tensor, which a TPU cannot. Inside the program it is only noted,
with the tensor; after it the op is made on the host, of the first replica's value.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf

_VALUES = ("values", "tensor")


@dataclasses.dataclass(eq=False)
class Deferred:
    """A summary op that is not there yet: what `tf.compat.v1.summary` gets in its place.

    Attributes:
      make: makes it.
      arguments: of `make`; the tensors among them are of the program.
      built: the op's output on the host: scalar, string; None before it is made.
    """

    make: Callable[..., tf.Tensor]
    arguments: dict[str, Any]
    built: tf.Tensor | None = None


class DeferredSummaries:
    """The summaries of one program, in the order in which the model asks for them."""

    def __init__(self) -> None:
        """Notes nothing yet."""
        self._ones: list[Deferred] = []

    @contextlib.contextmanager
    def deferring(self) -> Iterator[None]:
        """Inside, `tf.compat.v1.summary` makes no ops, in any thread."""
        with _tf.summary_ops_replaced(self._defer):
            yield

    def tensors(self) -> list[tf.Tensor]:
        """What has to leave the program, in the order of `build`."""
        return [v for one in self._ones for v in one.arguments.values() if tf.is_tensor(v)]

    def build(self, values: Sequence[tf.Tensor]) -> None:
        """Makes the ops in the default graph, and puts them into the collections.

        Args:
          values: what `tensors` named, on the host.
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
        """Takes what was noted out of the collections: nobody sees it."""
        self._ones.clear()
        self._replace_in_collections()

    def _defer(self, make: Callable[..., tf.Tensor], /, **arguments: Any) -> Deferred:
        for key in _VALUES:
            if key in arguments:
                arguments[key] = tf.convert_to_tensor(arguments[key])
        # The scope that the caller names belongs to the program.
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
    """The op's output in place of what was deferred, also in a list of several."""
    if isinstance(value, list | tuple):
        return [_built(one) for one in value]
    return value.built if isinstance(value, Deferred) else value
