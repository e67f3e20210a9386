"""The train program: a built graph of a step or a loop of steps, and what is needed to run it.

A session sees a program, never an `input_fn` or a `model_fn`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.cluster.consensus import Agreement, Consensus, build_consensus
from estimator.input import input_calls
from estimator.input.graph_identity import input_identity
from estimator.input.restorable import unrestorable_part
from estimator.model.replicas import Model
from estimator.optimizer.accumulated_step import StepAccumulation, build_step_accumulation
from estimator.program import tpu_replicas
from estimator.program.graph_scope import build_step_before, building, primary
from estimator.program.loop import build_loop
from estimator.program.loop_batches import LoopInput, build_loop_input
from estimator.program.skipped_steps import build_skip_counter
from estimator.program.step_plan import StepPlan
from estimator.program.step_summaries import build_fetch_overrides, summaries_since
from estimator.program.train_step import BuiltStep, build_train_step
from estimator.randomness.seed import separate_step_seeds
from estimator.rewrite.step_waits import CopiesFor
from estimator.runtime.local import Runtime
from estimator.spec import EstimatorSpec


@dataclasses.dataclass(frozen=True)
class TrainFeeds:
    """The placeholders that a training call may feed.

    Attributes:
      num_steps: scalar, int32: how many batches each replica takes; each is a step, unless
        gradients are accumulated. None if a call is always one batch.
      is_recording: scalar, bool: whether the last step records summaries.
      end: scalar, int64: a loop ends when the global step, which other workers advance too, reaches
        it. None unless the program is a loop with ps tasks.
    """

    num_steps: tf.Tensor | None
    is_recording: tf.Tensor
    end: tf.Tensor | None

    def of_call(
        self, num_batches: int | None, end: int | None, is_recording: bool
    ) -> tuple[list[tf.Tensor], list[Any]]:
        """Returns what a call feeds: the placeholders, and their values."""
        fed: list[tuple[tf.Tensor, Any]] = []
        if self.num_steps is not None:
            fed.append((self.num_steps, np.int32(num_batches)))
        if self.end is not None and end is not None:
            fed.append((self.end, np.int64(end)))
        if is_recording:
            fed.append((self.is_recording, np.True_))
        return [feed for feed, _ in fed], [value for _, value in fed]


@dataclasses.dataclass(frozen=True)
class TrainFetches:
    """The tensors that a training call fetches; fetching any of them runs the steps.

    Attributes:
      loss: scalar, float32: the loss of the last step.
      global_step: scalar, int64: the global step after the last step.
      num_run: scalar, int32: how many batches each replica took in a loop: fewer than `num_steps`
        if the input ended. None if a call is always one batch.
      summary: scalar, string: the last step's merged summaries; None if the model has none.
      has_own_summary: whether the model's Scaffold has a `summary_op`, which alone is recorded.
      summaries_across_workers: the names of the summaries that read from all workers what the steps
        do not: only the chief would wait for them.
      fetch_overrides: pairs of what a hook may fetch and what is fetched instead: for the global
        step the read that stock hooks fetch, as the variable's own may come before or after the
        step; and, for tensors inside a loop, what the last step has stored.
    """

    loss: tf.Tensor
    global_step: tf.Tensor
    num_run: tf.Tensor | None
    summary: tf.Tensor | None
    has_own_summary: bool
    summaries_across_workers: Sequence[str]
    fetch_overrides: list[tuple[tf.Tensor | tf.Variable, tf.Tensor]]

    def of_call(self, is_recording: bool) -> list[tf.Tensor]:
        """Returns what a call fetches; the summary, if it does, comes last."""
        summary = self.summary if is_recording else None
        fetched = [self.loss, self.global_step, self.num_run, summary]
        return [tensor for tensor in fetched if tensor is not None]


@dataclasses.dataclass(frozen=True)
class TrainState:
    """What can be read and initialized between session calls, without running a step.

    Attributes:
      current_step: scalar, int64: the global step.
      skipped_steps: scalar, int64: how many steps of the session the "skip" policy reverted.
      loss_so_far: scalar, float32: the loss of the last completed step, even if its loop failed.
        None unless the program is a loop whose input may end with an error.
      initializers: what a new session runs besides the initializers of variables and tables.
    """

    current_step: tf.Tensor
    skipped_steps: tf.Tensor
    loss_so_far: tf.Tensor | None
    initializers: list[tf.Operation]


@dataclasses.dataclass(frozen=True)
class TrainProgram:
    """A train step, or a loop of steps.

    Attributes:
      graph: the graph of the program.
      spec: the first replica's EstimatorSpec; its hooks and scaffold are for the session.
      input: where batches come from.
      input_identity: what an equal input has, too; see `input_identity`.
      unrestorable: the part of the input whose position cannot be restored; None if none.
      runtime: where the replicas run.
      feeds: what a session call may feed.
      fetches: what a session call fetches.
      state: what can be read and initialized between calls.
      agreement: how several workers agree.
      accumulation: how several batches make one step; None if gradients are not accumulated.
      place: the device function for all ops, including ops that are added later; None if there is
        none.
      copies_for: returns, for what `session.run` of a hook fetches, a function from a tensor or an
        operation to what the session runs or feeds instead: it may be inside the loop, or wait for
        the step.
      runs_ahead: whether a loop takes one more step after a loss that is not finite.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    input: input_calls.Input
    input_identity: bytes | None
    unrestorable: str | None
    runtime: Runtime
    feeds: TrainFeeds
    fetches: TrainFetches
    state: TrainState
    agreement: Agreement
    accumulation: StepAccumulation | None
    place: Callable[[tf.Operation], str] | None
    copies_for: CopiesFor
    runs_ahead: bool

    @property
    def is_loop(self) -> bool:
        """Whether a session call runs as many steps as are fed, not always one batch."""
        return self.feeds.num_steps is not None


def build_train_program(
    model: Model,
    make_input: Callable[[], input_calls.Input],
    runtime: Runtime,
    *,
    iterations_per_loop: int | None,
    nan_policy: str,
    host_call_steps: int = 1,
) -> TrainProgram:
    """Builds `model` in train mode.

    Args:
      model: the model to train.
      make_input: builds the input in the default graph.
      runtime: where the replicas run.
      iterations_per_loop: 1 builds the step in the outermost graph, where hooks can fetch any
        tensor; any other value, or None, builds it as the body of a loop of any length. On a TPU,
        inside whose program nothing can be fetched anyway, it is always a loop.
      nan_policy: the RunConfig's.
      host_call_steps: the number of steps between `host_call`s.
    """
    place = runtime.make_device_fn()
    with building(runtime, place) as (graph, global_step):
        num_before = len(graph.get_operations())
        source = make_input()
        identity = input_identity(graph, num_before)
        unrestorable = unrestorable_part(graph, num_before)
        if runtime.is_compiled:
            tpu_replicas.check_static(source.element)
        input_summaries = summaries_since(set())
        is_loop = iterations_per_loop != 1 or runtime.is_compiled
        step_before = build_step_before(global_step)
        is_recording = tf.compat.v1.placeholder_with_default(False, [], "training/is_recording")
        num_steps = tf.compat.v1.placeholder_with_default(1, [], "training/num_steps")
        step_input = build_loop_input(source, input_summaries, runtime) if is_loop else source
        build_has_first = step_input.build_has_first if isinstance(step_input, LoopInput) else None
        consensus = build_consensus(runtime.workers, num_steps, build_has_first)
        plan = StepPlan(
            runtime,
            model,
            global_step=global_step,
            step_before=step_before,
            skipped_steps=build_skip_counter(),
            source=step_input,
            input_summaries=input_summaries,
            is_recording=_build_is_recorded(is_recording, consensus if is_loop else None),
            consensus=consensus,
            nan_policy=nan_policy,
            host_call_steps=host_call_steps,
        )
        step, num_run = _build_steps(plan, num_steps if is_loop else None)
        fetches, accumulation = _build_fetches(plan, step, num_run)
        hoist = step.models.replicas.hoist
        return TrainProgram(
            graph=graph,
            spec=step.spec,
            input=source,
            input_identity=identity,
            unrestorable=unrestorable,
            runtime=runtime,
            feeds=TrainFeeds(num_steps if is_loop else None, is_recording, step.end),
            fetches=fetches,
            state=_build_state(plan, step),
            agreement=_build_agreement(plan, step, source, is_loop=is_loop),
            accumulation=accumulation,
            place=place,
            copies_for=(
                step.step_waits.copies_for
                if hoist is None
                else functools.partial(hoist.copies_for, step.step_waits)
            ),
            runs_ahead=step.ahead_on is not None,
        )


def _build_is_recorded(is_recording: tf.Tensor, consensus: Consensus | None) -> tf.Tensor:
    """Builds whether a loop records summaries: only if no other worker shortens the loop."""
    with tf.device("/cpu:0"), tf.name_scope("training/"):
        is_whole = is_recording if consensus is None else consensus.build_is_whole(is_recording)
        return tf.cast(is_whole, tf.int32)


def _build_steps(plan: StepPlan, num_steps: tf.Tensor | None) -> tuple[BuiltStep, tf.Tensor | None]:
    """Builds a loop of `num_steps` steps; a single step if that is None.

    Returns:
      The step, in a loop with the `loss` and the `has_more` of the last one, and how many batches
      each replica took in the loop (scalar, int32; None without a loop).
    """
    if num_steps is None:
        with separate_step_seeds(tf.compat.v1.get_default_graph()):
            return build_train_step(plan, tf.constant(True, name="training/is_last")), None
    before: list[tf.Tensor | tf.Operation] = [plan.step_before]
    if isinstance(plan.source, LoopInput) and plan.consensus is None:
        before.append(plan.source.build_first())
    with tf.control_dependencies(before):
        with tf.name_scope("training/"):
            consensus = plan.consensus
            wanted = consensus.build_num_steps() if consensus else tf.identity(num_steps)
        return build_loop(plan, wanted)


def _build_fetches(
    plan: StepPlan, step: BuiltStep, num_run: tf.Tensor | None
) -> tuple[TrainFetches, StepAccumulation | None]:
    """Builds what a session call fetches, and how its batches make steps."""
    with tf.control_dependencies([step.loss]):
        counter = primary(plan.global_step)
        step_after = counter.read_value()
        if step.num_uncounted is not None:
            step_of_loss = step_after - tf.cast(step.num_uncounted, tf.int64)
            # Not every batch need advance it.
            step_after = tf.maximum(step_of_loss, plan.step_before)
        step_after = tf.identity(step_after, "global_step_after")
        summary = step.summaries.build_outside()
    accumulation = build_step_accumulation(step.models.counting, step.models.accumulations)
    # For hooks, as in tf.estimator.
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.LOSSES, step.loss)
    overrides: list[tuple[tf.Tensor | tf.Variable, tf.Tensor]] = [
        (plan.global_step, plan.step_before)
    ]
    if num_run is not None:
        overrides.append((step.spec.loss, step.loss))
        overrides += build_fetch_overrides(step.summaries.report, step.loss)
    fetches = TrainFetches(
        loss=step.loss,
        global_step=step_after,
        num_run=num_run,
        summary=summary,
        has_own_summary=step.summaries.is_own,
        summaries_across_workers=step.summaries.across_workers,
        fetch_overrides=overrides,
    )
    return fetches, accumulation


def _build_state(plan: StepPlan, step: BuiltStep) -> TrainState:
    """Builds what can be read and initialized between session calls."""
    kept = [] if step.last_loss is None else [step.last_loss]
    places = [plan.skipped_steps, *step.summaries.places, *kept]
    return TrainState(
        current_step=primary(plan.global_step).read_value(),
        skipped_steps=plan.skipped_steps.build_read(),
        loss_so_far=None if step.last_loss is None else step.last_loss.build_read(),
        initializers=[place.initializer for place in places],
    )


def _build_agreement(
    plan: StepPlan, step: BuiltStep, source: input_calls.Input, *, is_loop: bool
) -> Agreement:
    """Builds what the workers agree on, as tensors that a session can fetch."""
    consensus, outcome = plan.consensus, None
    if consensus is not None:
        requested = consensus.agreed[1:] if is_loop else step.requested
        with tf.device("/cpu:0"):
            outcome = tf.concat([[tf.cast(step.has_more, tf.int32)], requested], axis=0)
    has_first_batch: tf.Tensor | None = None
    if source.looks_ahead:
        # The first run returns no batches; the steps take them in later ones.
        num_replicas = plan.runtime.num_local_replicas
        _, has_first_batch = input_calls.build_replica_batches(source, num_replicas)
    return Agreement(
        graph=tf.compat.v1.get_default_graph(),
        consensus=consensus,
        outcome=outcome,
        has_first_batch=has_first_batch,
    )
