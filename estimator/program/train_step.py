"""Builds the train step: one batch per replica, the model on each, and all that a step updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.consensus import build_report
from estimator.console import log
from estimator.input import input_calls
from estimator.model import reduction
from estimator.optimizer.accumulated_step import build_accumulated_loss
from estimator.optimizer.accumulation import Accumulation
from estimator.program import host_call
from estimator.program.graph_scope import primary
from estimator.program.loop_batches import LoopInput
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.program.skipped_steps import build_revert
from estimator.program.step_models import StepModels, build_step_models
from estimator.program.step_ops import all_parts, as_ops, ops_run_for, without_ops_for_sessions
from estimator.program.step_order import order_accesses, order_assignments
from estimator.program.step_plan import StepPlan, StepStart
from estimator.program.step_summaries import (
    StepSummaries,
    build_step_summaries,
    summaries_since,
    summaries_so_far,
    written_summaries,
)
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import ops_behind
from estimator.rewrite.hoist import without_waits
from estimator.rewrite.packing import pack_messages, task_of
from estimator.rewrite.step_waits import StepWaits
from estimator.spec import EstimatorSpec


@dataclasses.dataclass(frozen=True)
class BuiltStep:
    """A built train step.

    Attributes:
      loss: scalar, float32; it depends on everything that the step does, except what
        `is_before_end` depends on.
      has_more: scalar, bool: whether another step may follow: all workers have input for it. None
        if the step cannot tell.
      is_before_end: scalar, bool, on the global step's ps task: whether the global step is still
        before `end`. It depends on all that the step does on that task. None for any other step.
      models: the models of the replicas, and how their optimizers accumulate gradients.
      step_waits: what ops wait for because of the order of the step.
      summaries: the summaries of the step.
      requested: [len(REQUESTS)], int32: what any worker asks for; None for one worker.
      end: scalar, int64, fed: the global step at which a loop ends that shares variables on ps
        tasks with other workers; None for any other step.
      last_loss: keeps the loss in a loop whose input may end with an error; else None.
      ahead_on: the GPU whose loop does not wait for the loss before it starts the next step, ""
        if TensorFlow chooses it; else None.
      num_uncounted: scalar, int32: of a loop that runs ahead, how many steps it ran after the one
        that `loss` is of: 1 if that is not finite and was not the loop's last, else 0.
    """

    loss: tf.Tensor
    has_more: tf.Tensor | None
    is_before_end: tf.Tensor | None
    models: StepModels
    step_waits: StepWaits
    summaries: StepSummaries
    requested: tf.Tensor | None
    end: tf.Tensor | None
    last_loss: LoopOutput | None
    ahead_on: str | None
    num_uncounted: tf.Tensor | None = None

    @property
    def spec(self) -> EstimatorSpec:
        """The first replica's EstimatorSpec."""
        return self.models.specs[0]


def build_train_step(plan: StepPlan, is_last: tf.Tensor) -> BuiltStep:
    """Adds one step to the default graph, which is the outermost graph or a loop's body.

    Args:
      plan: what the step is built from.
      is_last: scalar, bool: whether this is the last step that the session call asks for.
    """
    is_in_loop = _tf.is_loop_body(tf.compat.v1.get_default_graph())
    # Beside a loop's batch, names in use would change those of `model_fn`.
    with tf.compat.v1.name_scope("training/" if is_in_loop else None):
        start = _build_start(plan, is_last, is_in_loop)
    models = build_step_models(plan, start)
    step_waits = StepWaits()
    done = _build_effects(plan, start, models, step_waits)
    before_call, called = _build_host_call(plan, start, models)
    loss, has_more, requested = _build_outcome(plan, start, models, done)
    # The loss, too, may run assignments: to be reverted, and not without a batch.
    losses = [spec.loss for spec in models.specs]
    step_ops = ops_run_for([*done, *called, *losses], models.new_ops)
    loss, kept = build_accumulated_loss(models.counting, loss)
    step_ops, done = step_ops + kept, done + kept
    _order(plan, start, models, step_ops, step_waits)
    more = [] if has_more is None else [has_more]
    running = as_ops([*done, *called, *step_ops, loss, *more])
    summaries, reported = build_step_summaries(models.specs[0], start, running)
    effects, done = done, done + reported
    if plan.nan_policy == "skip":
        done = [build_revert(plan, models, step_ops, loss, done)]
    if before_call is not None:
        is_part = before_call in ops_behind(as_ops(done))  # If a summary of `host_fn` is reported.
        step_waits.add(before_call, as_ops(effects if is_part else done))
        done = [*done, *called]
    if plan.runtime.shares_variables:
        pack_messages(ops_run_for([*done, loss], models.new_ops))
    end: tf.Tensor | None = None
    is_before_end: tf.Tensor | None = None
    if plan.home_of_loop is not None and start.is_in_loop:
        end, is_before_end, done = _build_is_before_end(plan, done, step_ops, plan.home_of_loop)
    ahead_on = _gpu_to_run_ahead_on(plan, start, models)
    device = "/cpu:0" if ahead_on is None else ahead_on
    with tf.device(device), tf.control_dependencies([tf.group(*all_parts(done))]):
        loss = tf.identity(loss, "loss_of_step")
    last_loss: LoopOutput | None = None
    if start.is_in_loop and has_more is None:
        loss, last_loss = _build_stored_loss(loss)
    of_loop = (requested, end, last_loss, ahead_on)
    return BuiltStep(loss, has_more, is_before_end, models, step_waits, summaries, *of_loop)


def _build_start(plan: StepPlan, is_last: tf.Tensor, is_in_loop: bool) -> StepStart:
    """Reads the global step and takes the batches."""
    step = plan.step_before
    if is_in_loop:
        step = primary(plan.global_step).read_value()
    if isinstance(plan.source, LoopInput):
        with tf.device("/cpu:0"):
            taken = plan.source.build_batches(tf.logical_not(is_last))
            batches, has_next, copies = taken.batches, taken.has_next, taken.copies
            summaries = taken.summaries
            # Of several workers, each says at the start of the next loop whether it has a batch.
            has_more = has_next if plan.consensus is None else tf.logical_or(has_next, is_last)
            is_last = tf.logical_not(has_next)
    else:
        copies = []
        summaries = _input_summaries_of_step(plan, is_in_loop)
        batches, has_more = input_calls.build_replica_batches(
            plan.source, plan.runtime.num_local_replicas
        )
    with tf.device("/cpu:0"), tf.name_scope("training/"):
        is_recorded = tf.logical_and(is_last, tf.cast(plan.is_recording, tf.bool))
    before = summaries_so_far() - {id(summary) for summary in summaries}
    return StepStart(is_in_loop, step, batches, has_more, is_last, is_recorded, before, copies)


def _input_summaries_of_step(plan: StepPlan, is_in_loop: bool) -> list[tf.Tensor]:
    """Returns the summaries of `input_fn` that show the step's own batch: in a loop, none does."""
    if not is_in_loop:
        return plan.input_summaries
    if plan.input_summaries:
        log.warning(
            "The summaries %s of `input_fn` are not recorded: a loop reads this input anew in each "
            "step. Set `iterations_per_loop=1` to record them.",
            sorted(summary.op.name for summary in plan.input_summaries),
        )
    return []


def _build_effects(
    plan: StepPlan, start: StepStart, models: StepModels, step_waits: StepWaits
) -> list[Any]:
    """Builds and returns everything that a step runs for its side effects."""
    replicas = models.replicas
    done = [spec.train_op for spec in models.specs]
    losses = [spec.loss for spec in models.specs]
    run = [*done, *losses, *summaries_since(start.summaries_before)]
    done += updates.build_updates(
        without_ops_for_sessions(replicas),
        replicas.keras_variables,
        plan.global_step,
        set(ops_run_for(run, replicas.new_ops)),
        [one.update for one in models.accumulations],
        step_waits.add,
    )
    done += written_summaries(start.summaries_before) + start.copies
    return done


def _build_host_call(
    plan: StepPlan, start: StepStart, models: StepModels
) -> tuple[tf.Operation | None, list[Any]]:
    """Builds the chief's `host_call`, if there is one.

    Returns:
      An op that its ops wait for, which can be made to wait for the rest of the step: what the
      function reads itself, such as the global step, is then what the step leaves. And what the
      step must run.
    """
    calls = [output.host_call for output in models.replicas.outputs]
    if calls[0] is None or not plan.workers.is_chief:
        return None, []
    is_called = _build_is_host_called(plan.host_call_steps, start.step, models.counting)
    before = tf.no_op("before_host_call")
    with tf.control_dependencies([before]):
        return before, host_call.build_host_call(calls, is_called)


def _build_is_host_called(
    host_call_steps: int, step: tf.Tensor, counting: Accumulation | None
) -> tf.Tensor | None:
    """Builds whether this batch runs the `host_call`: scalar, bool; None if every batch does."""
    conditions = []
    if host_call_steps > 1:
        conditions.append(tf.equal((step + 1) % host_call_steps, 0))
    if counting is not None:
        conditions.append(counting.before + 1 >= counting.size)
    return tf.reduce_all(tf.stack(conditions)) if conditions else None


def _build_outcome(
    plan: StepPlan, start: StepStart, models: StepModels, done: Sequence[Any]
) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor | None]:
    """Builds the mean loss, whether all workers have more input, and what any worker asks for."""
    losses = [spec.loss for spec in models.specs]
    loss = reduction.build_mean_loss(losses, len(losses) * plan.workers.count)
    if plan.consensus is None:
        return loss, start.has_more, None
    return build_report(plan.consensus, loss, start.has_more, models.slots, as_ops(done))


def _gpu_to_run_ahead_on(plan: StepPlan, start: StepStart, models: StepModels) -> str | None:
    """Returns the GPU on which steps may start before the loss of the one before is known, if any.

    The host only hands a GPU its work. If a loop waited for each loss, the GPU would then wait for
    the host in each step: with small kernels, for as long as it computes. But where batches are
    copied to the GPU in advance, the host hands over nothing until the copy of the step before is
    done, and that waits for the GPU.
    """
    is_counted_by_step = models.counting is None and start.has_more is not None
    if not start.is_in_loop or start.copies or not is_counted_by_step:
        return None
    return plan.runtime.only_gpu


def _order(
    plan: StepPlan,
    start: StepStart,
    models: StepModels,
    step_ops: list[tf.Operation],
    step_waits: StepWaits,
) -> None:
    """Orders assignments after the batches, and the accesses to each variable."""
    # A loop runs no iteration without a batch.
    uncertain = [] if isinstance(plan.source, LoopInput) else start.batches
    branches = [one.update for one in models.accumulations if one.counts_step]
    losses = [spec.loss for spec in models.specs]
    seen = as_ops([*losses, *summaries_since(start.summaries_before)])
    running = list(dict.fromkeys([*step_ops, *ops_run_for(seen, models.new_ops)]))
    add = step_waits.add
    order_assignments(running, start.step, plan.global_step, uncertain, branches, add_waits=add)
    order_accesses(models.new_ops, [*step_ops, *seen], add_waits=add)
    if start.is_in_loop:
        graph = tf.compat.v1.get_default_graph()
        _tf.forget_waits(graph, without_waits(models.replicas.waits, step_ops))


def _build_is_before_end(
    plan: StepPlan, done: Sequence[Any], step_ops: Sequence[tf.Operation], home: str
) -> tuple[tf.Tensor, tf.Tensor, list[Any]]:
    """Builds whether the global step, which all workers advance, is still before an end.

    This is decided on the global step's task, `home`, after all that the step does there: a message
    that it is done would be one more for the next step to wait for.

    Returns:
      The placeholder for the end, by default int64's max; the condition, and what the step does
      elsewhere.
    """
    with tf.init_scope(), tf.device(home):
        end = tf.compat.v1.placeholder_with_default(tf.int64.max, [], "training/end")
    global_step = plan.global_step
    made, elsewhere = all_parts(done), []
    if plan.nan_policy != "skip":
        there = task_of(primary(global_step).handle.op)
        elsewhere = [op for op in made if task_of(getattr(op, "op", op)) != there]
        made = [op for op in made if op not in elsewhere]
        made += updates.writes_to(updates.assignments(step_ops), global_step)
    with tf.device(home), tf.control_dependencies(made):
        return end, tf.less(primary(global_step).read_value(), end), elsewhere


def _build_stored_loss(loss: tf.Tensor) -> tuple[tf.Tensor, LoopOutput]:
    """Stores the loss outside the loop: the next iteration may fail because the input has ended."""
    with tf.init_scope():
        zero = tf.zeros([])
    last_loss = build_loop_output(tf.float32, "last_loss", zero)
    with tf.device("/cpu:0"), tf.control_dependencies([last_loss.build_write(loss)]):
        return tf.identity(loss), last_loss
