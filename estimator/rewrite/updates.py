"""Finds state updates of a train step that no op of `model_fn` depends on, and orders them.

Keras layers and optimizers are written for eager execution: they assign and return nothing. In a
graph, a session would never run such an assignment, or would run it before a read that the Python
code put first. `build_updates` finds these assignments and runs them in the order of the code. v1
layers put theirs in the collection UPDATE_OPS, which many a `model_fn` forgets to run; one that
runs some of them has chosen. What other code assigns, also to a variable of a layer, runs only if
the `train_op` depends on it, as do the optimizers that return an op: those of v1, and tf-keras's
legacy ones.

A cond, a loop or a call of a `tf.function` that assigns is treated as one assignment. The order
inside it is fixed when it is built: by TensorFlow for a `tf.function`, and by `wiring_branches` for
what Keras assigns in a branch or a loop.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.graph_walk import is_read, ops_behind, waits_of

# Makes an op wait for others.
AddWaits: TypeAlias = Callable[[tf.Operation, Sequence[tf.Operation]], object]


def build_updates(
    new_ops: Sequence[tf.Operation],
    keras_variables: Sequence[tf.Tensor],
    global_step: tf.Variable,
    run: Collection[tf.Operation],
    conditional: Sequence[tf.Operation] = (),
    add_waits: AddWaits = _tf.add_control_inputs,
) -> list[tf.Operation]:
    """Orders the assignments of Keras in `new_ops`, and returns all updates that a step must run.

    Assignments to the global step are ordered too: an op that reads it and was made before the
    `train_op`, such as a summary or a `host_call`, reads the value before the step.

    Every read of an assigned variable waits for the assignments made before it, and every
    assignment waits for the reads and assignments made before it. Edges lead from older ops to
    newer ones only, so there is never a cycle.

    Args:
      new_ops: the ops that `model_fn` made in the default graph, in order of creation.
      keras_variables: handles of the variables that Keras made.
      global_step: the global step, whose increment the `train_op` runs.
      run: the ops of `new_ops` that the step runs anyway. What others than Keras assign outside of
        them, such as an op that a hook runs now and then, is left alone.
      conditional: conds of the step that may assign to any of the variables they take.
      add_waits: makes an op wait for others.

    Returns:
      The assignments made by Keras, and the ops of UPDATE_OPS, that belong to the step. If the
      program runs some of UPDATE_OPS, the others do not, nor what v1 layers assign besides.
    """
    unfed = _behind_placeholders(new_ops)
    new_ops = [op for op in new_ops if op not in unfed]
    assigning = assignments(new_ops)
    handles = {handle.ref() for handle in keras_variables}
    made = set(new_ops)
    collected = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    wired = [op for op in (getattr(update, "op", update) for update in collected) if op in made]
    of_keras = _of_keras(assigning, handles)
    assigned = _left_to_step(of_keras)
    if any(op in run for op in wired):  # The program has chosen among the updates of v1 layers.
        left_out = {*wired, *filter(_tf.is_made_by_v1_layer, assigned)} - {*run}
        wired, assigned = ([o for o in ops if o not in left_out] for ops in (wired, assigned))
    # What an assignment outside of the step runs, such as an optimizer's that is left to a hook, is
    # left to it, too.
    apart = ops_behind({*assigning} - {*run, *conditional, *wired, *assigned}, made)
    wired, assigned = ([o for o in ops if o in run or o not in apart] for ops in (wired, assigned))
    runs = {*run, *conditional, *wired, *assigned}
    writes = {*conditional, *of_keras, *writes_to(assigning, global_step)}
    idle = {op for op in assigning if op not in runs}
    left_to_hooks = ops_behind(idle, made).keys() - ops_behind(runs, made).keys()
    build_order(new_ops, writes - idle, idle, left_to_hooks, add_waits)
    return [_tf.after_v1_branches(op) for op in assigned] + wired


def wiring_branches(
    keras_variables: Sequence[tf.Tensor], is_wanted: Callable[[tf.Tensor], bool]
) -> contextlib.AbstractContextManager[None]:
    """Makes assignments of Keras in a branch or a loop run whenever that branch or loop runs.

    In a v1 graph, TensorFlow runs only those ops of a branch that its outputs need.

    Args:
      keras_variables: handles of the variables that Keras made; the list may still grow.
      is_wanted: whether assignments to the variable of a handle must run.
    """

    def wire(branch: Any) -> None:
        ops = branch.get_operations()
        if not any(map(_tf.written_handles, ops)):
            return
        handles = {handle.ref() for handle in keras_variables}
        of_keras = _left_to_step(_of_keras(assignments(ops), handles))
        assigned = [op for op in of_keras if any(map(is_wanted, _written(op)))]
        build_order(ops, set(assigned))
        branch.control_outputs.extend(assigned)

    return _tf.branches_noted(wire)


def build_order(
    new_ops: Sequence[tf.Operation],
    writes: set[tf.Operation],
    idle: Collection[tf.Operation] = frozenset(),
    left_to_hooks: Collection[tf.Operation] = frozenset(),
    add_waits: AddWaits = _tf.add_control_inputs,
) -> None:
    """Orders each of `writes` relative to the other ops on the same variable, as they were made.

    Args:
      new_ops: all new ops, in order of creation.
      writes: the new ops that assign.
      idle: new ops that assign but that no step runs; nothing waits for them.
      left_to_hooks: new ops that only `idle` ones run; they wait for no write, because a hook that
        runs them between steps would run a step.
      add_waits: makes an op wait for others.
    """
    written = {op: {handle.ref() for handle in _written(op)} for op in writes}
    wanted = set().union(*written.values())
    by_variable = collections.defaultdict(list)
    for op in new_ops:
        # In order, so that the ops of `ends_of` have the same names in every process.
        resources = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
        handles = dict.fromkeys(_tf.variable_source(tensor).ref() for tensor in resources)
        if op in idle or wanted.isdisjoint(handles) or _reads_foreign_write(op, handles, writes):
            continue  # No step may wait for an op that a saver or a hook may run later.
        for handle in handles:
            by_variable[handle].append(op)
    # Initializing an average that is created after the train_op must not run a step.
    needed = (op for initializer in _initializers() for op in waits_of(initializer))
    unordered = {*ops_behind(needed, set(new_ops)), *left_to_hooks}
    ends_of = functools.cache(_tf.ends_of)
    for handle, ops in by_variable.items():
        assigning = {op for op in ops if handle in written.get(op, ())}
        if assigning:
            _add_order(ops, assigning, unordered, ends_of, add_waits)


def writes_to(ops: Sequence[tf.Operation], variable: tf.Variable) -> list[tf.Operation]:
    """Returns the assignments that assign to `variable`."""
    return _to_any_of({copy.handle.ref() for copy in _tf.copies(variable)}, ops)


def assignments(new_ops: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns the ops of `new_ops` that change a variable in a step: no initializer, no restore.

    Conds, loops and function calls that contain assignments are included.
    """
    initializers = _initializers()
    return [
        op
        for op in new_ops
        if _tf.written_handles(op) and op not in initializers and not _is_restore(op)
    ]


def _written(op: tf.Operation) -> list[tf.Tensor]:
    """Returns the handles, in the outermost graph, of the variables that `op` changes."""
    return [_tf.variable_source(handle) for handle in _tf.written_handles(op)]


def _of_keras(assigning: Sequence[tf.Operation], handles: set[Any]) -> list[tf.Operation]:
    """Returns the assignments that Keras made, or that are to variables with these handles."""
    to_keras = set(_to_any_of(handles, assigning))
    return [op for op in assigning if op in to_keras or _tf.is_made_by_keras(op)]


def _left_to_step(of_keras: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns the assignments that Keras made without returning an op that runs them."""

    def is_inside(op: tf.Operation) -> bool:
        inside = filter(_tf.written_resources, _tf.ops_inside(op))
        return any(map(_tf.is_left_to_step, inside))

    return [op for op in of_keras if _tf.is_left_to_step(op) or is_inside(op)]


def _to_any_of(handles: set[Any], assigning: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Returns the ops that assign to one of the variables."""
    return [op for op in assigning if any(handle.ref() in handles for handle in _written(op))]


def _add_order(
    ops: Iterable[tf.Operation],
    writes: set[tf.Operation],
    unordered: Collection[tf.Operation],
    ends_of: Callable[[tf.Operation], list[tf.Operation]],
    add_waits: AddWaits,
) -> None:
    """Orders the ops on one variable; the `unordered` ones wait for no write."""
    last_write: list[tf.Operation] = []
    reads_since: list[tf.Operation] = []
    for op in ops:
        is_write = op in writes
        if not is_write and not is_read(op) and not _tf.runs_a_function(op):
            continue
        if last_write and op in unordered:
            continue
        waits = [*last_write, *(reads_since if is_write else ())]
        if waits:
            add_waits(op, [end for before in waits for end in ends_of(before)])
        if is_write:
            # Later ops wait for no more than they must if a branch of v1 does not run.
            last_write, reads_since = [op, *(waits if _tf.is_in_v1_cond(op) else ())], []
        else:
            reads_since.append(op)


def _initializers() -> set[tf.Operation]:
    graph = _tf.outer_graphs(tf.compat.v1.get_default_graph())[-1]
    keys = tf.compat.v1.GraphKeys
    variables = graph.get_collection(keys.GLOBAL_VARIABLES)
    variables += graph.get_collection(keys.LOCAL_VARIABLES)
    return {op for variable in variables for op in initializers_of(variable)}


def initializers_of(variable: tf.Variable) -> list[tf.Operation]:
    """Returns the op that initializes each copy of a variable.

    A variable that `tf.saved_model.load` made has a tensor instead, and before that None.
    """
    found = (copy.initializer for copy in _tf.copies(variable))
    return [getattr(one, "op", one) for one in found if one is not None]


def _behind_placeholders(new_ops: Sequence[tf.Operation]) -> set[tf.Operation]:
    """Returns the ops that depend on a placeholder that nobody feeds.

    A functional tf-keras model is first built on placeholders, its `Input`s, and then called on the
    features, which builds its updates a second time.
    """
    found: set[tf.Operation] = set()
    if not any(op.type == "Placeholder" for op in new_ops):
        return found
    for op in new_ops:
        is_fed = op.type != "Placeholder" or _tf.capture_source(op.outputs[0]) is not op.outputs[0]
        if not is_fed or any(tensor.op in found for tensor in op.inputs):
            found.add(op)
    return found


def _reads_foreign_write(
    op: tf.Operation, handles: Collection[Any], writes: Collection[tf.Operation]
) -> bool:
    """Returns whether `op` is the read after an assignment that no step runs."""
    return any(
        other not in writes and any(handle.ref() in handles for handle in _written(other))
        for other in op.control_inputs
    )


def _is_restore(op: tf.Operation) -> bool:
    """Returns whether `op` assigns a value from a file: it is a saver's or an initializer."""
    if _tf.runs_a_function(op) or len(op.inputs) < 2:
        return False
    source = op.inputs[1].op
    while source.type == "Identity":
        source = source.inputs[0].op
    return source.type == "RestoreV2"


def is_assigned(variable: tf.Variable) -> bool:
    """Returns whether `variable` is what an `assign` returned, which runs when it is fetched."""
    copy = _tf.copies(variable)[0]
    return copy.op is not copy.handle.op
