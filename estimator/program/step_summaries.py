"""Collects the summaries of a train step for the event file."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.console import log
from estimator.program.loop_output import LoopOutput, build_loop_output, build_writes
from estimator.program.step_plan import StepStart
from estimator.rewrite.graph_walk import waits_of, walk
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time
from estimator.rewrite.updates import is_assigned
from estimator.spec import EstimatorSpec

_SUMMARIES = tf.compat.v1.GraphKeys.SUMMARIES

_Kept: TypeAlias = tuple[tf.Tensor, LoopOutput]


@dataclasses.dataclass(frozen=True)
class LoopReport:
    """The values of a loop's last step for the host.

    Attributes:
      summary: holds the merged summaries; None if they are not computed inside the loop.
      logged: for each LoggingTensorHook of the model, the output for each of its tags.
      saved: for each SummarySaverHook of the model, the outputs for its summaries.
    """

    summary: LoopOutput | None
    logged: list[tuple[Any, dict[str, LoopOutput]]]
    saved: list[tuple[Any, list[LoopOutput]]]


@dataclasses.dataclass(frozen=True)
class StepSummaries:
    """The summaries of a step.

    Attributes:
      merged: scalar, string: the Scaffold's `summary_op`, else all summaries of `model_fn`; None
        if there are none.
      is_own: whether the model's Scaffold brings the `summary_op`, so that nothing is added to it.
      report: the values of a loop's last step; None outside of a loop.
      places: the outputs that the last step of a loop writes.
      across_workers: the names of the summaries that read from all workers what the step does not.
    """

    merged: tf.Tensor | None
    is_own: bool
    across_workers: Sequence[str]
    report: LoopReport | None = None
    places: Sequence[LoopOutput] = ()

    def build_outside(self) -> tf.Tensor | None:
        """Builds a read of the last step's merged summaries, outside of the loop."""
        if self.merged is None or self.report is None:
            return self.merged
        if self.report.summary is not None:
            return self.report.summary.build_read()
        # A `scaffold_fn` builds it around the loop: the copy reads the values after the loop.
        return build_copy(self.merged, runs_each_time)


def build_step_summaries(
    spec: EstimatorSpec, start: StepStart, running: Iterable[tf.Operation]
) -> tuple[StepSummaries, list[tf.Operation]]:
    """Merges a step's summaries; in a loop, stores those of its last step for the host.

    Args:
      spec: the first replica's, whose Scaffold gets a `summary_op` if it has none.
      start: the start of the step.
      running: the ops that the step runs anyway.

    Returns:
      The summaries, and the ops that the step must run.
    """
    scaffold = spec.scaffold or tf.compat.v1.train.Scaffold()
    is_own = scaffold.summary_op is not None
    if not is_own:
        merged = build_merged_summary(start.summaries_before)
        _tf.set_scaffold_parts(scaffold, {"summary_op": merged})
    merged = scaffold.summary_op
    if isinstance(merged, str):
        merged = tensor_of(merged)
    each = [merged] if is_own else summaries_since(start.summaries_before)
    across_workers = _across_workers([one for one in each if one is not None], set(running))
    if not start.is_in_loop:
        return StepSummaries(merged, is_own, across_workers), []
    inside = None if merged is None or _is_outside(merged) else merged
    hooks = (*spec.training_hooks, *spec.training_chief_hooks)
    report, summaries, values = _build_loop_report(inside, hooks)
    both = ((start.is_last, values), (start.is_recorded, summaries))
    stages = [(predicate, kept) for predicate, kept in both if kept]
    ops = [build_writes(stages, running)] if stages else []
    places = [place for _, place in [*summaries, *values]]
    return StepSummaries(merged, is_own, across_workers, report, places), ops


def build_merged_summary(graph_before: set[int]) -> tf.Tensor | None:
    """Merges the summaries that `model_fn` added (scalar, string); None without any.

    Args:
      graph_before: `id`s of the summaries that existed before `model_fn` was called.
    """
    new = summaries_since(graph_before)
    _warn_of_the_unreachable(_all_since(graph_before), new)
    return tf.compat.v1.summary.merge(new, collections=[]) if new else None


def summaries_since(graph_before: set[int]) -> list[tf.Tensor]:
    """Returns the new v1 summaries that can be read in the default graph."""
    graph = tf.compat.v1.get_default_graph()
    return [s for s in _all_since(graph_before) if _tf.can_be_read_in(graph, s)]


def _across_workers(summaries: list[tf.Tensor], running: set[tf.Operation]) -> list[str]:
    """Returns the names of those that need a collective which the step does not run anyway."""

    def needs_others(summary: tf.Tensor) -> bool:
        behind = walk([summary.op], lambda op: [o for o in waits_of(op) if o not in running])
        return any(op.type.startswith("Collective") for op in behind)

    return [summary.op.name for summary in summaries if needs_others(summary)]


def _all_since(graph_before: set[int]) -> list[tf.Tensor]:
    """Includes those of a model's loops and branches: all graphs share their collections."""
    return [s for s in tf.compat.v1.get_collection(_SUMMARIES) if id(s) not in graph_before]


def _warn_of_the_unreachable(every: list[tf.Tensor], reachable: list[tf.Tensor]) -> None:
    reached = {id(s) for s in reachable}
    names = sorted({s.op.name for s in every if id(s) not in reached})
    if names:
        log.warning(
            "The summaries %s are made inside a loop, a branch or a function of the model, and "
            "cannot be recorded: only what is returned from there can be read outside. Return the "
            "value, and summarize it outside.",
            names,
        )


def build_summary_with_new(summary: tf.Tensor | None, before: set[int]) -> tf.Tensor | None:
    """Merges `summary` with what was added to the default graph since; None if there is neither.

    Args:
      summary: serialized, scalar, string, or None.
      before: the earlier result of `summaries_so_far`.
    """
    new = build_merged_summary(before)
    if new is None or summary is None:
        return summary if new is None else new
    return tf.compat.v1.summary.merge([summary, new], collections=[])


def summaries_so_far() -> set[int]:
    """Returns the `id`s of all summaries in the default graph, including those of tf.summary."""
    ones = tf.compat.v1.get_collection(_SUMMARIES)
    return {id(s) for s in (*ones, *tf.compat.v1.summary.all_v2_summary_ops())}


def written_summaries(graph_before: set[int]) -> list[tf.Operation]:
    """Returns the tf.summary write ops that `model_fn` added since, if recording is on.

    Without those in branches, loops and functions, which run with them.
    """
    graph = tf.compat.v1.get_default_graph()
    ops = tf.compat.v1.summary.all_v2_summary_ops()
    return [op for op in ops if id(op) not in graph_before and op.graph is graph]


def _build_loop_report(
    summary: tf.Tensor | None, hooks: tuple
) -> tuple[LoopReport, list[_Kept], list[_Kept]]:
    """Builds outputs for the last step's summaries, and for what the model's hooks log and save.

    Returns:
      The outputs, and pairs of a tensor and its output: those of the summaries, and of the hooks.
    """
    place = None if summary is None else build_loop_output(tf.string, "last_summary")
    report = LoopReport(place, [], [])
    summaries = [] if summary is None or place is None else [(summary, place)]
    values: list[_Kept] = []
    for hook in hooks:
        if isinstance(hook, tf.compat.v1.train.LoggingTensorHook):
            named = {tag: tensor_of(t) for tag, t in _tf.logging_hook_tensors(hook).items()}
            logged = {tag: tensor for tag, tensor in named.items() if not _is_outside(tensor)}
            places = {tag: build_loop_output(t.dtype, "last_logged") for tag, t in logged.items()}
            report.logged.append((hook, places))
            values += zip(logged.values(), places.values(), strict=True)
        elif isinstance(hook, tf.compat.v1.train.SummarySaverHook):
            saved = [tensor_of(summary) for summary in _tf.summary_tensors(hook)]
            if all(_is_outside(summary) for summary in saved):
                continue
            last = [build_loop_output(tf.string, "last_saved") for _ in saved]
            report.saved.append((hook, last))
            values += zip(saved, last, strict=True)
    return report, summaries, values


def build_fetch_overrides(
    report: LoopReport | None, after: tf.Tensor
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Redirects the model's hooks to the values that the last step has stored.

    Args:
      report: the loop's report; None if there is no loop.
      after: the loop's result.

    Returns:
      Pairs of a tensor that the hooks fetch, which is valid at any time, and the tensor to fetch
      instead in a call that runs a loop.
    """
    if report is None:
        return []
    pairs = []

    def build_pair(place: LoopOutput) -> tf.Tensor:
        at_any_time = place.build_read()
        with tf.control_dependencies([after]):
            pairs.append((at_any_time, place.build_read()))
        return at_any_time

    for hook, places in report.logged:
        tensors = {tag: build_pair(place) for tag, place in places.items()}
        _tf.replace_logging_hook_tensors(hook, tensors)
    for hook, last in report.saved:
        _tf.set_summary_tensors(hook, [build_pair(place) for place in last])
    return pairs


def tensor_of(tensor_or_name: Any) -> tf.Tensor:
    """Returns the tensor that a hook or Scaffold names, or has, in the loop or around it.

    Raises:
      ValueError: no graph has a tensor of that name.
    """
    if isinstance(tensor_or_name, tf.Variable):
        variable = _tf.copies(tensor_or_name)[0]
        return variable.read_value() if is_assigned(variable) else variable.handle
    if not isinstance(tensor_or_name, str):
        return tensor_or_name
    name = tensor_or_name if ":" in tensor_or_name else f"{tensor_or_name}:0"
    for graph in _tf.outer_graphs(tf.compat.v1.get_default_graph()):
        with contextlib.suppress(KeyError):
            return graph.get_tensor_by_name(name)
    raise ValueError(
        f"A hook or the Scaffold of `model_fn` asks for the tensor {tensor_or_name!r}, which does "
        "not exist. Name it with tf.identity(tensor, name)."
    )


def _is_outside(tensor: tf.Tensor) -> bool:
    return tensor.graph is not tf.compat.v1.get_default_graph()
