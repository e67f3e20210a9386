"""Checks whether metrics that are summed over replicas count every example.

Replicas evaluate different batches at the same time, each updating its own copy of a metric's
variables, and reading a value sums the copies. That is exact for `tf.compat.v1.metrics` and for
most Keras metrics, which only add up what they compute from each batch. It is wrong for a running
maximum, a running mean, or a value that reads a single copy. The ops of a metric show which kind it
is; anything that is not understood counts as inexact.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.model.replicas import Replicas
from estimator.model.state_changes import (
    ops_behind_fetches,
    resource_changes,
    resource_source,
)
from estimator.rewrite.graph_walk import function_nodes, inputs_of, nodes_inside, walk

_ADDS = {
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "ResourceScatterAdd",
    "ResourceScatterNdAdd",
    "ResourceScatterNdSub",
    "ResourceScatterSub",
}
_PYTHON = {"EagerPyFunc", "PyFunc"}
# Random numbers differ between batches anyway, so their state does not matter.
_RANDOM = re.compile(
    "(Stateless|Stateful)?(Random|Parameterized|Truncated|Multinomial|StandardNormal|Uniform|Rng)"
)


class NotSummableError(ValueError):
    """Raised if a metric's value over several replicas is not a sum of what each counted."""


def check_sums(values: Mapping[str, Any], fetches: Any, replicas: Replicas) -> None:
    """Raises an error unless each metric counts the examples of all replicas.

    Args:
      values: the metrics' values, by name.
      fetches: a nested structure of what else an evaluation runs. Only the ops that `fetches` and
        `values` need matter: a `train_op` that `model_fn` builds in every mode makes no difference.
      replicas: the replicas that built the metrics.

    Raises:
      NotSummableError: a metric does not, or it cannot be determined.
    """
    ops = ops_behind_fetches([values, fetches], replicas.new_ops)
    check = _SumCheck(ops, replicas.variables, len(replicas.outputs))
    for name, value in values.items():
        for tensor in tf.nest.flatten(value):
            for reason in check.why_not_sum(tensor):
                raise NotSummableError(f"the metric {name!r} {reason}")


class _SumCheck:
    """Analyzes the ops of metrics that were built on several replicas.

    Its methods yield the reasons why a metric is not a sum, of which the first is enough; none if
    it is a sum.
    """

    def __init__(
        self, ops: Iterable[tf.Operation], variables: Sequence[tf.Variable], num_replicas: int
    ) -> None:
        """Determines which of the ops change which resource."""
        self._num_replicas = num_replicas
        self._variable_of = {
            copy.handle.op: variable
            for variable in variables
            for copy in _tf.copies(variable)
            if hasattr(copy, "handle")
        }
        self._changes = resource_changes(ops)
        self._clear: set[tf.Operation] = set()  # Ops that an added value may depend on.
        graph = tf.compat.v1.get_default_graph()
        self._functions = functools.cache(lambda: function_nodes(graph))

    def why_not_sum(self, value: tf.Tensor) -> Iterator[str]:
        """Yields why a metric's value does not depend on sums alone."""

        def behind(op: tf.Operation) -> list[tf.Operation]:
            return inputs_of(op) if self._summed_variable(op) is None else []

        for op in walk([value.op], behind):
            variable = self._summed_variable(op)
            yield from self._why_unclear(op) if variable is None else self._why_not_added(variable)

    def _summed_variable(self, op: tf.Operation) -> tf.Variable | None:
        """Returns the variable whose copies on all replicas `op` sums; None if there is none."""
        if op.type != "AddN" or len(op.inputs) != self._num_replicas:
            return None
        handles = [_read_handle(tensor) for tensor in op.inputs]
        variable = None if handles[0] is None else self._variable_of.get(handles[0])
        if variable is None or variable.aggregation != tf.VariableAggregation.SUM:
            return None
        all_handles = {copy.handle.op for copy in _tf.copies(variable)}
        return variable if all_handles == set(handles) else None

    def _why_not_added(self, variable: tf.Variable) -> Iterator[str]:
        """Yields why a variable's copies are not sums that start at zero."""
        first = _tf.copies(variable)[0]
        start = tf.get_static_value(first.initial_value)
        if start is None or np.any(start != np.zeros_like(start)):
            yield f"has a variable that does not start at zero ({first.name})"
        for copy in _tf.copies(variable):
            for op in self._changes[copy.handle.op]:
                added = _added(op, copy.handle)
                if added is None:
                    yield f"changes a variable by something else than adding to it ({first.name})"
                for tensor in added or ():
                    yield from self._why_depends(tensor)

    def _why_depends(self, tensor: tf.Tensor) -> Iterator[str]:
        """Yields why an added value may depend on more than the batch."""

        def is_clear(op: tf.Operation) -> bool:
            return op in self._clear or _RANDOM.match(op.type) is not None

        def behind(op: tf.Operation) -> list[tf.Operation]:
            return [other for other in inputs_of(op) if not is_clear(other)]

        for op in walk([] if is_clear(tensor.op) else [tensor.op], behind):
            yield from self._why_unclear(op)
            self._clear.add(op)

    def _why_unclear(self, op: tf.Operation) -> Iterator[str]:
        """Yields why `op` may depend on what other batches left behind."""
        if self._runs_python(op):
            yield f"is computed by a Python function, which may keep a state ({op.name})"
        for tensor in op.inputs:
            if tensor.dtype == tf.resource and self._changes.get(resource_source(tensor)):
                yield f"reads what one replica counted ({resource_source(tensor).name})"
        if any(_tf.is_ref(tensor) for tensor in op.outputs):
            yield f"reads a variable without resource ({op.name})"

    def _runs_python(self, op: tf.Operation) -> bool:
        if not op.op_def.is_stateful:
            return False
        return any(node.op in _PYTHON for node in nodes_inside(op.node_def, self._functions))


def _read_handle(tensor: tf.Tensor) -> tf.Operation | None:
    """Returns the op that made the variable that `tensor` reads; None if it reads none."""
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor.op.inputs[0].op if tensor.op.type == "ReadVariableOp" else None


def _added(op: tf.Operation, handle: tf.Tensor) -> list[tf.Tensor] | None:
    """Returns what `op` adds to a variable; None if it may do something else."""
    if op.inputs[0] is not handle:
        return None
    if op.type in _ADDS:
        return list(op.inputs[1:])
    if op.type != "AssignVariableOp" or op.inputs[1].op.type not in ("Add", "AddV2"):
        return None
    terms = list(op.inputs[1].op.inputs)  # variable.assign(variable + x)
    others = [term for term in terms if _read_handle(term) is not handle.op]
    return others if len(others) == len(terms) - 1 else None
