"""Finds the resources that the ops of a graph change, and whether a later call reads them."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import function_nodes, nodes_inside, ops_behind

# Ops that take a resource without changing it, although TensorFlow does not mark them so.
_READS = {"LookupTableExportV2", "LookupTableFindV2", "LookupTableSizeV2", "VarIsInitializedOp"}
# Resources that live for one session call, or that are only written to.
_NO_STATE = {"StackV2", "SummaryWriter", "TensorArrayV3"}


def leaves_state(
    fetches: Any, new_ops: Sequence[tf.Operation], reset: Sequence[tf.Variable]
) -> bool:
    """Returns whether running `fetches` changes what another call reads.

    That is any resource but the variables that are reset, and the place in its stream that a random
    op with a seed keeps in its kernel.

    Args:
      fetches: a nested structure of tensors and ops.
      new_ops: the ops that the replicas made, except initializers.
      reset: variables that each call sets to their initial values.
    """
    resources = {
        copy.handle.op
        for variable in reset
        for copy in _tf.copies(variable)
        if hasattr(copy, "handle")
    }
    ops = list(ops_behind_fetches(fetches, new_ops))
    return not resources.issuperset(resource_changes(ops)) or _draws_with_seed(ops)


def _draws_with_seed(ops: Iterable[tf.Operation]) -> bool:
    graph = tf.compat.v1.get_default_graph()
    functions = functools.cache(lambda: function_nodes(graph))
    stateful = (op.node_def for op in ops if op.op_def.is_stateful)
    nodes = (node for outer in stateful for node in nodes_inside(outer, functions))
    return any(
        node.attr[name].i for node in nodes for name in ("seed", "seed2") if name in node.attr
    )


def ops_behind_fetches(fetches: Any, new_ops: Sequence[tf.Operation]) -> Iterable[tf.Operation]:
    """Returns the new ops that run when `fetches` are run."""
    ops = [getattr(fetch, "op", fetch) for fetch in tf.nest.flatten(fetches)]
    return ops_behind(ops, set(new_ops))


def resource_changes(ops: Iterable[tf.Operation]) -> dict[tf.Operation, list[tf.Operation]]:
    """Maps the op that made a resource to the ops that may change the resource."""
    v1 = tf.compat.v1
    initializers = set(v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS))
    changes: dict[tf.Operation, list[tf.Operation]] = collections.defaultdict(list)
    for op in ops:
        if op.type not in _READS and op not in initializers:
            for handle in _tf.written_resources(op):
                source = resource_source(handle)
                if source.type not in _NO_STATE:
                    changes[source].append(op)
    return changes


def resource_source(handle: tf.Tensor) -> tf.Operation:
    """Returns the op that made a resource, looking through v1 branches and loops."""
    while handle.op.type in ("Enter", "Identity", "Switch"):
        handle = handle.op.inputs[0]
    return handle.op
