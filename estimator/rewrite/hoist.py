"""Rebuilds initializers and tables, which `model_fn` builds inside a loop, outside of it.

A session cannot reach anything inside a loop, but `model_fn` builds what the session needs where it
is called, which is inside the loop's body.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_before
from estimator.rewrite.step_waits import Copies, SeparateCall, StepWaits

ONLY_IN_STEP = "which has a value only while a step runs"

# Maps an op in the body to the ops outside the loop that it waits for.
Waits: TypeAlias = dict[tf.Operation, list[tf.Operation]]


class Hoist:
    """Copies ops and tensors out of a loop's body, the default graph, for a session to run."""

    def __init__(
        self, waits: Waits, num_ops_before: int, copies: dict[tf.Operation, tf.Operation]
    ) -> None:
        """Remembers which ops of the body were there before the model.

        Args:
          waits: the ops outside the loop that each op of the body waits for, which the body's graph
            does not record.
          num_ops_before: the number of ops in the body before the model: those of the loop and the
            batch.
          copies: copies outside the loop that there are already, by their originals.
        """
        self._body = tf.compat.v1.get_default_graph()
        self._home = _tf.outer_graphs(self._body)[-1]
        self._waits = waits
        self._of_step = set(self._body.get_operations()[:num_ops_before])
        self._any_call = SeparateCall(copies=copies)
        self._copies = Copies()
        self._placeholders: dict[Any, tf.Tensor] = {}
        self._reads: dict[tf.Operation, tf.Tensor] = {}
        self._lock = threading.Lock()

    def copies_for(
        self, step_waits: StepWaits, fetched: Sequence[Any], fed: Sequence[Any]
    ) -> Callable[[Any], Any] | None:
        """Returns a function from what is in any graph to what a session fetches or feeds instead.

        Args:
          step_waits: what ops of the body wait for because of the order of a step.
          fetched: the ops, tensors and variables that a session call fetches.
          fed: the tensors that it feeds.

        Returns:
          The function; None if nothing of the call is in the body.
        """
        inside = [getattr(one, "op", one) for one in fetched]
        inside = [op for op in inside if op.graph is self._body]
        fed = [tensor for tensor in fed if tensor.graph is self._body]
        if not inside and not fed:
            return None
        return functools.partial(self._find_copy, step_waits.separate_call(inside, fed))

    def _find_copy(self, call: SeparateCall, value: Any) -> Any:
        """Returns what a session call fetches or feeds for an op or a tensor.

        For what `assign` has returned in the body, it assigns and reads the variable.
        """
        is_variable = isinstance(value, tf.Variable)
        element = value.op if is_variable else value
        if element.graph is not self._body:
            return element
        if isinstance(element, tf.Tensor) and element.ref() in call.fed:
            return self._placeholder(element)
        copy = self.build("`session.run`", element, call)
        return self._read_after(copy, value) if is_variable else copy

    def _placeholder(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns what a session feeds for a tensor of the body."""
        key = tensor.ref()
        if key not in self._placeholders:
            with self._home.as_default(), tf.init_scope():
                made = tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
            self._placeholders[key] = made
        return self._placeholders[key]

    def _read_after(self, assigned: tf.Operation, variable: tf.Variable) -> tf.Tensor:
        handle = self.build("`session.run`", variable.handle)
        with self._lock, self._home.as_default(), tf.init_scope():
            if assigned not in self._reads:
                with tf.control_dependencies([assigned]):
                    read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)
                self._reads[assigned] = read
        return self._reads[assigned]

    def build(self, argument: str, value: Any, call: SeparateCall | None = None) -> Any:
        """Returns the same value outside the loop; `value` itself if it is already there.

        Args:
          argument: the name for it in an error.
          value: an op or a tensor.
          call: the session call that runs it; None if any may.

        Raises:
          ValueError: `value` exists only while a step runs.
        """
        call = call or self._any_call
        # A hook may call this in a thread of its own, whose default graph is another one.
        with (
            self._lock,
            self._home.as_default(),
            tf.init_scope(),
            tf.compat.v1.name_scope(None),
        ):
            if isinstance(value, tf.Operation):
                return self._op(argument, value, call)
            source = _tf.capture_source(value)
            return self._op(argument, source.op, call).outputs[source.value_index]

    def _op(self, argument: str, op: tf.Operation, call: SeparateCall) -> tf.Operation:
        copies = call.copies  # What is outside the loop has none.

        def is_lacking(other: tf.Operation) -> bool:
            return other.graph is not self._home and other not in copies

        def waits(other: tf.Operation) -> list[tf.Operation]:
            return [*call.control_inputs_of(other), *self._waits.get(other, ())]

        def behind(other: tf.Operation) -> list[tf.Operation]:
            taken = (tensor for tensor in other.inputs if tensor.ref() not in call.fed)
            return [*(_tf.capture_source(tensor).op for tensor in taken), *waits(other)]

        def copied(tensor: tf.Tensor) -> tf.Tensor:
            if tensor.ref() in call.fed:
                return self._placeholder(tensor)
            source = _tf.capture_source(tensor)
            return copies.get(source.op, source.op).outputs[source.value_index]

        for each in ops_before([op], is_lacking, behind):
            self._check(argument, each)
            inputs = [copied(tensor) for tensor in each.inputs]
            before = [copies.get(other, other) for other in waits(each)]
            copies[each] = self._copies.build(each, inputs, before)
        return copies.get(op, op)

    def _check(self, argument: str, op: tf.Operation) -> None:
        if op.graph is self._body and (op not in self._of_step or op.type == "Const"):
            return
        raise ValueError(
            f"{argument} needs {op.name!r}, {ONLY_IN_STEP}. Make it of variables and constants, or "
            "train with `iterations_per_loop=1`."
        )


def build_table_initializers(hoist: Hoist) -> None:
    """Moves the initializers of tables made in a loop's body to where sessions find them.

    Raises:
      ValueError: a saver would have to save a table that was made in the body.
    """
    # A loop and the graph around it share their collections.
    keys = tf.compat.v1.GraphKeys
    collection = tf.compat.v1.get_collection_ref(keys.TABLE_INITIALIZERS)
    collection[:] = [hoist.build("The initializer of a table", op) for op in collection]
    for saveable in tf.compat.v1.get_collection(keys.SAVEABLE_OBJECTS):
        tensors = [spec.tensor for spec in getattr(saveable, "specs", ())]
        if any(_tf.is_loop_body(tensor.graph) for tensor in tensors):
            raise ValueError(
                f"{saveable.name!r} is saved in checkpoints and was made inside the loop, where no "
                "saver reaches it. Make the table in `model_fn` in a `with tf.init_scope():`, or "
                "train with `iterations_per_loop=1`."
            )


def without_waits(waits: Waits, step_ops: list[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields the ops outside the loop that none of a step's ops waits for."""
    wanted = {outer for op in step_ops for outer in waits.get(op, ())}
    for outer_ops in waits.values():
        yield from (outer for outer in outer_ops if outer not in wanted)
