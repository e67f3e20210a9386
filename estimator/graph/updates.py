"""State updates that belong to a train step although nothing in `model_fn` waits for them.

Keras layers and optimizers are written for eager order: they assign and return nothing. In a graph
that would mean that a session never runs the assignment, or runs it before a read that the Python
code put first. `build_updates` finds these assignments and gives them the order they were written
in. v1 layers put theirs in the collection UPDATE_OPS, which many a `model_fn` forgets to wire.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Sequence

import tensorflow as tf

from estimator import _tf

_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}
_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStrided")


def build_updates(
    new_ops: Sequence[tf.Operation],
    keras_variables: Sequence[tf.Tensor],
    global_step: tf.Variable,
    conditional: Sequence[tf.Operation] = (),
    counting: Collection[tf.Operation] | None = None,
) -> list[tf.Operation]:
    """Orders what Keras assigns in `new_ops` and returns all updates that a step must run.

    The global step is ordered too: what reads it before the `train_op` is made, as a summary or a
    `host_call` may, reads the step before.

    Every read of an assigned variable waits for the assignments made before it, and every
    assignment waits for the reads and assignments made before it. Edges run from older ops to
    newer ones only, so there is never a cycle.

    Args:
      new_ops: the ops that `model_fn` made in the default graph, in the order they were made.
      keras_variables: handles of the variables that Keras made. Several replicas assign to them
        in one place, where Keras is not on the stack.
      global_step: ordered; the `train_op` runs what counts it.
      conditional: conds of the step that may assign to each of the variables that they take.
      counting: what the step runs; another thread may run what else counts the global step, as
        that of a SyncReplicasOptimizer does. None is `new_ops`.

    Returns:
      The assignments made by Keras, and the ops of UPDATE_OPS that are among `new_ops`.
    """
    unfed = _behind_placeholders(new_ops)
    new_ops = [op for op in new_ops if op not in unfed]
    handles = {handle.ref() for handle in keras_variables}
    assigned = [
        op
        for op in assignments(new_ops)
        if _tf.is_made_by_keras(op) or _tf.capture_source(op.inputs[0]).ref() in handles
    ]
    counts = writes_to(assignments(new_ops), global_step)
    if counting is not None:
        counts = [op for op in counts if op in counting]
    build_order(new_ops, {*counts, *assigned, *conditional})
    wired = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    made = set(new_ops)
    return assigned + [op for op in map(_as_op, wired) if op in made]


def build_order(new_ops: Sequence[tf.Operation], writes: set[tf.Operation]) -> None:
    """Orders each of `writes` with the ops of the same variable as they were made.

    Args:
      new_ops: all that were made, in that order.
      writes: those of them that assign, or, if they run a function, may.
    """
    by_variable = collections.defaultdict(list)
    for op in new_ops:
        if _reads_foreign_write(op, writes):
            continue  # No step may wait for what a saver or a hook may run one day.
        for tensor in op.inputs:
            if tensor.dtype == tf.resource:
                by_variable[tensor.ref()].append(op)
    made = {op: place for place, op in enumerate(new_ops)}
    for ops in by_variable.values():
        if not writes.isdisjoint(ops):
            _add_order(ops, writes, made)


def writes_to(ops: Sequence[tf.Operation], variable: tf.Variable) -> list[tf.Operation]:
    """Those of some assignments that assign to `variable`."""
    handles = {copy.handle.ref() for copy in _tf.copies(variable)}
    return [op for op in ops if _tf.capture_source(op.inputs[0]).ref() in handles]


def assignments(new_ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The ops among `new_ops` that change a variable in a step: no initializer, no restore."""
    initializers = _initializers()
    return [
        op
        for op in new_ops
        if op.type.startswith(_WRITES)
        and op.inputs
        and op.inputs[0].dtype == tf.resource
        and op not in initializers
        and not _is_restore(op)
    ]


def _add_order(
    ops: Iterable[tf.Operation], writes: set[tf.Operation], made: dict[tf.Operation, int]
) -> None:
    last_write: list[tf.Operation] = []
    reads_since: list[tf.Operation] = []
    for op in ops:
        if op in writes:
            place = made[op]
            reads = [
                end for read in reads_since for end in _ends(read) if made.get(end, place) < place
            ]
            _tf.add_control_inputs(op, [*last_write, *reads])
            last_write, reads_since = _ends(op), []
        elif op.type in _READS or runs_a_function(op):
            _tf.add_control_inputs(op, last_write)
            reads_since.append(op)


def runs_a_function(op: tf.Operation) -> bool:
    """Whether `op` may read the variable inside a function body: a cond, a loop or a call."""
    return any(attribute.HasField("func") for attribute in op.node_def.attr.values())


def _ends(op: tf.Operation) -> list[tf.Operation]:
    """What runs after all of `op`.

    Who waits for a cond or a loop alone waits for its start, once a session has taken it apart;
    its outputs come after what happens inside.
    """
    if not runs_a_function(op):
        return [op]
    return [op, *(c for out in op.outputs for c in out.consumers() if c.type == "Identity")]


def _initializers() -> set[tf.Operation]:
    graph = _tf.outer_graphs(tf.compat.v1.get_default_graph())[-1]
    keys = tf.compat.v1.GraphKeys
    variables = graph.get_collection(keys.GLOBAL_VARIABLES)
    variables += graph.get_collection(keys.LOCAL_VARIABLES)
    return {copy.initializer for variable in variables for copy in _tf.copies(variable)}


def _behind_placeholders(new_ops: Sequence[tf.Operation]) -> set[tf.Operation]:
    """The ops that need what nobody feeds.

    A functional tf-keras model is first built on placeholders, its `Input`s, and then called on
    the features, which builds its updates once more.
    """
    found: set[tf.Operation] = set()
    for op in new_ops:
        is_fed = op.type != "Placeholder" or _tf.capture_source(op.outputs[0]) is not op.outputs[0]
        if not is_fed or any(tensor.op in found for tensor in op.inputs):
            found.add(op)
    return found


def _reads_foreign_write(op: tf.Operation, writes: set[tf.Operation]) -> bool:
    """Whether `op` is the read that follows an assignment that no step runs."""
    return any(
        other.type.startswith(_WRITES)
        and other not in writes
        and other.inputs[0].ref() in {tensor.ref() for tensor in op.inputs}
        for other in op.control_inputs
    )


def _is_restore(op: tf.Operation) -> bool:
    """Whether `op` assigns what a file holds: it belongs to a saver or is an initializer."""
    if not op.type.startswith(_WRITES) or len(op.inputs) < 2:
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return source.type == "RestoreV2"


def _as_op(update: tf.Operation | tf.Tensor) -> tf.Operation:
    return update if isinstance(update, tf.Operation) else update.op
