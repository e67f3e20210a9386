"""Reduces losses and metrics over replicas."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_behind
from estimator.rewrite.updates import assignments, build_order
from estimator.spec import EstimatorSpec

# The keys that `evaluate` returns besides the metrics.
_RESULTS = ("loss", "global_step")


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Streaming metrics of all replicas.

    Attributes:
      values: by name, the metric's current value over the examples of all replicas.
      updates: for each replica, the ops or tensors that add its batch to the metrics.
    """

    values: dict[str, tf.Tensor]
    updates: list[list[Any]]


def build_mean_loss(losses: Sequence[tf.Tensor], num_replicas: int) -> tf.Tensor:
    """Returns the mean loss over replicas: scalar, float32, on the host.

    Args:
      losses: the losses of this worker's replicas.
      num_replicas: the number of replicas of all workers; with several workers the result is this
        worker's share, to be summed over the workers.
    """
    with tf.device("/cpu:0"):
        scalars = [tf.cast(tf.reshape(loss, []), tf.float32) for loss in losses]
        if num_replicas == 1:
            return scalars[0]
        return tf.add_n(scalars) * (1.0 / num_replicas)


def build_metrics(metric_ops: Sequence[dict[str, Any]], new_ops: Sequence[tf.Operation]) -> Metrics:
    """Combines the replicas' metrics.

    The variables of `tf.compat.v1.metrics` and of Keras metrics are summed over replicas when they
    are read, so a value covers all examples, however they were distributed.

    Args:
      metric_ops: for each replica, by name, a (value, update) pair or a Keras metric object.
      new_ops: the ops that the replicas' model_fns made.
    """
    values: dict[str, tf.Tensor] = {}
    update_ops: list[list[Any]] = [[] for _ in metric_ops]
    writes = _writes(metric_ops, new_ops)
    of_keras: set[tf.Operation] = set()
    for name in metric_ops[0]:
        metrics = [ops[name] for ops in metric_ops]
        if isinstance(metrics[0], tuple | list):
            # Reads a variable in cross-replica context.
            values[name] = tf.nest.map_structure(_as_tensor, metrics[0][0])
            for replica, (_, update) in enumerate(metrics):
                update_ops[replica].append(update)
        else:
            # Read in cross-replica context, after whatever the session ran before.
            values[name] = tf.convert_to_tensor(metrics[0].result())
            for replica, metric in enumerate(metrics):
                assignments = _assignments(metric, replica, writes)
                if not assignments:
                    raise ValueError(
                        f"`eval_metric_ops[{name!r}]` ({metric!r}) was not updated. Call its "
                        "`update_state` in `model_fn`."
                    )
                update_ops[replica].extend(assignments)
                of_keras.update(assignments)
    _order_updates(of_keras, list(values.values()), new_ops)
    return Metrics(values, update_ops)


def _order_updates(
    of_keras: set[tf.Operation], values: Sequence[Any], new_ops: Sequence[tf.Operation]
) -> None:
    """Lets the updates of Keras metrics read and assign in the order of the code.

    What only the metrics' values need must run without a batch, so it waits for no update.
    """
    made = set(new_ops)
    needed = ops_behind(of_keras, made)
    tensors = tf.nest.flatten(values, expand_composites=True)
    unordered = ops_behind([tensor.op for tensor in tensors], made)
    build_order([op for op in new_ops if op in needed], of_keras, left_to_hooks=unordered)


def check_metric_names(metric_ops: Mapping[str, Any]) -> None:
    """Raises an error if a metric has the name of another result of `evaluate`."""
    for name in _RESULTS:
        if name in metric_ops:
            raise ValueError(
                f"`eval_metric_ops` has the name {name!r}, under which `evaluate` returns its own "
                f"result. Rename it, as in 'my_{name}'."
            )


def _as_tensor(value: Any) -> tf.Tensor:
    return tf.convert_to_tensor(value) if isinstance(value, tf.Variable) else value


def keep_metrics_local(metric_ops: Mapping[str, Any]) -> None:
    """Makes Keras metrics' variables local: checkpoints omit them and a reset clears them.

    `tf.compat.v1.metrics` makes local variables itself. Those of Keras 3 metrics are global, and
    those of tf-keras metrics are in no collection.
    """
    for metric in metric_ops.values():
        if not isinstance(metric, tuple | list):
            keep_local([part for parts in _tf.metric_variables(metric) for part in parts])


def keep_local(parts: Sequence[tf.Variable]) -> None:
    """Moves variables, each a single copy, to the collection of local variables."""
    take_out(parts)
    local = _collection(tf.compat.v1.GraphKeys.LOCAL_VARIABLES)
    there = {id(copy) for variable in local for copy in _tf.copies(variable)}
    local.extend(part for part in parts if id(part) not in there)


def take_out(parts: Sequence[tf.Variable]) -> None:
    """Takes variables, each a single copy, out of the collections of global variables."""
    ids = {id(part) for part in parts}
    keys = tf.compat.v1.GraphKeys
    for key in (keys.GLOBAL_VARIABLES, keys.TRAINABLE_VARIABLES):
        collection = _collection(key)
        collection[:] = [v for v in collection if ids.isdisjoint(map(id, _tf.copies(v)))]


def place_metrics(variables: Sequence[tf.Variable], specs: Sequence[EstimatorSpec]) -> None:
    """Makes each variable of a Keras 3 metric global or local that is neither so far.

    Those that the results of an evaluation read are global: training may have saved them. So are
    those that it does not assign, which a hook may read. Others, as of a metric that `add_metrics`
    replaces, are local: it may be that only evaluations make them, and no checkpoint has them.

    Args:
      variables: those that `take_out` was given while `model_fn` ran.
      specs: the result of each replica's `model_fn`.
    """
    keys = tf.compat.v1.GraphKeys
    local = {id(copy) for v in _collection(keys.LOCAL_VARIABLES) for copy in _tf.copies(v)}
    left = [v for v in variables if local.isdisjoint(map(id, _tf.copies(v)))]
    if not left:
        return
    behind = ops_behind([op for spec in specs for op in _ops_of_results(spec)])
    for variable in left:
        parts = _tf.copies(variable)
        is_read = any(part.handle.op in behind for part in parts)
        # Its initializer is no assignment once the variable is in a collection.
        _collection(keys.GLOBAL_VARIABLES).append(variable)
        if not is_read and any(assignments(part.handle.consumers()) for part in parts):
            keep_local(parts)


def _ops_of_results(spec: EstimatorSpec) -> Iterator[tf.Operation]:
    """Yields the ops of the loss, of pairs, and of all uses of the variables of Keras metrics."""
    results = [spec.loss]
    for metric in spec.eval_metric_ops.values():
        if isinstance(metric, tuple | list):
            results += tf.nest.flatten(metric, expand_composites=True)
        else:
            parts = [part for parts in _tf.metric_variables(metric) for part in parts]
            yield from (op for part in parts for op in part.handle.consumers())
    yield from (getattr(result, "op", result) for result in results)


def _collection(key: str) -> list[Any]:
    graph = _tf.outer_graphs(tf.compat.v1.get_default_graph())[-1]
    return graph.get_collection_ref(key)


def _writes(
    metric_ops: Sequence[Mapping[str, Any]], new_ops: Sequence[tf.Operation]
) -> dict[Any, list[tf.Operation]]:
    """Maps each variable's handle to the ops that change it, including function calls.

    Empty unless there are Keras metrics, whose updates have to be found.
    """
    writes: dict[Any, list[tf.Operation]] = collections.defaultdict(list)
    if all(isinstance(metric, tuple | list) for metric in metric_ops[0].values()):
        return writes
    for op in new_ops:
        for handle in _tf.written_handles(op):
            writes[_tf.variable_source(handle).ref()].append(op)
    return writes


def _assignments(
    metric: Any, replica: int, writes: Mapping[Any, list[tf.Operation]]
) -> list[tf.Operation]:
    """Returns the ops with which `update_state` of a Keras metric changed its variables."""
    variables = [copies[replica] for copies in _tf.metric_variables(metric)]
    initializers = {variable.initializer for variable in variables}
    ops = [op for variable in variables for op in writes.get(variable.handle.ref(), [])]
    return [op for op in dict.fromkeys(ops) if op not in initializers]
