"""Programs: a built graph and what is needed to run it. The narrow waist of the library.

A session sees a program, never an `input_fn` or a `model_fn`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.strategy import start_eager_context
from estimator.config.tpu import host_task, is_tpu
from estimator.graph import accumulate, host_call, input, reduce, summary, tpu, updates
from estimator.graph.agreement import Ballot, build_ballot, build_report
from estimator.graph.copy import build_copy, runs_each_time
from estimator.graph.last_value import LastValue
from estimator.graph.lift import without_waits
from estimator.graph.loop import build_loop
from estimator.graph.model import BUILD_LOCK, Model, Replicas, VariableWatch, build_replicas
from estimator.graph.padding import Padding
from estimator.graph.random import drawing_by_step
from estimator.graph.seed import separate_step_seeds
from estimator.graph.skip import build_skip_counter, build_snapshot, build_take_back
from estimator.graph.window import (
    StepWindow,
    build_step_window,
    build_window_loss,
    counting_window,
)
from estimator.graph.workers import ONE_WORKER, Workers, num_local_replicas, workers_of
from estimator.spec import EstimatorSpec, ModeKeys

_NO_LOOP = (
    "A SyncReplicasOptimizer waits for the other workers in every step, in queues that a loop of "
    "steps cannot hold. Train with `iterations_per_loop=1`, or leave it out and use "
    'RunConfig(strategy="multi_worker_mirrored").'
)
# What of a Scaffold no step runs.
_FOR_SESSIONS = ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op")


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
      num_steps: scalar, int32, fed: how many batches a replica; each is a step, unless `window`
        says otherwise. None if a call is always one batch.
      is_recording: scalar, bool, fed: whether the last step leaves its summaries.
      summary: scalar, string: the last step's merged summaries, None if the model has none.
      skipped_steps: scalar, int64: how many steps of the session the "skip" policy took back,
        without running anything.
      initializers: what a new session runs besides the initializers of variables and tables.
      strategy: where the replicas run.
      stand_ins: of a loop: a tensor inside it, and what a session can fetch instead.
      workers: those that train together; this is one of them.
      ballot: what they agree on by; None for one worker.
      outcome: [1 + len(WISHES)], int32: whether all have input for another step, and what anybody
        wishes; fetched along with `loss`. None for one worker.
      first_news: scalar, bool: run once, before the first step: whether this worker has input for
        it. None if its input does not look ahead.
      window: how batches make a step where gradients are accumulated; None if each is one.
    """

    graph: tf.Graph
    spec: EstimatorSpec
    input: input.Input
    loss: tf.Tensor
    global_step: tf.Tensor
    current_step: tf.Tensor
    num_steps: tf.Tensor | None
    is_recording: tf.Tensor
    summary: tf.Tensor | None
    skipped_steps: tf.Tensor
    initializers: list[tf.Operation]
    strategy: tf.distribute.Strategy
    stand_ins: list[tuple[tf.Tensor, tf.Tensor]]
    workers: Workers = ONE_WORKER
    ballot: Ballot | None = None
    outcome: tf.Tensor | None = None
    first_news: tf.Tensor | None = None
    window: StepWindow | None = None


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


def training_hooks(spec: EstimatorSpec, is_chief: bool = True) -> tuple:
    """All hooks that a spec wants around training, in the chief or in another worker."""
    chiefs_alone = spec.training_chief_hooks or () if is_chief else ()
    return (*(spec.training_hooks or ()), *chiefs_alone)


@contextlib.contextmanager
def building(
    strategy: tf.distribute.Strategy,
    seed: int | None,
    device_fn: Callable[[tf.Operation], str] | None = None,
) -> Iterator[tuple[tf.Graph, tf.Variable]]:
    """A new default graph, under `strategy`, with its global step.

    `device_fn` gives the device of each op.
    """
    start_eager_context(strategy)
    graph = tf.Graph()
    with (
        BUILD_LOCK,
        _no_garbage_collection(),
        graph.as_default(),
        _placing(device_fn),
        _on_host(strategy),
        strategy.scope(),
        _tf.mean_gradients(strategy),
        _tf.sync_replicas_in_line(),
        _tf.hashable_tensors(),
        tf.variable_creator_scope(create_resource),
    ):
        tf.compat.v1.set_random_seed(seed)
        with _tf.checkpoint_initializers_outside_loops(), _tf.tf_keras_names_by_thread():
            yield graph, tf.compat.v1.train.get_or_create_global_step()


def _of_unplaced(device_fn: Callable | None) -> Callable[[tf.Operation], str] | None:
    """The user's function, asked only where no `tf.device` says anything."""
    return None if device_fn is None else lambda op: op.device or device_fn(op)


def _placing(device_fn: Callable[[tf.Operation], str] | None) -> Any:
    if device_fn is None:
        return contextlib.nullcontext()
    return tf.compat.v1.device(device_fn)


def _on_host(strategy: tf.distribute.Strategy) -> Any:
    """Inside, what has no device is on the machine that the TPU is in, if there is one."""
    task = host_task(strategy)
    return contextlib.nullcontext() if task is None else tf.device(task)


def create_resource(next_creator: Callable, **kwargs: Any) -> tf.Variable:
    """A resource variable, also after `tf.compat.v1.disable_v2_behavior()`."""
    return next_creator(**{**kwargs, "use_resource": True})


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Python does not look for garbage inside.

    A graph makes very many objects, and all of them stay. Each time that Python looks through all
    those of TensorFlow and of the graph takes 0.15 s and more.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def build_train_program(
    model: Model,
    make_input: Callable[[], input.Input],
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
    with building(strategy, seed, device_fn or _of_unplaced(model.config.device_fn)) as (
        graph,
        global_step,
    ):
        source = make_input()
        if is_tpu(strategy):
            tpu.check_static(source.element)
        step_before = _build_step_before(global_step)
        is_recording = tf.compat.v1.placeholder_with_default(False, [], "training/is_recording")
        num_steps = tf.compat.v1.placeholder_with_default(1, [], "training/num_steps")
        workers = workers_of(strategy)
        ballot = None if workers.count == 1 else build_ballot(workers, num_steps)
        skips = build_skip_counter()
        is_loop = iterations_per_loop != 1 or is_tpu(strategy)
        step = _TrainStep(
            strategy,
            model,
            source,
            ballot.build_is_whole(is_recording) if is_loop and ballot else is_recording,
            step_before,
            skips=skips if nan_policy == "skip" else None,
            ballot=ballot,
            host_call_steps=host_call_steps,
        )
        if is_loop:
            with tf.control_dependencies([step_before]):
                loss, has_more = build_loop(
                    step.build,
                    tf.identity(num_steps) if ballot is None else ballot.build_num_steps(),
                    stop_on_nan=nan_policy in ("raise", "stop"),
                    can_end=ballot is not None,
                )
        else:
            with separate_step_seeds(graph):
                loss, has_more = step.build(tf.constant(True))
        with tf.control_dependencies([loss]):
            step_after = tf.identity(_primary(global_step).read_value(), "global_step_after")
            merged = step.build_summary_outside()
        window = step.build_window_outside()
        stand_ins = summary.build_stand_ins(step.report, loss)
        spec = step.spec
        return TrainProgram(
            graph=graph,
            spec=spec,
            input=source,
            loss=loss,
            global_step=step_after,
            current_step=_primary(global_step).read_value(),
            num_steps=num_steps if is_loop else None,
            is_recording=is_recording,
            summary=merged,
            skipped_steps=skips.build_read(),
            initializers=[place.initializer for place in [skips, *step.report.places()]],
            strategy=strategy,
            stand_ins=[(spec.loss, loss), *stand_ins],
            workers=workers,
            ballot=ballot,
            outcome=step.build_outcome(has_more, is_loop),
            first_news=input.build_first_news(source),
            window=window,
        )


class _TrainStep:
    """Builds one step, in the graph's top or in a loop's body, and keeps what else came of it."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: Model,
        source: input.Input,
        is_recording: tf.Tensor,
        step_before: tf.Tensor,
        skips: LastValue | None,
        ballot: Ballot | None,
        host_call_steps: int,
    ) -> None:
        self._ballot = ballot
        self._workers = ONE_WORKER if ballot is None else ballot.workers
        self._wished: tf.Tensor | None = None
        self._step_before = step_before
        self._strategy = strategy
        self._model = model
        self._source = source
        self._global_step = tf.compat.v1.train.get_or_create_global_step()
        self._is_recording = is_recording
        self._skips = skips
        self._host_call_steps = host_call_steps
        self._windows: list[accumulate.Window] = []
        self._window: accumulate.Window | None = None
        self.report = summary.LoopReport()
        self.spec: EstimatorSpec
        self._merged: tf.Tensor | None = None
        self._is_in_loop = False

    def build(self, is_last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Adds the step.

        Returns:
          Its loss, which depends on all that the step does, and whether all workers have input
          for another (None for one worker).
        """
        graph = tf.compat.v1.get_default_graph()
        is_in_loop = _tf.is_loop_body(graph)
        step = _primary(self._global_step).read_value() if is_in_loop else self._step_before
        num_replicas = num_local_replicas(self._strategy)
        batches, has_more = input.build_replica_batches(self._source, num_replicas)
        summaries_before = summary.summaries_so_far()
        # For tf.summary with a writer of the model's: it writes by itself, when it is asked to.
        refused = _tf.sync_replicas_refused(_NO_LOOP) if is_in_loop else contextlib.nullcontext()
        with tf.summary.record_if(self._build_is_writing(is_last)), refused:
            replicas = self._build_replicas(step, batches)
        self.spec = replicas.outputs[0].spec
        done = [output.spec.train_op for output in replicas.outputs]
        done += updates.build_updates(
            _without_ops_for_sessions(replicas),
            replicas.keras_variables,
            self._global_step,
            [window.update for window in self._windows],
            set(_ops_behind(done, replicas.new_ops)),
        )
        done += summary.written_summaries(summaries_before)
        if self._workers.is_chief:
            done += host_call.build_host_call(
                [output.host_call for output in replicas.outputs], self._build_is_host_called(step)
            )
        losses = [output.spec.loss for output in replicas.outputs]
        loss = reduce.build_mean_loss(losses, len(losses) * self._workers.count)
        if self._ballot is not None:
            loss, has_more, self._wished = build_report(self._ballot, loss, has_more)
        step_ops = _ops_behind(done, replicas.new_ops)
        if self._window is not None:
            loss, kept = build_window_loss(self._window, loss)
            step_ops, done = step_ops + kept, done + kept
        _wait_for(step_ops, step.op, batches)
        if is_in_loop:
            _tf.forget_waits(graph, without_waits(replicas.waits, step_ops))
        merged = self._build_summary(summaries_before)
        if is_in_loop:
            is_inside = merged is not None and merged.graph is graph
            done += summary.build_loop_report(
                self.report,
                merged if is_inside else None,
                training_hooks(self.spec),
                is_last=is_last,
                is_recording=self._is_recording,
            )
        self._merged, self._is_in_loop = merged, is_in_loop
        if self._skips is not None:
            counters = [self._global_step, *(window.num_taken for window in self._windows)]
            before = build_snapshot(step_ops, counters)
            done = [build_take_back(before, loss, _ops(done), self._skips, self._workers)]
        with tf.device("/cpu:0"), tf.control_dependencies(_ops(done)):
            return tf.identity(loss, "loss_of_step"), has_more

    def _build_is_writing(self, is_last: tf.Tensor) -> tf.Tensor:
        """Whether writers of the model's write in this step; the chief's alone do."""
        is_due = tf.logical_and(is_last, self._is_recording)
        return is_due if self._workers.is_chief else tf.constant(False)

    def build_outcome(self, has_more: tf.Tensor | None, is_loop: bool) -> tf.Tensor | None:
        """What the workers agreed on, where a session can fetch it."""
        if self._ballot is None:
            return None
        wished = self._ballot.agreed[1:] if is_loop else self._wished
        with tf.device("/cpu:0"):
            return tf.concat([[tf.cast(has_more, tf.int32)], wished], axis=0)

    def _build_summary(self, summaries_before: set[int]) -> tf.Tensor | None:
        """What the Scaffold says to record, else all summaries of `model_fn`."""
        scaffold = self.spec.scaffold or tf.compat.v1.train.Scaffold()
        if scaffold.summary_op is None:
            merged = summary.build_merged_summary(summaries_before)
            _tf.set_scaffold_parts(scaffold, {"summary_op": merged})
        return scaffold.summary_op

    def _build_replicas(self, step: tf.Tensor, batches: list[Any]) -> Replicas:
        """The model of each replica, and the windows that its optimizers make."""
        moment = tf.identity(step, "training/moment")
        with (
            accumulate.collecting_windows() as windows,
            drawing_by_step(moment, self._model) as model,
        ):
            if is_tpu(self._strategy):
                return self._build_tpu_program(model, batches, moment, windows)
            replicas = build_replicas(self._strategy, model, batches, ModeKeys.TRAIN)
        check_global_step_advances(replicas.new_ops, self._global_step, windows)
        assigned = updates.assignments(replicas.new_ops)
        self._windows = windows
        self._window = counting_window(windows, assigned, self._global_step)
        if self._window is not None:
            # The batches of a step differ in their random numbers, too.
            _tf.set_input(moment.op, step + self._window.before * 2**40)
        return replicas

    def _build_tpu_program(
        self,
        model: Model,
        batches: list[Any],
        step: tf.Tensor,
        windows: Sequence[accumulate.Window],
    ) -> Replicas:
        def finish(spec: EstimatorSpec, watch: VariableWatch) -> list[Any]:
            if windows:
                raise NotImplementedError(
                    "`accumulate_steps` of the CrossShardOptimizer is not available on a TPU. Use "
                    "a larger `train_batch_size`."
                )
            new_ops, keras_variables = watch.new_ops(), watch.keras_variables
            check_global_step_advances(new_ops, self._global_step)
            others = updates.build_updates(new_ops, keras_variables, self._global_step)
            return _ops([spec.train_op, *others])

        # The program changes variables as a whole: it waits for who reads them before the step.
        with tf.device("/cpu:0"), tf.control_dependencies([step]):
            batches = tf.nest.map_structure(
                lambda t: None if t is None else tf.identity(t), batches
            )
        return tpu.build_program(self._strategy, model, batches, ModeKeys.TRAIN, finish)

    def _build_is_host_called(self, step: tf.Tensor) -> tf.Tensor | None:
        """Whether this batch has a `host_call`: scalar, bool; None if each has."""
        conditions = []
        if self._host_call_steps > 1:
            conditions.append(tf.equal((step + 1) % self._host_call_steps, 0))
        if self._window is not None:
            conditions.append(self._window.before + 1 >= self._window.size)
        return tf.reduce_all(tf.stack(conditions)) if conditions else None

    def build_window_outside(self) -> StepWindow | None:
        """How batches make a step, where a session can see it."""
        return build_step_window(self._window, self._windows)

    def build_summary_outside(self) -> tf.Tensor | None:
        """The last step's merged summaries, where a session can fetch them."""
        if self.report.summary is not None:
            return self.report.summary.build_read()
        if self._merged is None or not self._is_in_loop:
            return self._merged
        # Of a `scaffold_fn`, around the loop: of what the loop leaves, not of what is there before.
        return build_copy(self._merged, runs_each_time)


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
    """
    with building(strategy, seed, _of_unplaced(model.config.device_fn)) as (graph, global_step):
        feeds, batches = _build_feeds(element, strategy.num_replicas_in_sync)
        replicas = build_replicas(strategy, model, batches, ModeKeys.EVAL)
        specs = [output.spec for output in replicas.outputs]
        metrics = reduce.build_metrics(
            [dict(spec.eval_metric_ops or {}) for spec in specs], replicas.new_ops
        )
        return EvalProgram(
            graph=graph,
            spec=specs[0],
            current_step=_primary(global_step).read_value(),
            feeds=feeds,
            losses=[spec.loss for spec in specs],
            updates=[
                [*updates, *host_call.build_host_call([output.host_call])]
                for updates, output in zip(metrics.updates, replicas.outputs, strict=True)
            ],
            # Before a session knows the graph: an op that runs with others must not change.
            reset=tf.group(tf.compat.v1.local_variables_initializer()),
            values=metrics.values,
            strategy=strategy,
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
    with building(strategy, seed, _of_unplaced(model.config.device_fn)) as (graph, global_step):
        feeds, batches = _build_feeds(element, strategy.num_replicas_in_sync)
        replicas = build_replicas(strategy, model, batches, ModeKeys.PREDICT)
        return PredictProgram(
            graph=graph,
            spec=replicas.outputs[0].spec,
            current_step=_primary(global_step).read_value(),
            feeds=feeds,
            predictions=[output.spec.predictions for output in replicas.outputs],
            host_ops=[host_call.build_host_call([out.host_call]) for out in replicas.outputs],
            strategy=strategy,
        )


def check_global_step_advances(
    new_ops: Sequence[tf.Operation],
    global_step: tf.Variable,
    windows: Sequence[accumulate.Window] = (),
) -> None:
    """Raises if none of the ops that `model_fn` made assigns the global step."""
    if windows or updates.writes_to(updates.assignments(new_ops), global_step):
        return
    raise ValueError(
        "`train_op` does not advance the global step, so training would never end. Pass "
        "`global_step=tf.compat.v1.train.get_global_step()` to `optimizer.minimize`, or add "
        "`tf.compat.v1.assign_add(global_step, 1)` to the `train_op`."
    )


def _build_feeds(element: Any, num_replicas: int) -> tuple[list[list[tf.Tensor]], list[Any]]:
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


def _ops_behind(values: Sequence[Any], among: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Those of some ops that run for `values`; a saver's and others' do not."""
    remaining = set(among)
    stack = [getattr(value, "op", value) for value in _ops(values)]
    while stack:
        op = stack.pop()
        if op in remaining:
            remaining.remove(op)
            stack.extend([tensor.op for tensor in op.inputs])
            stack.extend(op.control_inputs)
    return [op for op in among if op not in remaining]


def _without_ops_for_sessions(replicas: Replicas) -> list[tf.Operation]:
    """The new ops but for those of the Scaffold alone: a step neither runs nor orders them."""
    scaffold = replicas.outputs[0].spec.scaffold or tf.compat.v1.train.Scaffold()
    parts = [getattr(scaffold, name) for name in _FOR_SESSIONS]
    alone = set(_ops_behind([part for part in parts if part is not None], replicas.new_ops))
    if alone:
        specs = [output.spec for output in replicas.outputs]
        wired = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        steps = [*wired, *(value for spec in specs for value in (spec.train_op, spec.loss))]
        alone.difference_update(_ops_behind(steps, replicas.new_ops))
    return [op for op in replicas.new_ops if op not in alone]


def _wait_for(step_ops: Sequence[tf.Operation], first: tf.Operation, batches: Any) -> None:
    """No variable changes before every replica has its batch: the input may be at its end."""
    graph = tf.compat.v1.get_default_graph()
    # What is made outside of the loop, as constants are, is there before the loop starts.
    ops = {tensor.op for tensor in input.batch_tensors(batches) if tensor.graph is graph}
    taken = sorted(ops, key=lambda op: op.name)
    for op in updates.assignments(step_ops):
        _tf.add_control_inputs(op, [first, *taken])


def _build_step_before(global_step: tf.Variable) -> tf.Tensor:
    """The global step before a session call, as stock hooks fetch it along with the call."""
    with tf.name_scope("global_step/"):
        step_before = _primary(global_step).read_value() + 0
    tf.compat.v1.add_to_collection("global_step_read_op_cache", step_before)
    return step_before


def _ops(values: Sequence[Any]) -> list[Any]:
    """Ops and tensors to wait for; a distributed value stands for all of its parts."""
    parts: list[Any] = []
    for value in values:
        is_distributed = isinstance(value, tf.distribute.DistributedValues)
        parts.extend(value.values if is_distributed else [value])
    return parts


def _primary(variable: tf.Variable) -> tf.Variable:
    return _tf.copies(variable)[0]
