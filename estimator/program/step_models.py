"""Builds the model of each replica of a train step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.consensus import REPORT_SIZE
from estimator.console import log
from estimator.model.replicas import Model, Replicas, VariableWatch, build_replicas
from estimator.optimizer.accumulated_step import counting_accumulation
from estimator.optimizer.accumulation import Accumulation, collecting_accumulations
from estimator.program import tpu_replicas
from estimator.program.step_ops import all_parts, ops_run_for
from estimator.program.step_plan import StepPlan, StepStart
from estimator.randomness.random_ops import drawing_by_step
from estimator.rewrite import updates
from estimator.spec import EstimatorSpec, ModeKeys


@dataclasses.dataclass(frozen=True)
class StepModels:
    """The models of all replicas.

    Attributes:
      replicas: what `model_fn` returned for each replica, and the ops that it made.
      accumulations: the gradient accumulations of its optimizers.
      counting: the accumulation that advances the global step; None if there is none.
      slots: where workers can add values of their own to the all-reduces of gradients.
    """

    replicas: Replicas
    accumulations: Sequence[Accumulation] = ()
    counting: Accumulation | None = None
    slots: Sequence[_tf.PiggybackSlot] = ()

    @property
    def new_ops(self) -> list[tf.Operation]:
        """The ops that `model_fn` made, in order."""
        return self.replicas.new_ops

    @property
    def specs(self) -> list[EstimatorSpec]:
        """The EstimatorSpec of each replica."""
        return [output.spec for output in self.replicas.outputs]


def build_step_models(plan: StepPlan, start: StepStart) -> StepModels:
    """Calls `model_fn` for each replica, and collects the accumulations of its optimizers."""
    # For tf.summary with a writer of the model's own, which writes only under this condition.
    is_writing = tf.identity(start.is_recorded) if plan.workers.is_chief else tf.constant(False)
    refusing = plan.runtime.refusing_sync_replicas(start.is_in_loop)
    with tf.summary.record_if(is_writing), refusing:
        step_key = tf.identity(start.step, "training/moment")
        with (
            collecting_accumulations() as accumulations,
            drawing_by_step(step_key, plan.model.model_fn) as model_fn,
        ):
            model = dataclasses.replace(plan.model, model_fn=model_fn)
            if plan.runtime.is_compiled:
                return StepModels(
                    _build_tpu_replicas(plan, model, start.batches, step_key, accumulations)
                )
            # Inside, all-reduces of gradients have slots for the report that workers exchange.
            with _tf.piggyback_slots(REPORT_SIZE) if plan.consensus else nullcontext(()) as slots:
                replicas = build_replicas(
                    plan.runtime.strategy, model, start.batches, ModeKeys.TRAIN
                )
        if start.is_in_loop:
            _tf.name_resources(replicas.new_ops)
        if plan.workers.is_chief:
            _write_what_train_ops_wait_for(is_writing, replicas)
        global_step = plan.global_step
        warn_unless_steps_are_counted(replicas.new_ops, global_step, accumulations)
        conditional = {accumulation.update for accumulation in accumulations}
        assigned = [op for op in updates.assignments(replicas.new_ops) if op not in conditional]
        counting = counting_accumulation(accumulations, assigned, global_step)
        if counting is not None:
            # Each batch of an accumulated step draws other random numbers.
            _tf.set_input(step_key.op, start.step + counting.before * 2**40)
        return StepModels(replicas, accumulations, counting, slots)


def _write_what_train_ops_wait_for(is_writing: tf.Tensor, replicas: Replicas) -> None:
    """Has `tf.summary` ops in a `train_op` write in each step, without the condition.

    As with tf.estimator, they are part of what the program does in a step.
    """
    conditional = set(is_writing.consumers())
    if not conditional:
        return
    train_ops = [output.spec.train_op for output in replicas.outputs]
    running = ops_run_for(train_ops, replicas.new_ops)
    always = tf.constant(True)
    for op in conditional.intersection(running):
        for i, tensor in enumerate(op.inputs):
            if tensor is is_writing:
                _tf.set_input(op, always, i)


def _build_tpu_replicas(
    plan: StepPlan,
    model: Model,
    batches: list[Any],
    step: tf.Tensor,
    accumulations: Sequence[Accumulation],
) -> Replicas:
    """Builds the model as one program that each core of a TPU runs, including its updates."""
    global_step = plan.global_step

    def finish(spec: EstimatorSpec, watch: VariableWatch) -> list[Any]:
        if accumulations:
            raise NotImplementedError(
                "`accumulate_steps` of the CrossShardOptimizer is not available on a TPU. Use "
                "a larger `train_batch_size`."
            )
        new_ops, keras_variables = watch.new_ops(), watch.keras_variables
        warn_unless_steps_are_counted(new_ops, global_step)
        run = set(ops_run_for([spec.train_op, spec.loss], new_ops))
        others = updates.build_updates(new_ops, keras_variables, global_step, run)
        return all_parts([spec.train_op, *others])

    # The program as a whole assigns variables, so it waits for the read of the global step.
    with tf.device("/cpu:0"), tf.control_dependencies([step]):
        batches = tf.nest.map_structure(lambda t: None if t is None else tf.identity(t), batches)
    return tpu_replicas.build_program(plan.runtime, model, batches, ModeKeys.TRAIN, finish)


def warn_unless_steps_are_counted(
    new_ops: Sequence[tf.Operation],
    global_step: tf.Variable,
    accumulations: Sequence[Accumulation] = (),
) -> None:
    """Warns if no op of `model_fn` assigns the global step; no error, as a hook may do it."""
    if accumulations or updates.writes_to(updates.assignments(new_ops), global_step):
        return
    log.warning(
        "`train_op` does not advance the global step. Unless a hook does, training ends only with "
        "its input. Pass `global_step=tf.compat.v1.train.get_global_step()` to "
        "`optimizer.minimize`, or add `tf.compat.v1.assign_add(global_step, 1)` to the `train_op`."
    )
