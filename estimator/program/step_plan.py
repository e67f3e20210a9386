"""The values that a train step is built from."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from estimator.cluster.collectives import Workers
from estimator.cluster.consensus import Consensus
from estimator.input.input_calls import Input
from estimator.model.replicas import Model
from estimator.program.graph_scope import primary
from estimator.program.loop_batches import LoopInput
from estimator.program.loop_output import LoopOutput
from estimator.rewrite.packing import task_of
from estimator.runtime.local import Runtime


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """What a train step is built from; its tensors are in the graph around the loop, if any.

    Attributes:
      runtime: where the replicas run.
      model: the model of each replica.
      source: the input, or how a loop's iterations take batches from it.
      input_summaries: the summaries that `input_fn` has made.
      global_step: the global step variable.
      step_before: scalar, int64: the global step before the session call.
      skipped_steps: counts the steps that are reverted.
      is_recording: scalar, int32: 1 if the last step's summaries are wanted, else 0. As a bool, it
        would be copied to a GPU and back in every step of a loop.
      consensus: the collective by which several workers agree; None for one worker.
      nan_policy: the RunConfig's: what happens after a step that leaves a loss or weight that is
        not finite. With "skip" it is reverted; with "raise" and "stop" the loop ends.
      host_call_steps: the number of steps between `host_call`s.
    """

    runtime: Runtime
    model: Model
    source: Input | LoopInput
    input_summaries: list[tf.Tensor]
    global_step: tf.Variable
    step_before: tf.Tensor
    skipped_steps: LoopOutput
    is_recording: tf.Tensor
    consensus: Consensus | None
    nan_policy: str
    host_call_steps: int

    @property
    def workers(self) -> Workers:
        """The workers that train together."""
        return self.runtime.workers

    @property
    def home_of_loop(self) -> str | None:
        """The device that ends a loop whose steps other workers count, too; None for others."""
        if not self.runtime.shares_variables:
            return None
        return f"{task_of(primary(self.global_step).handle.op)}/device:CPU:0"


@dataclasses.dataclass(frozen=True)
class StepStart:
    """The start of a step, built before its models.

    Attributes:
      is_in_loop: whether the step is built in a loop's body.
      step: scalar, int64: the global step before this step.
      batches: one batch per replica.
      has_more: scalar, bool: whether this worker has batches for another step; None if unknown.
      is_last: scalar, bool: whether no other step follows in this session call.
      is_recorded: scalar, bool: whether this is the last step, and its summaries are wanted.
      summaries_before: the `id`s of summaries that were made before `model_fn` was called, without
        those that show this step's batches.
      copies: what copies batches of the next step to a GPU.
    """

    is_in_loop: bool
    step: tf.Tensor
    batches: list[Any]
    has_more: tf.Tensor | None
    is_last: tf.Tensor
    is_recorded: tf.Tensor
    summaries_before: set[int]
    copies: list[tf.Operation]
