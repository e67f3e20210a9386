"""Accumulates the gradients of several batches and applies their mean once.

Each batch adds its gradients to variables. The last batch of an accumulation runs the optimizer in
a branch of a cond, so that slots, schedules and the global step count updates only. An optimizer
merges its replicas, which is impossible inside a branch that one replica builds: here all replicas
are merged first, and the branch calls the optimizer for each replica again.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.rewrite import updates

Gradient = Any  # A tensor, IndexedSlices or None.
Pair = tuple[Gradient, Any]


@dataclasses.dataclass(frozen=True)
class Accumulation:
    """The accumulation of an optimizer's gradients between two updates.

    Attributes:
      size: the number of batches.
      sums: variables: the sums of the gradients.
      num_taken: variable: the number of batches since the last update.
      num_added: variable: the number of gradients in the sums. It is less than `num_taken` if a
        skipped batch was taken back; if that was the last batch of an accumulation, the other
        gradients carry over to the next.
      loss: variable: the sum of the batches' losses.
      before: scalar, int64: `num_taken` before the current batch.
      added_before: scalar, int64: `num_added` before the current batch.
      update: the cond that applies the update when the accumulation is complete.
      counts_step: whether the update advances the global step.
    """

    size: int
    sums: list[tf.Variable]
    num_taken: tf.Variable
    num_added: tf.Variable
    loss: tf.Variable
    before: tf.Tensor
    added_before: tf.Tensor
    update: tf.Operation
    counts_step: bool


_found: contextvars.ContextVar[list[Accumulation] | None] = contextvars.ContextVar(
    "accumulations", default=None
)


@contextlib.contextmanager
def collecting_accumulations() -> Iterator[list[Accumulation]]:
    """Yields a list that collects the accumulations that optimizers build inside."""
    accumulations: list[Accumulation] = []
    token = _found.set(accumulations)
    try:
        yield accumulations
    finally:
        _found.reset(token)


def build_accumulation(
    size: int,
    name: str,
    grads_and_vars: Iterable[Pair],
    apply: Callable[[list[Pair]], Any],
    global_step: tf.Variable | None,
) -> tf.Operation:
    """Adds this replica's gradients; applies their mean once the accumulation is complete.

    Args:
      size: the number of batches to accumulate.
      name: the name prefix of the variables.
      grads_and_vars: the pairs of this replica and this batch.
      apply: applies this replica's means, and may advance the global step.
      global_step: advanced even if `apply` does not; or None.

    Returns:
      An op that runs after all of this.
    """
    replica = _Replica(list(grads_and_vars), apply)

    def merge(strategy: tf.distribute.Strategy, replicas: Any) -> tf.Operation:
        everyone = strategy.experimental_local_results(replicas)
        return _build_merged(strategy, everyone, size, name, global_step)

    return tf.distribute.get_replica_context().merge_call(merge, args=(replica,))


class _Replica:
    """One replica's arguments; a class, so that tf.nest does not take them apart."""

    def __init__(self, pairs: list[Pair], apply: Callable[[list[Pair]], Any]) -> None:
        self.pairs = pairs
        self.apply = apply


class _Sum:
    """The sum of one variable's gradients.

    There is a copy on each replica, or, with CentralStorage, a single one that receives the
    replicas' mean.
    """

    def __init__(self, gradients: Sequence[Gradient], variable: Any, name: str) -> None:
        self._gradients = gradients
        self._is_sparse = isinstance(gradients[0], tf.IndexedSlices)
        shape = variable.shape
        self.variables = [_make_variable(name, shape, gradients[0].dtype, is_summed=True)]
        if self._is_sparse:
            rows = _make_variable(f"{name}_rows", shape[:1], gradients[0].dtype, is_summed=True)
            self.variables.append(rows)

    def build_add(self) -> list[tf.Operation]:
        """Adds the gradients of all replicas."""
        is_shared = len(_tf.copies(self.variables[0])) < len(self._gradients)
        share = 1 / len(self._gradients) if is_shared else 1
        ops: list[tf.Operation] = []
        for replica, gradient in enumerate(self._gradients):
            total = _copy(self.variables[0], replica)
            # Added one after the other, because the order of a sum affects its last bit.
            with tf.device(total.device), tf.control_dependencies(ops if is_shared else []):
                if self._is_sparse:
                    rows = _copy(self.variables[1], replica)
                    ops.append(_scatter(total, gradient, gradient.values * share))
                    ops.append(_scatter(rows, gradient, tf.ones_like(gradient.indices, rows.dtype)))
                else:
                    ops.append(total.assign_add(gradient * share, read_value=False))
        return ops

    def build_mean(self, replica: int, count: tf.Tensor) -> Gradient:
        """Returns the replica's mean gradient, sparse if the gradients were."""
        total = _copy(self.variables[0], replica).read_value()
        scale = 1 / tf.cast(count, total.dtype)
        if not self._is_sparse:
            return total * scale
        rows = tf.where(_copy(self.variables[1], replica).read_value() > 0)[:, 0]
        shape = tf.shape(total, tf.int64)
        return tf.IndexedSlices(tf.gather(total, rows) * scale, rows, shape)


def _build_merged(
    strategy: tf.distribute.Strategy,
    replicas: Sequence[_Replica],
    size: int,
    name: str,
    global_step: tf.Variable | None,
) -> tf.Operation:
    """Builds the accumulation of all replicas in cross-replica context."""
    # Names must not depend on the scope in which `model_fn` calls.
    with tf.compat.v1.name_scope(None):
        sums = _make_sums(replicas, name)
        parts = [part for total in sums if total is not None for part in total.variables]
        num_taken = _make_variable(f"{name}/num_taken", [], tf.int64)
        num_added = _make_variable(f"{name}/num_added", [], tf.int64)
        loss = _make_variable(f"{name}/loss", [], tf.float32)
    before, added_before = _read_counts(num_taken, num_added)
    adds = [op for total in sums if total is not None for op in total.build_add()]
    with tf.control_dependencies(adds):
        counts = [c.assign(before + 1, read_value=False) for c in _tf.copies(num_taken)]
        counts += [c.assign(added_before + 1, read_value=False) for c in _tf.copies(num_added)]

    def update() -> tf.Tensor:
        done = _build_update(strategy, replicas, sums, num_added, global_step)
        with tf.control_dependencies(done):
            zeros = [_zero(c) for v in [*parts, num_taken, num_added] for c in _tf.copies(v)]
        with tf.control_dependencies(zeros):
            return tf.constant(True)

    with tf.control_dependencies(counts):
        is_complete = before + 1 >= size
    updated = _tf.cond(is_complete, update, lambda: tf.constant(False), name=f"{name}_update")
    accumulations = _found.get()
    if accumulations is not None:
        accumulations.append(
            Accumulation(
                size=size,
                sums=parts,
                num_taken=num_taken,
                num_added=num_added,
                loss=loss,
                before=before,
                added_before=added_before,
                update=updated.op.inputs[0].op,
                counts_step=global_step is not None,
            )
        )
    return tf.group(updated)


def _read_counts(*counts: tf.Variable) -> list[tf.Tensor]:
    """Reads the counts before the batch, whatever the call of `minimize` waits for.

    That may be an update that depends on random numbers, such as a batch norm's after a dropout,
    and these depend on the number of batches.
    """
    with tf.control_dependencies(None):
        return [_copy(count, 0).read_value() for count in counts]


def _build_update(
    strategy: tf.distribute.Strategy,
    replicas: Sequence[_Replica],
    sums: Sequence[_Sum | None],
    num_added: tf.Variable,
    global_step: tf.Variable | None,
) -> list[tf.Operation]:
    """Calls the optimizer on each replica; returns all ops that it runs."""
    count = _copy(num_added, 0).read_value()

    @tf.autograph.experimental.do_not_convert
    def apply_one() -> Any:
        context = tf.distribute.get_replica_context()
        index = int(tf.get_static_value(context.replica_id_in_sync_group)) % len(replicas)
        means = [None if total is None else total.build_mean(index, count) for total in sums]
        variables = [variable for _, variable in replicas[index].pairs]
        with _tf.replica_reaches_outer_graphs():
            return replicas[index].apply(list(zip(means, variables, strict=True)))

    results = strategy.experimental_local_results(
        strategy.extended.call_for_each_replica(apply_one)
    )
    made = tf.compat.v1.get_default_graph().get_operations()
    writes = updates.assignments(made)
    updates.build_order(made, set(writes))
    done = [part for result in results for part in _parts(result)] + writes
    if global_step is not None and not updates.writes_to(writes, global_step):
        with tf.control_dependencies(done):
            done += [c.assign_add(1, read_value=False) for c in _tf.copies(global_step)]
    return done


def _make_sums(replicas: Sequence[_Replica], name: str) -> list[_Sum | None]:
    sums: list[_Sum | None] = []
    for pairs in zip(*(replica.pairs for replica in replicas), strict=True):
        gradient, variable = pairs[0]
        if gradient is None:
            sums.append(None)
            continue
        variable = _tf.variable_of(variable)
        place = f"{name}/{variable.name.partition(':')[0]}"
        sums.append(_Sum([gradient for gradient, _ in pairs], variable, place))
    return sums


def _make_variable(name: str, shape: Any, dtype: tf.DType, is_summed: bool = False) -> tf.Variable:
    """Creates a variable that starts at zero and is saved.

    Args:
      name: the variable's name.
      shape: a fully known shape.
      dtype: the variable's dtype.
      is_summed: whether each replica has its own value, of which a checkpoint holds the mean.
    """
    rules = tf.VariableAggregation
    on_read = tf.VariableSynchronization.ON_READ
    return tf.Variable(
        lambda: tf.zeros(shape, dtype),
        trainable=False,
        name=name,
        dtype=dtype,
        aggregation=rules.MEAN if is_summed else rules.ONLY_FIRST_REPLICA,
        synchronization=on_read if is_summed else tf.VariableSynchronization.AUTO,
    )


def _copy(variable: tf.Variable, replica: int) -> tf.Variable:
    copies = _tf.copies(variable)
    return copies[replica if len(copies) > 1 else 0]


def _zero(copy: tf.Variable) -> tf.Operation:
    return copy.assign(tf.zeros(copy.shape, copy.dtype), read_value=False)


def _scatter(copy: tf.Variable, gradient: tf.IndexedSlices, values: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterAdd(
        resource=copy.handle, indices=gradient.indices, updates=values
    )


def _parts(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value.values) if isinstance(value, tf.distribute.DistributedValues) else [value]
