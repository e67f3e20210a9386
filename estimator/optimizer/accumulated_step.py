"""How batches make a step, where optimizers accumulate: what a session sees of their windows."""

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
    """The batches of a step.

    Attributes:
      size: how many a replica takes in a step.
      num_taken: scalar, int64: how many it has taken of a step that is not complete.
      flushes: what completes such a step by those, one op for each optimizer that accumulates;
        None if the optimizer needs a batch for it.
      variables: of the windows; they start at zero.
    """

    size: int
    num_taken: tf.Tensor
    flushes: list[tf.Operation] | None
    variables: list[tf.Variable]


def counting_accumulation(
    windows: Sequence[Accumulation], assignments: Sequence[tf.Operation], global_step: tf.Variable
) -> Accumulation | None:
    """The window whose updates the global step counts; None if every batch is a step.

    Args:
      windows: of the step.
      assignments: those that each batch runs.
      global_step: counted by one window, and by nothing else.
    """
    if not windows:
        return None
    counting = [window for window in windows if window.counts_step]
    if len(counting) == 1 and not updates.writes_to(assignments, global_step):
        return counting[0]
    if len(counting) == 1:
        what = "`train_op` advances it with every batch, too"
    elif counting:
        what = f"{len(counting)} optimizers that accumulate advance it"
    else:
        what = "no optimizer that accumulates was given it"
    raise ValueError(
        f"`accumulate_steps` ({windows[0].size}) makes the global step count updates, but {what}. "
        "Pass `global_step=tf.compat.v1.train.get_global_step()` to the `minimize` or "
        "`apply_gradients` of one CrossShardOptimizer, and advance it nowhere else."
    )


def build_accumulated_loss(
    window: Accumulation | None, loss: tf.Tensor
) -> tuple[tf.Tensor, list[tf.Operation]]:
    """The mean loss of the window's batches so far: scalar, float32; and what keeps it.

    Args:
      window: that the batch is in; None if every batch is a step.
      loss: of the batch over all replicas: scalar, float32.
    """
    if window is None:
        return loss, []
    with tf.device("/cpu:0"):
        before = _primary(window.loss).read_value()
        is_first = tf.equal(window.added_before, 0)
        now = loss + tf.where(is_first, tf.zeros_like(before), before)
        mean = now / tf.cast(window.added_before + 1, tf.float32)
    return mean, [c.assign(now, read_value=False) for c in _tf.copies(window.loss)]


def build_step_accumulation(
    counting: Accumulation | None, windows: Sequence[Accumulation]
) -> StepAccumulation | None:
    """Adds what a session needs to the graph around the loop; None if every batch is a step.

    Args:
      counting: the one that `counting_accumulation` found.
      windows: all of the step.
    """
    if counting is None:
        return None
    flushes = [_build_flush(window) for window in windows]
    return StepAccumulation(
        counting.size,
        _primary(counting.num_taken).read_value(),
        None if None in flushes else [flush for flush in flushes if flush is not None],
        [v for w in windows for v in (*w.sums, w.num_taken, w.num_added, w.loss)],
    )


def _build_flush(window: Accumulation) -> tf.Operation | None:
    """Updates by the mean of a window that is not complete, if it has any batch.

    It is built in the graph around the loop, of the cond's own branch. What the branch takes from
    the step, such as a learning rate, is built again.

    Returns:
      The op to run; None if the branch takes something that needs a batch.
    """
    try:
        taken = _build_again(window.update.inputs[1:])
    except _NeedsBatchError:
        return None
    has_any = _primary(window.num_added).read_value() > 0
    return _tf.copy_op(window.update, [has_any, *taken])


class _NeedsBatchError(Exception):
    """A tensor that cannot be built again, because it needs more than variables."""


def _build_again(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors of a step, in the graph around its loop, from the values that variables have."""
    copies: dict[tf.Operation, tf.Operation] = {}

    def resolve(tensor: tf.Tensor) -> tf.Tensor:
        if tensor.op in copies:
            return copies[tensor.op].outputs[tensor.value_index]
        source = _tf.capture_source(tensor)
        if _tf.is_loop_body(source.graph):
            raise _NeedsBatchError  # One that the loop carries.
        return source

    for op in ops_before(tensors, lambda op: not _is_given(op)):
        is_batch = op.type == "OptionalGetValue"  # That of a loop's turn.
        if is_batch or (op.op_def.is_stateful and op.type != "ReadVariableOp"):
            raise _NeedsBatchError
        copies[op] = _tf.copy_op(op, [resolve(tensor) for tensor in op.inputs])
    return [resolve(tensor) for tensor in tensors]


def _is_given(op: tf.Operation) -> bool:
    """Whether `op` is there without a step: a handle, or what is fed or captured."""
    return op.type.startswith("Placeholder") or any(o.dtype == tf.resource for o in op.outputs)


def _primary(variable: tf.Variable) -> tf.Variable:
    return _tf.copies(variable)[0]
