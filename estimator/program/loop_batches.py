"""Takes the batch of each loop iteration while the previous iteration runs.

A loop continues only if there is a batch for its next iteration, so the end of the input is part of
the loop's own condition, and a loop cut short by the input ends like any other: with its loss, its
summaries and whatever hooks fetched. No iteration takes more than the loop will use, so between
session calls the input's position is exactly after the batches of the finished steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input.input_calls import Input, batch_tensors, build_replica_batches
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.rewrite.graph_walk import ops_before, ops_behind, waits_of
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time

_GETS = ("IteratorGetNext", "IteratorGetNextSync")
_COUNTERS = ("CountUpTo", "ResourceCountUpTo")  # Of `limit_epochs`.
_MAX_SIZE = 8  # The largest constant that may describe a shape.
_SCOPE = "training/first_batches"


@dataclasses.dataclass(frozen=True)
class LoopInput:
    """The input of a loop, which its iterations take from iterators.

    A batch waits in a resource on the host. As a loop variable it would be copied to the loop's
    device, which some types do not allow.
    """

    _batches: list[Any]
    _gets: Sequence[tf.Operation]
    _places: Sequence[LoopOutput]

    def build_first(self) -> tf.Operation:
        """Takes the first iteration's batches; raises OutOfRangeError if there are none."""
        taken: list[tf.Operation] = []
        with _before_loop():
            for get in self._gets:
                with tf.control_dependencies(taken):
                    taken.append(_tf.copy_op(get, list(get.inputs)))
            with tf.control_dependencies(taken):
                optionals = [tf.raw_ops.OptionalFromValue(components=get.outputs) for get in taken]
                return tf.group(*self._build_writes(optionals))

    def build_has_first(self) -> tf.Tensor:
        """Takes the first iteration's batches; returns whether there are any: scalar, bool."""
        with _before_loop():
            return self._build_take()

    def build_batches(self) -> list[Any]:
        """Returns the batches of an iteration, one for each replica, in the loop's body.

        A dataset's have the names that they would have without a loop, after which K-FAC names
        variables.
        """
        values: dict[tf.Operation, tf.Operation] = {}
        with tf.device("/cpu:0"):
            for get, place in zip(self._gets, self._places, strict=True):
                components = tf.raw_ops.OptionalGetValue(
                    optional=place.build_read(), **_types_of(get), name=_name_alone(get)
                )
                values[get] = components[0].op
            return build_copy(self._batches, _is_copied, values, copies_waits=True)

    def build_next(self, is_wanted: tf.Tensor, batches: Any) -> tf.Tensor:
        """Takes the next iteration's batches if `is_wanted`; returns whether there are any.

        Args:
          is_wanted: scalar, bool.
          batches: this iteration's batches, which are read first.
        """
        read = {tensor.op for tensor in batch_tensors(batches)}
        with tf.device("/cpu:0"), tf.control_dependencies(read):
            return _tf.cond(
                is_wanted, self._build_take, lambda: tf.constant(False), name="next_batches"
            )

    def _build_take(self) -> tf.Tensor:
        """Takes an iteration's batches, one after the other; returns whether there were any."""
        optionals: list[tf.Tensor] = []
        for get in self._gets:
            with tf.control_dependencies([optional.op for optional in optionals]):
                optional = tf.raw_ops.IteratorGetNextAsOptional(
                    iterator=get.inputs[0], **_types_of(get)
                )
                optionals.append(optional)
        has_values = [tf.raw_ops.OptionalHasValue(optional=o) for o in optionals]
        with tf.control_dependencies(self._build_writes(optionals)):
            if len(has_values) == 1:
                return tf.identity(has_values[0])
            return tf.reduce_all(tf.stack(has_values))

    def _build_writes(self, optionals: Sequence[tf.Tensor]) -> list[tf.Operation]:
        pairs = zip(self._places, optionals, strict=True)
        return [place.build_write(optional) for place, optional in pairs]


@contextlib.contextmanager
def _before_loop() -> Iterator[None]:
    with tf.device("/cpu:0"), tf.name_scope(_SCOPE):
        yield


def _name_alone(get: tf.Operation) -> str:
    """Returns the name of `get` without a loop, with a slash, which has TensorFlow keep it."""
    name = get.name
    if name.startswith(f"{_SCOPE}/"):
        with tf.compat.v1.name_scope(None):
            graph = tf.compat.v1.get_default_graph()
            name = graph.unique_name(name.removeprefix(f"{_SCOPE}/"))
    return f"{name}/"


def build_loop_input(source: Input, num_replicas: int) -> Input | LoopInput:
    """Builds a loop's input from `source`; returns `source` if the iterations read it directly.

    They do if it looks ahead itself, or if its end cannot be detected in advance. That is the case
    without an iterator, and with `limit_epochs`: queues, Python functions and counters signal their
    end by an error, and constants never end. It is also the case if an iterator waits for an op
    with side effects, which must run once for each batch.

    Args:
      source: the input.
      num_replicas: the number of replicas, which take a batch each in every iteration.
    """
    if source.looks_ahead:
        return source
    graph = tf.compat.v1.get_default_graph()
    with _before_loop():
        batches, _ = build_replica_batches(source, num_replicas)
        behind = set(ops_before(batch_tensors(batches), runs_each_time, waits_of))
        gets = [op for op in graph.get_operations() if op in behind and op.type in _GETS]
        # Replicas take their batches in turn: those of others wait for the first one's.
        of_first = set(ops_before(batch_tensors(batches[0]), runs_each_time))
        waited_for = ops_behind(o for get in gets if get in of_first for o in get.control_inputs)
        has_effects = any(map(_has_side_effect, waited_for))
        if not gets or has_effects or any(op.type in _COUNTERS for op in behind):
            return source
        places = [build_loop_output(tf.variant, "batch", tf.raw_ops.OptionalNone()) for _ in gets]
        return LoopInput(batches, gets, places)


def _has_side_effect(op: tf.Operation) -> bool:
    return op.op_def.is_stateful and op.type not in _GETS and runs_each_time(op)


def _is_copied(op: tf.Operation) -> bool:
    """Returns whether iterations rebuild `op`; small constants keep shapes static in the body."""
    is_small = op.type == "Const" and (op.outputs[0].shape.num_elements() or 0) <= _MAX_SIZE
    return is_small or runs_each_time(op)


def _types_of(get: tf.Operation) -> dict[str, Any]:
    return {name: get.get_attr(name) for name in ("output_types", "output_shapes")}
