"""State updates that belong to a train step although nothing in `model_fn` waits for them.

Keras layers and optimizers are written for eager order: they assign and return nothing. In a graph
that would mean that a session never runs the assignment, or runs it before a read that the Python
code put first. `build_updates` finds these assignments and gives them the order they were written
in. v1 layers put theirs in the collection UPDATE_OPS, which many a `model_fn` forgets to wire.

A cond, a loop or a call of a `tf.function` that assigns is an assignment like any other. What runs
inside is settled when it is made: all of a `tf.function` by TensorFlow, and what Keras assigns in a
branch or in a loop by `wiring_branches`.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import ops_behind, waits_of

_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}


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
    assigning = assignments(new_ops)
    assigned = _of_keras(assigning, {handle.ref() for handle in keras_variables})
    made = set(new_ops)
    wired = [
        op
        for op in map(_as_op, tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))
        if op in made
    ]
    runs = made if counting is None else {*counting, *wired, *assigned, *conditional}
    counts = [op for op in writes_to(assigning, global_step) if op in runs]
    idle = {op for op in assigning if op not in runs}
    build_order(new_ops, {*counts, *assigned, *conditional}, idle)
    return assigned + wired


def wiring_branches(
    keras_variables: Sequence[tf.Tensor], is_wanted: Callable[[tf.Tensor], bool]
) -> contextlib.AbstractContextManager[None]:
    """Inside, what Keras assigns in a branch of a cond or in a loop runs whenever that does.

    In a v1 graph TensorFlow runs of a branch only what its outputs need.

    Args:
      keras_variables: handles of the variables that Keras made; it may still grow.
      is_wanted: whether what assigns to the variable of a handle is to run.
    """

    def wire(branch: Any) -> None:
        ops = branch.get_operations()
        if not any(map(_tf.written_handles, ops)):
            return
        handles = {handle.ref() for handle in keras_variables}
        assigned = [
            op for op in _of_keras(assignments(ops), handles) if any(map(is_wanted, _written(op)))
        ]
        build_order(ops, set(assigned))
        branch.control_outputs.extend(assigned)

    return _tf.branches_noted(wire)


def build_order(
    new_ops: Sequence[tf.Operation],
    writes: set[tf.Operation],
    idle: Collection[tf.Operation] = frozenset(),
) -> None:
    """Orders each of `writes` with the ops of the same variable as they were made.

    Args:
      new_ops: all that were made, in that order.
      writes: those of them that assign.
      idle: those that would assign, but no step runs them: nothing waits for them.
    """
    written = {op: {handle.ref() for handle in _tf.written_handles(op)} for op in writes}
    by_variable = collections.defaultdict(list)
    for op in new_ops:
        handles = {tensor.ref() for tensor in op.inputs if tensor.dtype == tf.resource}
        if not handles or op in idle or _reads_foreign_write(op, handles, writes):
            continue  # No step may wait for what a saver or a hook may run one day.
        for handle in handles:
            by_variable[handle].append(op)
    made = {op: place for place, op in enumerate(new_ops)}
    # To initialize an average that is made after the train_op must not run a step.
    needed = (op for initializer in _initializers() for op in waits_of(initializer))
    first_values = ops_behind(needed, made.keys())
    for handle, ops in by_variable.items():
        assigning = {op for op in ops if handle in written.get(op, ())}
        if assigning:
            _add_order(ops, assigning, made, first_values)


def writes_to(ops: Sequence[tf.Operation], variable: tf.Variable) -> list[tf.Operation]:
    """Those of some assignments that assign to `variable`."""
    handles = {copy.handle.ref() for copy in _tf.copies(variable)}
    return [op for op in ops if any(handle.ref() in handles for handle in _written(op))]


def assignments(new_ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The ops among `new_ops` that change a variable in a step: no initializer, no restore.

    Conds, loops and calls whose functions do are among them.
    """
    initializers = _initializers()
    return [
        op
        for op in new_ops
        if _tf.written_handles(op) and op not in initializers and not _is_restore(op)
    ]


def _written(op: tf.Operation) -> list[tf.Tensor]:
    """The handles, in the outermost graph, of the variables that `op` changes."""
    return [_tf.variable_source(handle) for handle in _tf.written_handles(op)]


def _of_keras(assigning: Sequence[tf.Operation], handles: set[Any]) -> list[tf.Operation]:
    """Those that Keras code made, and those of variables that it made."""
    return [
        op
        for op in assigning
        if _tf.is_made_by_keras(op) or any(handle.ref() in handles for handle in _written(op))
    ]


def _add_order(
    ops: Iterable[tf.Operation],
    writes: set[tf.Operation],
    made: dict[tf.Operation, int],
    unordered: Collection[tf.Operation],
) -> None:
    """Orders the ops of one variable; those `unordered` wait for no write."""
    last_write: list[tf.Operation] = []
    reads_since: list[tf.Operation] = []
    for op in ops:
        is_write = op in writes
        if not is_write and op.type not in _READS and not _tf.runs_a_function(op):
            continue
        if last_write and op in unordered:
            continue
        waits = [*last_write, *(reads_since if is_write else ())]
        place = made[op]
        ends = [end for before in waits for end in _ends(before) if made.get(end, place) < place]
        if ends:
            _tf.add_control_inputs(op, ends)
        if is_write:
            last_write, reads_since = [op], []
        else:
            reads_since.append(op)


def _ends(op: tf.Operation) -> list[tf.Operation]:
    """What runs after all of `op`.

    Who waits for a cond or a loop alone waits for its start, once a session has taken it apart,
    unless it has control outputs; its outputs come after what happens inside.
    """
    if not _tf.runs_a_function(op):
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


def _reads_foreign_write(
    op: tf.Operation, handles: set[Any], writes: Collection[tf.Operation]
) -> bool:
    """Whether `op` is the read that follows an assignment that no step runs."""
    return any(
        other not in writes
        and any(handle.ref() in handles for handle in _tf.written_handles(other))
        for other in op.control_inputs
    )


def _is_restore(op: tf.Operation) -> bool:
    """Whether `op` assigns what a file holds: it belongs to a saver or is an initializer."""
    if _tf.runs_a_function(op) or len(op.inputs) < 2:
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return source.type == "RestoreV2"


def _as_op(update: tf.Operation | tf.Tensor) -> tf.Operation:
    return update if isinstance(update, tf.Operation) else update.op
