"""How the batches of an accumulated step are counted, averaged and completed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from estimator import _tf
from estimator.optimizer.accumulation import Accumulation
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import ops_before


@dataclasses.dataclass(frozen=True)
class StepAccumulation:
    """The batches of a step, as a session sees them.

    Attributes:
      size: the number of batches that a replica takes in a step.
      num_taken: scalar, int64: the number of batches taken in an incomplete step.
      flushes: the ops, one for each accumulating optimizer, that complete such a step with the
        batches taken; None if an optimizer needs another batch for it.
      variables: the accumulation variables, which start at zero.
    """

    size: int
    num_taken: tf.Tensor
    flushes: list[tf.Operation] | None
    variables: list[tf.Variable]


def counting_accumulation(
    accumulations: Sequence[Accumulation],
    assignments: Sequence[tf.Operation],
    global_step: tf.Variable,
) -> Accumulation | None:
    """Returns the accumulation whose updates the global step counts; None without accumulation.

    Args:
      accumulations: the accumulations of the step.
      assignments: the assignments that each batch runs.
      global_step: the global step, which only one accumulation may advance.
    """
    if not accumulations:
        return None
    counting = [accumulation for accumulation in accumulations if accumulation.counts_step]
    if len(counting) == 1 and not updates.writes_to(assignments, global_step):
        return counting[0]
    if len(counting) == 1:
        what = "`train_op` advances it with every batch, too"
    elif counting:
        what = f"{len(counting)} optimizers that accumulate advance it"
    else:
        what = "no optimizer that accumulates was given it"
    raise ValueError(
        f"`accumulate_steps` ({accumulations[0].size}) makes the global step count updates, but "
        f"{what}. Pass `global_step=tf.compat.v1.train.get_global_step()` to the "
        "`minimize` or `apply_gradients` of one CrossShardOptimizer, and advance it nowhere else."
    )


def build_accumulated_loss(
    accumulation: Accumulation | None, loss: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Operation]]:
    """Returns the mean loss of the accumulated batches so far, and the ops that record it.

    Args:
      accumulation: the accumulation that counts steps; None if every batch is a step.
      loss: the loss of the batch over all replicas: scalar, float32.
    """
    if accumulation is None:
        return loss, []
    with tf.device("/cpu:0"):
        before = _tf.copies(accumulation.loss)[0].read_value()
        is_first = tf.equal(accumulation.added_before, 0)
        now = loss + tf.where(is_first, tf.zeros_like(before), before)
        mean = now / tf.cast(accumulation.added_before + 1, tf.float32)
    return mean, [c.assign(now, read_value=False) for c in _tf.copies(accumulation.loss)]


def build_step_accumulation(
    counting: Accumulation | None, accumulations: Sequence[Accumulation]
) -> StepAccumulation | None:
    """Adds what a session needs outside the loop; None if every batch is a step.

    Args:
      counting: the result of `counting_accumulation`.
      accumulations: all accumulations of the step.
    """
    if counting is None:
        return None
    flushes = [_build_flush(accumulation) for accumulation in accumulations]
    return StepAccumulation(
        counting.size,
        _tf.copies(counting.num_taken)[0].read_value(),
        None if None in flushes else [flush for flush in flushes if flush is not None],
        [v for a in accumulations for v in (*a.sums, a.num_taken, a.num_added, a.loss)],
    )


def _build_flush(accumulation: Accumulation) -> tf.Operation | None:
    """Builds the update by the mean of an incomplete accumulation, if it has any batch.

    It reuses the cond's own branch in the graph around the loop. What the branch takes from the
    step, such as a learning rate, is rebuilt there.

    Returns:
      The op to run; None if the branch takes anything that needs a batch.
    """
    try:
        taken = _build_again(accumulation.update.inputs[1:])
    except _NeedsBatchError:
        return None
    has_any = _tf.copies(accumulation.num_added)[0].read_value() > 0
    return _tf.copy_op(accumulation.update, [has_any, *taken])


class _NeedsBatchError(Exception):
    """Raised for a tensor that cannot be rebuilt, because it needs more than variables."""


def _build_again(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Rebuilds the tensors of a step outside its loop, from the current values of variables."""
    copies: dict[tf.Operation, tf.Operation] = {}

    def resolve(tensor: tf.Tensor) -> tf.Tensor:
        if tensor.op in copies:
            return copies[tensor.op].outputs[tensor.value_index]
        source = _tf.capture_source(tensor)
        if _tf.is_loop_body(source.graph):
            raise _NeedsBatchError  # A loop variable.
        return source

    for op in ops_before(tensors, lambda op: not _is_given(op)):
        is_batch = op.type == "OptionalGetValue"  # The batch of a loop's iteration.
        if is_batch or (op.op_def.is_stateful and op.type != "ReadVariableOp"):
            raise _NeedsBatchError
        copies[op] = _tf.copy_op(op, [resolve(tensor) for tensor in op.inputs])
    return [resolve(tensor) for tensor in tensors]


def _is_given(op: tf.Operation) -> bool:
    """Returns whether `op` exists without a step: a handle, or a fed or captured tensor."""
    return op.type.startswith("Placeholder") or any(o.dtype == tf.resource for o in op.outputs)
