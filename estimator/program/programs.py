"""Programs: a built graph and what is needed to run it. The narrow waist of the library.

A session sees a program, never an `input_fn` or a `model_fn`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator.cluster.collectives import ONE_WORKER, Workers, num_local_replicas, workers_of
from estimator.cluster.consensus import Consensus, build_consensus
from estimator.input import input_calls
from estimator.input.padding import Padding
from estimator.model import reduction
from estimator.model.replicas import Model, build_replicas
from estimator.model.summable_metrics import check_sums, leaves_state
from estimator.optimizer.accumulated_step import StepAccumulation
from estimator.program import host_call, step_summaries, tpu_replicas
from estimator.program.graph_scope import build_step_before, building, of_unplaced, primary
from estimator.program.loop import build_loop
from estimator.program.loop_batches import build_loop_input
from estimator.program.skipped_steps import build_skip_counter
from estimator.program.train_step import TrainStep
from estimator.randomness.seed import separate_step_seeds
from estimator.runtime.tpu_strategy import is_tpu
from estimator.spec import EstimatorSpec, ModeKeys


@dataclasses.dataclass(frozen=True)
class TrainProgram:
    """A train step, or a loop of them.

    Attributes:
      graph: holds all of it.
      spec: the first replica's; its hooks and scaffold are for the session.
      input: where batches come from.
      loss: scalar, float32: running it runs the steps; the loss of the last of them.
      global_step: scalar, int64: the global step after `loss`.
      current_step: scalar, int64: the global step, without running anything.
      num_steps: scalar, int32, fed: how many batches each replica takes; each is a step unless
        `accumulation` says otherwise. None if a call is always one batch.
      is_recording: scalar, bool, fed: whether the last step leaves its summaries.
      summary: scalar, string: the last step's merged summaries, None if the model has none.
      skipped_steps: scalar, int64: how many steps of the session the "skip" policy took back,
        without running anything.
      initializers: what a new session runs besides the initializers of variables and tables.
      strategy: where the replicas run.
      fetch_overrides: of a loop: a tensor inside it, and what a session can fetch instead.
      workers: those that train together; this is one of them.
      consensus: what they agree on by; None for one worker.
      outcome: [1 + len(REQUESTS)], int32: whether all have input for another step, and what anybody
        wishes; fetched along with `loss`. None for one worker.
      has_first_batch: scalar, bool: run once, before the first step: whether this worker has
        input for it. None if its input does not look ahead.
      accumulation: how batches make a step where gradients are accumulated; None if each is one.
      end: scalar, int64, fed: a loop ends when the global step is there, which other workers count
        too. None unless it is a loop beside ps tasks.
      loss_so_far: scalar, float32: the loss of the last step that was made, also of a loop that
        failed. None unless it is a loop whose input tells of its end by an error.
      place: gives the device of each op, also of those that are added; None if nothing does.
      has_own_summary: whether the model's Scaffold says what is recorded, and nothing else is.
      num_run: scalar, int32: how many batches a replica took in a loop, which ends before
        `num_steps` of them with its input. None if a call is always one batch.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    input: input_calls.Input
    loss: tf.Tensor
    global_step: tf.Tensor
    current_step: tf.Tensor
    num_steps: tf.Tensor | None
    is_recording: tf.Tensor
    summary: tf.Tensor | None
    skipped_steps: tf.Tensor
    initializers: list[tf.Operation]
    strategy: tf.distribute.Strategy
    fetch_overrides: list[tuple[tf.Tensor, tf.Tensor]]
    workers: Workers = ONE_WORKER
    consensus: Consensus | None = None
    outcome: tf.Tensor | None = None
    has_first_batch: tf.Tensor | None = None
    accumulation: StepAccumulation | None = None
    end: tf.Tensor | None = None
    num_run: tf.Tensor | None = None
    loss_so_far: tf.Tensor | None = None
    place: Callable[[tf.Operation], str] | None = None
    has_own_summary: bool = False


@dataclasses.dataclass(frozen=True)
class EvalProgram:
    """An evaluation step on each replica. A session runs as many replicas as it has batches for.

    Attributes:
      graph: holds all of it.
      spec: the first replica's.
      feeds: for each replica, the placeholders for its batch's component tensors.
      losses: for each replica, its batch's loss: a scalar or rank 1.
      updates: for each replica, what adds its batch to the metrics, and its `host_call`.
      reset: sets the metrics to zero.
      values: the metrics, by name.
      current_step: scalar, int64: the global step of the weights.
      padding: how batches are filled up if all must be of one size; else None.
      leaves_state: whether a step changes what `reset` does not set back, such as a table.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    current_step: tf.Tensor
    feeds: list[list[tf.Tensor]]
    losses: list[tf.Tensor]
    updates: list[list[Any]]
    reset: tf.Operation
    values: dict[str, tf.Tensor]
    strategy: tf.distribute.Strategy
    padding: Padding | None = None
    leaves_state: bool = False


@dataclasses.dataclass(frozen=True)
class PredictProgram:
    """Predictions of each replica. A session runs as many replicas as it has batches for.

    Attributes:
      graph: holds all of it.
      spec: the first replica's.
      feeds: for each replica, the placeholders for its batch's component tensors.
      predictions: for each replica, a tensor or a dict of tensors.
      host_ops: for each replica, what its `host_call` runs.
      current_step: scalar, int64: the global step of the weights.
      padding: as an EvalProgram's.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    current_step: tf.Tensor
    feeds: list[list[tf.Tensor]]
    predictions: list[Any]
    host_ops: list[list[Any]]
    strategy: tf.distribute.Strategy
    padding: Padding | None = None


def build_train_program(
    model: Model,
    make_input: Callable[[], input_calls.Input],
    strategy: tf.distribute.Strategy,
    *,
    iterations_per_loop: int | None,
    nan_policy: str,
    host_call_steps: int = 1,
    seed: int | None = None,
    device_fn: Callable[[tf.Operation], str] | None = None,
) -> TrainProgram:
    """Builds `model` in train mode.

    Args:
      model: what to train.
      make_input: builds the input in the default graph.
      strategy: where the replicas run.
      iterations_per_loop: 1 builds the step at the top of the graph, where hooks can fetch
        anything; more, or None, builds it as the body of a loop of any length. For a TPU, whose
        program nobody can look into, it is always such a body.
      nan_policy: of the RunConfig. A loop ends after a step whose loss is not finite, unless that
        step is skipped or what it did is ignored.
      host_call_steps: how many steps from one `host_call` to the next.
      seed: of the graph.
      device_fn: places every op; None leaves it to the config's and to the strategy.
    """
    place, has_ps = device_fn or of_unplaced(model.config.device_fn), model.config.num_ps_replicas
    with building(strategy, seed, place, has_ps > 0) as (graph, global_step):
        source = make_input()
        if is_tpu(strategy):
            tpu_replicas.check_static(source.element)
        step_before = build_step_before(global_step)
        is_recording = tf.compat.v1.placeholder_with_default(False, [], "training/is_recording")
        num_steps = tf.compat.v1.placeholder_with_default(1, [], "training/num_steps")
        workers = workers_of(strategy)
        ballot = None if workers.count == 1 else build_consensus(workers, num_steps)
        skips = build_skip_counter()
        is_loop = iterations_per_loop != 1 or is_tpu(strategy)
        turns = None
        if is_loop and source.build_step is None:
            turns = build_loop_input(source, num_local_replicas(strategy))
        step = TrainStep(
            strategy,
            model,
            turns or source,
            ballot.build_is_whole(is_recording) if is_loop and ballot else is_recording,
            step_before,
            skips=skips if nan_policy == "skip" else None,
            ballot=ballot,
            host_call_steps=host_call_steps,
        )
        fed_steps = num_steps if is_loop else None
        before = [step_before] if turns is None else [step_before, turns.first]
        num_run, loss, has_more = _build_steps(step, before, fed_steps, ballot, nan_policy)
        with tf.control_dependencies([loss]):
            step_after = tf.identity(primary(global_step).read_value(), "global_step_after")
            merged = step.build_summary_outside()
        window = step.build_window_outside()
        fetch_overrides = step_summaries.build_fetch_overrides(step.report, loss)
        spec = step.spec
        return TrainProgram(
            graph=graph,
            spec=spec,
            input=source,
            loss=loss,
            global_step=step_after,
            current_step=primary(global_step).read_value(),
            num_steps=fed_steps,
            is_recording=is_recording,
            summary=merged,
            skipped_steps=skips.build_read(),
            initializers=[place.initializer for place in [skips, *step.places()]],
            strategy=strategy,
            fetch_overrides=[(spec.loss, loss), *fetch_overrides],
            workers=workers,
            consensus=ballot,
            outcome=step.build_outcome(has_more, is_loop),
            has_first_batch=input_calls.build_has_first_batch(source),
            accumulation=window,
            end=step.end,
            num_run=num_run if is_loop else None,
            loss_so_far=step.build_loss_so_far(),
            place=place,
            has_own_summary=step.has_own_summary,
        )


def _build_steps(
    step: TrainStep,
    before: Sequence[tf.Operation | tf.Tensor],
    num_steps: tf.Tensor | None,
    consensus: Consensus | None,
    nan_policy: str,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """A loop of `num_steps` steps, after what is `before` it, or just one step.

    Returns:
      What `build_loop` does.
    """
    if num_steps is None:
        with separate_step_seeds(tf.compat.v1.get_default_graph()):
            return tf.constant(1), *step.build(tf.constant(True))
    with tf.control_dependencies(before):
        return build_loop(
            step.build,
            tf.identity(num_steps) if consensus is None else consensus.build_num_steps(),
            stop_on_nan=nan_policy in ("raise", "stop"),
            can_end=step.can_end,
        )


def build_eval_program(
    model: Model,
    element: Any,
    strategy: tf.distribute.Strategy,
    seed: int | None = None,
) -> EvalProgram:
    """Builds `model` in evaluation mode, fed with batches shaped like `element`.

    Args:
      model: what to evaluate.
      element: (features, labels) as type specs.
      strategy: where the replicas run.
      seed: of the graph.

    Raises:
      NotSummableError: a metric is not exact on several replicas.
    """
    with building(strategy, seed, of_unplaced(model.config.device_fn)) as (graph, global_step):
        current_step = build_step_before(global_step)
        feeds, batches = build_feeds(element, strategy.num_replicas_in_sync)
        replicas = build_replicas(strategy, model, batches, ModeKeys.EVAL)
        specs = [output.spec for output in replicas.outputs]
        reduction.check_metric_names(specs[0].eval_metric_ops)
        metrics = reduction.build_metrics(
            [dict(spec.eval_metric_ops) for spec in specs], replicas.new_ops
        )
        losses = [spec.loss for spec in specs]
        updates = [
            [*updates, *host_call.build_host_call([output.host_call])]
            for updates, output in zip(metrics.updates, replicas.outputs, strict=True)
        ]
        if len(specs) > 1:
            check_sums(metrics.values, [losses, updates], replicas)
        return EvalProgram(
            graph=graph,
            spec=specs[0],
            current_step=current_step,
            feeds=feeds,
            losses=losses,
            updates=updates,
            # Before a session knows the graph: an op that runs with others must not change.
            reset=tf.group(tf.compat.v1.local_variables_initializer()),
            values=metrics.values,
            strategy=strategy,
            leaves_state=leaves_state([losses, metrics.updates], replicas.new_ops),
        )


def build_predict_program(
    model: Model,
    element: Any,
    strategy: tf.distribute.Strategy,
    seed: int | None = None,
) -> PredictProgram:
    """Builds `model` in prediction mode, fed with batches shaped like `element`.

    Args:
      model: what predicts.
      element: (features, None) as type specs.
      strategy: where the replicas run.
      seed: of the graph.
    """
    with building(strategy, seed, of_unplaced(model.config.device_fn)) as (graph, global_step):
        current_step = build_step_before(global_step)
        feeds, batches = build_feeds(element, strategy.num_replicas_in_sync)
        replicas = build_replicas(strategy, model, batches, ModeKeys.PREDICT)
        return PredictProgram(
            graph=graph,
            spec=replicas.outputs[0].spec,
            current_step=current_step,
            feeds=feeds,
            predictions=[output.spec.predictions for output in replicas.outputs],
            host_ops=[host_call.build_host_call([out.host_call]) for out in replicas.outputs],
            strategy=strategy,
        )


def build_feeds(element: Any, num_replicas: int) -> tuple[list[list[tf.Tensor]], list[Any]]:
    """For each replica the placeholders of a batch's component tensors, and the batch of them."""
    flat_specs = tf.nest.flatten(element, expand_composites=True)
    feeds, batches = [], []
    for _ in range(num_replicas):
        flat = [
            None if spec is None else tf.compat.v1.placeholder(spec.dtype, spec.shape, "input/feed")
            for spec in flat_specs
        ]
        feeds.append([tensor for tensor in flat if tensor is not None])
        batches.append(tf.nest.pack_sequence_as(element, flat, expand_composites=True))
    return feeds, batches
