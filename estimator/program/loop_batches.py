"""Takes the batch of each loop iteration while the previous iteration runs.

A loop continues only if there is a batch for its next iteration, so the end of the input is part of
the loop's own condition, and a loop cut short by the input ends like any other: with its loss, its
summaries and whatever hooks fetched. No iteration takes more than the loop will use, so between
session calls the input's position is exactly after the batches of the finished steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input.input_calls import Input, batch_tensors, build_replica_batches
from estimator.program.waiting_batch import WaitingBatch, build_waiting_batch
from estimator.rewrite.graph_walk import ops_before, ops_behind, waits_of
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time
from estimator.runtime.local import Runtime

_GETS = ("IteratorGetNext", "IteratorGetNextSync")
_COUNTERS = ("CountUpTo", "ResourceCountUpTo")  # Of `limit_epochs`.
_MAX_SIZE = 8  # The largest constant that may describe a shape.
_SCOPE = "training/first_batches"


@dataclasses.dataclass(frozen=True)
class LoopInput:
    """The input of a loop, which its iterations take from iterators."""

    _batches: list[Any]
    _summaries: Sequence[tf.Tensor]
    _waiting: Sequence[WaitingBatch]

    def build_first(self) -> tf.Operation:
        """Takes the first iteration's batches; raises OutOfRangeError if there are none."""
        taken: list[tf.Operation] = []
        with _before_loop():
            for one in self._waiting:
                with tf.control_dependencies(taken):
                    taken.append(_tf.copy_op(one.get, list(one.get.inputs)))
            writes: list[tf.Operation] = []
            with tf.control_dependencies(taken):
                for one, get in zip(self._waiting, taken, strict=True):
                    optional = tf.raw_ops.OptionalFromValue(components=get.outputs)
                    writes.append(one.build_write(optional))
                    writes += one.build_copies(one.to_copy(get.outputs))
                return tf.group(*writes)

    def build_has_first(self) -> tf.Tensor:
        """Takes the first iteration's batches; returns whether there are any: scalar, bool."""
        with _before_loop():
            has_first, *values = self._build_take()
            with tf.control_dependencies(self._build_copies(values)):
                return tf.identity(has_first)

    def build_batches(self, is_next_wanted: tf.Tensor) -> IterationInput:
        """Builds, in the loop's body, the input of an iteration, which takes the next one's, too.

        What is on the host has the name that it would have without a loop, after which K-FAC names
        variables.

        Args:
          is_next_wanted: scalar, bool: whether the next iteration's batches are to be taken.
        """
        values: dict[tf.Operation, list[tf.Tensor]] = {}
        on_gpu: list[tf.Tensor] = []
        with tf.device("/cpu:0"):
            for one in self._waiting:
                values[one.get], copied = one.build_read(_name_alone(one.get))
                on_gpu += copied
            batches, summaries = build_copy(
                (self._batches, list(self._summaries)), _is_copied, values, copies_waits=True
            )
            tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES).extend(summaries)
            # The host need not wait for the GPU.
            there = {tensor.op for tensor in on_gpu}
            here = {tensor.op for tensor in batch_tensors(batches)} - there
            with tf.control_dependencies(here):
                has_next, *copied = _tf.cond(
                    is_next_wanted, self._build_take, self._build_none, name="next_batches"
                )
        with tf.control_dependencies(there):
            return IterationInput(batches, summaries, has_next, self._build_copies(copied))

    def _build_take(self) -> list[tf.Tensor]:
        """Takes an iteration's batches, one after the other.

        Returns:
          Whether there were any (scalar, bool), and what of them is copied to a GPU.
        """
        optionals: list[tf.Tensor] = []
        for one in self._waiting:
            with tf.control_dependencies([optional.op for optional in optionals]):
                optionals.append(one.build_taken())
        has_values = [tf.raw_ops.OptionalHasValue(optional=o) for o in optionals]
        copied: list[tf.Tensor] = []
        for one, optional, has_value in zip(self._waiting, optionals, has_values, strict=True):
            copied += one.build_values(optional, has_value)
        pairs = zip(self._waiting, optionals, strict=True)
        with tf.control_dependencies([one.build_write(optional) for one, optional in pairs]):
            if len(has_values) == 1:
                return [tf.identity(has_values[0]), *copied]
            return [tf.reduce_all(tf.stack(has_values)), *copied]

    def _build_none(self) -> list[tf.Tensor]:
        """Takes no batches; returns what `_build_take` would if there were none."""
        copied = [value for one in self._waiting for value in one.build_no_values()]
        return [tf.constant(False), *copied]

    def _build_copies(self, values: Iterable[tf.Tensor]) -> list[tf.Operation]:
        """Copies to the GPU what `_build_take` has returned for it."""
        rest = iter(values)
        return [
            copy
            for one in self._waiting
            for copy in one.build_copies(list(itertools.islice(rest, one.num_copied)))
        ]


@dataclasses.dataclass(frozen=True)
class IterationInput:
    """The input of one iteration of a loop.

    Attributes:
      batches: one for each replica.
      summaries: those of `input_fn`, of these batches; in the collection of all summaries.
      has_next: scalar, bool: whether the next iteration's batches were taken.
      copies: ops for the iteration to run, which copy batches of the next one to a GPU.
    """

    batches: list[Any]
    summaries: list[tf.Tensor]
    has_next: tf.Tensor
    copies: list[tf.Operation]


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


def build_loop_input(
    source: Input, summaries: Sequence[tf.Tensor], runtime: Runtime
) -> Input | LoopInput:
    """Builds a loop's input from `source`; returns `source` if the iterations read it directly.

    They do if it looks ahead itself, or if its end cannot be detected in advance. That is the case
    without an iterator, and with `limit_epochs`: queues, Python functions and counters signal their
    end by an error, and constants never end. It is also the case if an iterator waits for an op
    with side effects, which must run once for each batch.

    Args:
      source: the input.
      summaries: those that `input_fn` has made.
      runtime: where the replicas run, which take a batch each in every iteration.
    """
    if source.looks_ahead:
        return source
    graph = tf.compat.v1.get_default_graph()
    with _before_loop():
        batches, _ = build_replica_batches(source, runtime.num_local_replicas)
        behind = set(ops_before(batch_tensors(batches), runs_each_time, waits_of))
        gets = [op for op in graph.get_operations() if op in behind and op.type in _GETS]
        # Replicas take their batches in turn: those of others wait for the first one's.
        of_first = set(ops_before(batch_tensors(batches[0]), runs_each_time))
        waited_for = ops_behind(o for get in gets if get in of_first for o in get.control_inputs)
        has_effects = any(map(_has_side_effect, waited_for))
        if not gets or has_effects or any(op.type in _COUNTERS for op in behind):
            return source
        waiting = [build_waiting_batch(get, runtime.only_gpu) for get in gets]
        return LoopInput(batches, summaries, waiting)


def _has_side_effect(op: tf.Operation) -> bool:
    return op.op_def.is_stateful and op.type not in _GETS and runs_each_time(op)


def _is_copied(op: tf.Operation) -> bool:
    """Returns whether iterations rebuild `op`; small constants keep shapes static in the body."""
    is_small = op.type == "Const" and (op.outputs[0].shape.num_elements() or 0) <= _MAX_SIZE
    return is_small or runs_each_time(op)
