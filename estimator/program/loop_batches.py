"""The batches of a loop's turns, each taken while the turn before runs.

A loop goes on only if there is a batch for its next turn, so the end of the input is a part of the
loop's own condition, and a loop that the input cuts short ends as any other: with its loss, its
summaries and whatever hooks fetched. No turn takes more than the loop will use, so between session
calls the input stands exactly behind the batches of the steps that were made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input.input_calls import Input, batch_tensors, build_replica_batches
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.rewrite.graph_walk import ops_before
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time

_GETS = ("IteratorGetNext", "IteratorGetNextSync")
_MAX_SIZE = 8  # Of a constant that says something of a shape.


@dataclasses.dataclass(frozen=True)
class LoopInput:
    """What the turns of a loop take from iterators.

    A batch waits in a resource on the host. A loop that carried it would take it to its own device,
    and not every type may go there.

    Attributes:
      first: puts the first turn's batches there. It raises OutOfRangeError if there are none.
    """

    first: tf.Operation
    _batches: list[Any]
    _gets: Sequence[tf.Operation]
    _places: Sequence[LoopOutput]

    def build_batches(self) -> list[Any]:
        """The batches of a turn, one a replica, in the loop's body."""
        values: dict[tf.Operation, tf.Operation] = {}
        with tf.device("/cpu:0"):
            for get, place in zip(self._gets, self._places, strict=True):
                components = tf.raw_ops.OptionalGetValue(
                    optional=place.build_read(),
                    output_types=get.get_attr("output_types"),
                    output_shapes=get.get_attr("output_shapes"),
                )
                values[get] = components[0].op
            return build_copy(self._batches, _is_of_turn, values)

    def build_next(self, is_wanted: tf.Tensor, batches: Any) -> tf.Tensor:
        """Takes the batches of the next turn if `is_wanted`; returns whether there are any.

        Args:
          is_wanted: scalar, bool.
          batches: of this turn, which are there before.
        """

        def take() -> tf.Tensor:
            optionals: list[tf.Tensor] = []
            for get in self._gets:
                with tf.control_dependencies([optional.op for optional in optionals]):
                    optionals.append(_build_optional(get))
            has_values = [tf.raw_ops.OptionalHasValue(optional=o) for o in optionals]
            with tf.control_dependencies(_build_writes(self._places, optionals)):
                if len(has_values) == 1:
                    return tf.identity(has_values[0])
                return tf.reduce_all(tf.stack(has_values))

        read = {tensor.op for tensor in batch_tensors(batches)}
        with tf.device("/cpu:0"), tf.control_dependencies(read):
            return _tf.cond(is_wanted, take, lambda: tf.constant(False), name="next_batches")


def build_loop_input(source: Input, num_replicas: int) -> LoopInput | None:
    """What a loop in the default graph takes from `source`; None if its end cannot be foreseen.

    That is so if no iterator is behind it: queues and Python functions tell of their end by an
    error, and constants have none.

    Args:
      source: the input; it does not look ahead by itself.
      num_replicas: those that take a batch in each turn.
    """
    graph = tf.compat.v1.get_default_graph()
    with tf.device("/cpu:0"), tf.name_scope("training/first_batches"):
        batches, _ = build_replica_batches(source, num_replicas)
        behind = set(ops_before(batch_tensors(batches), runs_each_time))
        gets = [op for op in graph.get_operations() if op in behind and op.type in _GETS]
        if not gets:
            return None
        places = [
            build_loop_output(tf.variant, "training/batch", tf.raw_ops.OptionalNone()) for _ in gets
        ]
        with tf.control_dependencies(gets):
            optionals = [tf.raw_ops.OptionalFromValue(components=get.outputs) for get in gets]
            first = tf.group(*_build_writes(places, optionals))
    return LoopInput(first, batches, gets, places)


def _is_of_turn(op: tf.Operation) -> bool:
    """Whether each turn makes `op` again: static shapes need axes and sizes to be in the body."""
    is_small = op.type == "Const" and (op.outputs[0].shape.num_elements() or 0) <= _MAX_SIZE
    return is_small or runs_each_time(op)


def _build_optional(get: tf.Operation) -> tf.Tensor:
    return tf.raw_ops.IteratorGetNextAsOptional(
        iterator=get.inputs[0],
        output_types=get.get_attr("output_types"),
        output_shapes=get.get_attr("output_shapes"),
    )


def _build_writes(
    places: Sequence[LoopOutput], optionals: Sequence[tf.Tensor]
) -> list[tf.Operation]:
    return [place.build_write(optional) for place, optional in zip(places, optionals, strict=True)]
