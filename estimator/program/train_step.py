"""The train step: one batch a replica, the model on each, and all that must happen then."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import ONE_WORKER, num_local_replicas
from estimator.cluster.consensus import REPORT_SIZE, Consensus, build_report
from estimator.input import input_calls
from estimator.model import reduction
from estimator.model.replicas import Model, Replicas, VariableWatch, build_replicas
from estimator.optimizer import accumulation
from estimator.optimizer.accumulated_step import (
    StepAccumulation,
    build_accumulated_loss,
    build_step_accumulation,
    counting_accumulation,
)
from estimator.program import host_call, step_summaries, tpu_replicas
from estimator.program.graph_scope import primary
from estimator.program.loop_batches import LoopInput
from estimator.program.loop_output import LoopOutput, build_loop_output
from estimator.program.skipped_steps import build_snapshot, build_take_back
from estimator.program.step_order import order_assignments, order_reads
from estimator.randomness.random_ops import drawing_by_step
from estimator.rewrite import updates
from estimator.rewrite.graph_walk import ops_behind
from estimator.rewrite.hoist import without_waits
from estimator.rewrite.packing import pack_messages, task_of
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time
from estimator.runtime.tpu_strategy import is_tpu
from estimator.spec import EstimatorSpec, ModeKeys

_NO_LOOP = (
    "A SyncReplicasOptimizer waits for the other workers in every step, in queues that a loop of "
    "steps cannot hold. Train with `iterations_per_loop=1`, or leave it out and use "
    'RunConfig(strategy="multi_worker_mirrored").'
)
_ONE_REPLICA = (
    "A SyncReplicasOptimizer takes one gradient a worker, and this one has several replicas. Train "
    "with `num_replicas=1` and a worker for each device, or leave it out and use "
    'RunConfig(strategy="multi_worker_mirrored").'
)

_log = logging.getLogger("estimator")

# What of a Scaffold no step runs.
_FOR_SESSIONS = ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op")


def training_hooks(spec: EstimatorSpec, is_chief: bool = True) -> tuple:
    """All hooks that a spec wants around training, in the chief or in another worker."""
    chiefs_alone = spec.training_chief_hooks or () if is_chief else ()
    return (*(spec.training_hooks or ()), *chiefs_alone)


class TrainStep:
    """Builds one step, in the graph's top or in a loop's body, and keeps what else came of it."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        model: Model,
        source: input_calls.Input | LoopInput,
        is_recording: tf.Tensor,
        step_before: tf.Tensor,
        skips: LoopOutput | None,
        ballot: Consensus | None,
        host_call_steps: int,
    ) -> None:
        """Builds nothing yet.

        Args:
          strategy: where the replicas run.
          model: of each replica.
          source: the input, or what the turns of a loop take from it.
          is_recording: scalar, bool: whether the last step's summaries are wanted.
          step_before: scalar, int64: the global step before the session call.
          skips: counts the steps that are taken back; None takes none back.
          ballot: what several workers agree on; None if there is one.
          host_call_steps: how many steps from one `host_call` to the next.
        """
        self._ballot = ballot
        self._workers = ONE_WORKER if ballot is None else ballot.workers
        self._wished: tf.Tensor | None = None
        self._seats: Sequence[_tf.PiggybackSlot] = ()
        self._step_before = step_before
        self._strategy = strategy
        self._model = model
        self._source = source
        self._global_step = tf.compat.v1.train.get_or_create_global_step()
        self._is_recording = is_recording
        self._skips = skips
        self._host_call_steps = host_call_steps
        self._windows: list[accumulation.Accumulation] = []
        self._window: accumulation.Accumulation | None = None
        self.report = step_summaries.LoopReport()
        self.spec: EstimatorSpec
        self._merged: tf.Tensor | None = None
        self._is_in_loop = False
        self.end: tf.Tensor | None = None
        self.has_own_summary = False
        self._last_loss: LoopOutput | None = None

    @property
    def can_end(self) -> bool:
        """Whether a step says that no other may follow."""
        is_shared = self._ballot is not None or self._model.config.num_ps_replicas > 0
        return is_shared or isinstance(self._source, LoopInput)

    def build(self, is_last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Adds the step.

        Args:
          is_last: scalar, bool: no other is asked for.

        Returns:
          Its loss, which depends on all that the step does, and whether another may follow: all
          workers have input for it, or have not made the last step (None if it cannot tell).
        """
        graph = tf.compat.v1.get_default_graph()
        is_in_loop = _tf.is_loop_body(graph)
        step = primary(self._global_step).read_value() if is_in_loop else self._step_before
        batches, has_more, is_last = self._build_batches(is_last)
        summaries_before = step_summaries.summaries_so_far()
        # For tf.summary with a writer of the model's: it writes by itself, when it is asked to.
        refused: contextlib.AbstractContextManager = contextlib.nullcontext()
        if self._model.config.num_ps_replicas and (is_in_loop or len(batches) > 1):
            refused = _tf.sync_replicas_refused(_NO_LOOP if is_in_loop else _ONE_REPLICA)
        with tf.summary.record_if(self._build_is_writing(is_last)), refused:
            replicas = self._build_replicas(step, batches)
        self.spec = replicas.outputs[0].spec
        done = self._build_done(replicas, step, summaries_before)
        losses = [output.spec.loss for output in replicas.outputs]
        loss = reduction.build_mean_loss(losses, len(losses) * self._workers.count)
        if self._ballot is not None:
            loss, has_more, self._wished = build_report(
                self._ballot, loss, has_more, self._seats, _as_ops(done)
            )
        step_ops = _ops_behind(done, replicas.new_ops)
        loss, kept = build_accumulated_loss(self._window, loss)
        step_ops, done = step_ops + kept, done + kept
        seen = _as_ops([*losses, *step_summaries.summaries_since(summaries_before)])
        self._order(step_ops, step, batches, replicas.new_ops, seen)
        if is_in_loop:
            _tf.forget_waits(graph, without_waits(replicas.waits, step_ops))
        merged = self._build_summary(summaries_before)
        if is_in_loop:
            is_inside = merged is not None and merged.graph is graph
            done += step_summaries.build_loop_report(
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
        if self._model.config.num_ps_replicas:
            pack_messages(_ops_behind([*done, loss], replicas.new_ops))
        if is_in_loop and self._model.config.num_ps_replicas:
            done, is_before_end = self._build_is_before_end(done, step_ops)
            has_more = (
                is_before_end if has_more is None else tf.logical_and(has_more, is_before_end)
            )
        with tf.device("/cpu:0"), tf.control_dependencies([tf.group(*_ops(done))]):
            loss = tf.identity(loss, "loss_of_step")
        return self._build_kept(loss, is_in_loop), has_more

    def _build_kept(self, loss: tf.Tensor, is_in_loop: bool) -> tf.Tensor:
        """Keeps the loss if it may be that the next turn finds no batch, which is an error."""
        if not is_in_loop or self.can_end:
            return loss
        with tf.init_scope():
            zero = tf.zeros([])
        self._last_loss = build_loop_output(tf.float32, "last_loss", zero)
        with tf.device("/cpu:0"), tf.control_dependencies([self._last_loss.build_write(loss)]):
            return tf.identity(loss)

    def build_loss_so_far(self) -> tf.Tensor | None:
        """What `_build_kept` keeps; None if the input tells of its end in time."""
        return None if self._last_loss is None else self._last_loss.build_read()

    def places(self) -> list[LoopOutput]:
        """What the last step of a loop leaves its values in."""
        return [*self.report.places(), *([self._last_loss] if self._last_loss else [])]

    def _build_batches(self, is_last: tf.Tensor) -> tuple[list[Any], tf.Tensor | None, tf.Tensor]:
        """The batches, whether others follow if that is known, and whether no other does."""
        if not isinstance(self._source, LoopInput):
            num_replicas = num_local_replicas(self._strategy)
            return *input_calls.build_replica_batches(self._source, num_replicas), is_last
        batches = self._source.build_batches()
        has_more = self._source.build_next(tf.logical_not(is_last), batches)
        return batches, has_more, tf.logical_not(has_more)

    def _order(
        self,
        step_ops: Sequence[tf.Operation],
        step: tf.Tensor,
        batches: list[Any],
        new_ops: Sequence[tf.Operation],
        results: Sequence[tf.Operation],
    ) -> None:
        """Has what changes a variable wait for what must not see the change."""
        # A loop makes no turn that it has no batch for.
        uncertain = [] if isinstance(self._source, LoopInput) else batches
        branches = [window.update for window in self._windows if window.counts_step]
        order_assignments(step_ops, step, self._global_step, uncertain, branches)
        order_reads(new_ops, [*step_ops, *results])

    def _build_done(
        self, replicas: Replicas, step: tf.Tensor, summaries_before: set[int]
    ) -> list[Any]:
        """All that a step runs for its effect."""
        done = [output.spec.train_op for output in replicas.outputs]
        done += updates.build_updates(
            _without_ops_for_sessions(replicas),
            replicas.keras_variables,
            self._global_step,
            [window.update for window in self._windows],
            set(_ops_behind(done, replicas.new_ops)),
        )
        done += step_summaries.written_summaries(summaries_before)
        if self._workers.is_chief:
            done += host_call.build_host_call(
                [output.host_call for output in replicas.outputs], self._build_is_host_called(step)
            )
        return done

    def _build_is_before_end(
        self, done: list[Any], step_ops: Sequence[tf.Operation]
    ) -> tuple[list[Any], tf.Tensor]:
        """Whether the workers, each at its own pace, have yet to make the last step.

        The message that the ps has made the step says so, too.
        """
        with tf.init_scope():
            self.end = tf.compat.v1.placeholder_with_default(tf.int64.max, [], "training/end")
        counter = primary(self._global_step)
        made, elsewhere = done, []
        if self._skips is None:
            there = task_of(counter.handle.op)
            made = [op for op in _ops(done) if task_of(getattr(op, "op", op)) == there]
            elsewhere = [op for op in _ops(done) if op not in made]
            made += updates.writes_to(updates.assignments(step_ops), self._global_step)
        with tf.control_dependencies(_ops(made)):
            step = counter.read_value()
        return [*elsewhere, step], step < self.end

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
        self.has_own_summary = scaffold.summary_op is not None
        if not self.has_own_summary:
            merged = step_summaries.build_merged_summary(summaries_before)
            _tf.set_scaffold_parts(scaffold, {"summary_op": merged})
        return scaffold.summary_op

    def _build_replicas(self, step: tf.Tensor, batches: list[Any]) -> Replicas:
        """The model of each replica, and the windows that its optimizers make."""
        moment = tf.identity(step, "training/moment")
        with (
            accumulation.collecting_accumulations() as windows,
            drawing_by_step(moment, self._model.model_fn) as model_fn,
        ):
            model = dataclasses.replace(self._model, model_fn=model_fn)
            if is_tpu(self._strategy):
                return self._build_tpu_program(model, batches, moment, windows)
            with self._seats_for_report() as self._seats:
                replicas = build_replicas(self._strategy, model, batches, ModeKeys.TRAIN)
        warn_unless_steps_are_counted(replicas.new_ops, self._global_step, windows)
        conditional = {window.update for window in windows}
        assigned = [op for op in updates.assignments(replicas.new_ops) if op not in conditional]
        self._windows = windows
        self._window = counting_accumulation(windows, assigned, self._global_step)
        if self._window is not None:
            # The batches of a step differ in their random numbers, too.
            _tf.set_input(moment.op, step + self._window.before * 2**40)
        return replicas

    def _seats_for_report(self) -> contextlib.AbstractContextManager[Sequence[_tf.PiggybackSlot]]:
        """Inside, what reduces gradients can take along what workers tell each other."""
        if self._ballot is None:
            return contextlib.nullcontext(())
        return _tf.piggyback_slots(REPORT_SIZE)

    def _build_tpu_program(
        self,
        model: Model,
        batches: list[Any],
        step: tf.Tensor,
        windows: Sequence[accumulation.Accumulation],
    ) -> Replicas:
        def finish(spec: EstimatorSpec, watch: VariableWatch) -> list[Any]:
            if windows:
                raise NotImplementedError(
                    "`accumulate_steps` of the CrossShardOptimizer is not available on a TPU. Use "
                    "a larger `train_batch_size`."
                )
            new_ops, keras_variables = watch.new_ops(), watch.keras_variables
            warn_unless_steps_are_counted(new_ops, self._global_step)
            others = updates.build_updates(new_ops, keras_variables, self._global_step)
            return _ops([spec.train_op, *others])

        # The program changes variables as a whole: it waits for who reads them before the step.
        with tf.device("/cpu:0"), tf.control_dependencies([step]):
            batches = tf.nest.map_structure(
                lambda t: None if t is None else tf.identity(t), batches
            )
        return tpu_replicas.build_program(self._strategy, model, batches, ModeKeys.TRAIN, finish)

    def _build_is_host_called(self, step: tf.Tensor) -> tf.Tensor | None:
        """Whether this batch has a `host_call`: scalar, bool; None if each has."""
        conditions = []
        if self._host_call_steps > 1:
            conditions.append(tf.equal((step + 1) % self._host_call_steps, 0))
        if self._window is not None:
            conditions.append(self._window.before + 1 >= self._window.size)
        return tf.reduce_all(tf.stack(conditions)) if conditions else None

    def build_window_outside(self) -> StepAccumulation | None:
        """How batches make a step, where a session can see it."""
        return build_step_accumulation(self._window, self._windows)

    def build_summary_outside(self) -> tf.Tensor | None:
        """The last step's merged summaries, where a session can fetch them."""
        if self.report.summary is not None:
            return self.report.summary.build_read()
        if self._merged is None or not self._is_in_loop:
            return self._merged
        # Of a `scaffold_fn`, around the loop: of what the loop leaves, not of what is there before.
        return build_copy(self._merged, runs_each_time)


def warn_unless_steps_are_counted(
    new_ops: Sequence[tf.Operation],
    global_step: tf.Variable,
    windows: Sequence[accumulation.Accumulation] = (),
) -> None:
    """Says so if none of the ops that `model_fn` made assigns the global step: a hook may do it."""
    if windows or updates.writes_to(updates.assignments(new_ops), global_step):
        return
    _log.warning(
        "`train_op` does not advance the global step. Unless a hook does, training ends only with "
        "its input. Pass `global_step=tf.compat.v1.train.get_global_step()` to "
        "`optimizer.minimize`, or add `tf.compat.v1.assign_add(global_step, 1)` to the `train_op`."
    )


def _ops_behind(values: Sequence[Any], among: Sequence[tf.Operation]) -> list[tf.Operation]:
    """Those of some ops that run for `values`; a saver's and others' do not."""
    behind = ops_behind((getattr(value, "op", value) for value in _ops(values)), set(among))
    return [op for op in among if op in behind]


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


def _as_ops(values: Sequence[Any]) -> list[tf.Operation]:
    return [getattr(value, "op", value) for value in _ops(values)]


def _ops(values: Sequence[Any]) -> list[Any]:
    """Ops and tensors to wait for; a distributed value stands for all of its parts."""
    parts: list[Any] = []
    for value in values:
        is_distributed = isinstance(value, tf.distribute.DistributedValues)
        parts.extend(value.values if is_distributed else [value])
    return parts
