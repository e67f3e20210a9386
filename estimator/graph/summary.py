"""What leaves a train step for the event file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.graph.last_value import LastValue, build_last_value, build_write_if

_SUMMARIES = tf.compat.v1.GraphKeys.SUMMARIES


@dataclasses.dataclass
class LoopReport:
    """What the last step of a loop leaves for the host, collected while its body is built.

    Attributes:
      summary: where the merged summaries are left, None without any.
      logged: for each LoggingTensorHook of the model, the place of each of its tags.
    """

    summary: LastValue | None = None
    logged: list[tuple[Any, dict[str, LastValue]]] = dataclasses.field(default_factory=list)

    def places(self) -> Iterator[LastValue]:
        """All of them."""
        if self.summary is not None:
            yield self.summary
        for _, places in self.logged:
            yield from places.values()


def build_merged_summary(graph_before: set[int]) -> tf.Tensor | None:
    """One serialized summary (scalar, string) of those that `model_fn` added; None without any.

    Args:
      graph_before: `id`s of the summaries that were there before `model_fn` was called.
    """
    new = [s for s in tf.compat.v1.get_collection(_SUMMARIES) if id(s) not in graph_before]
    return tf.compat.v1.summary.merge(new, collections=[]) if new else None


def summaries_so_far() -> set[int]:
    """`id`s of the summaries in the default graph, those of tf.summary among them."""
    ones = tf.compat.v1.get_collection(_SUMMARIES)
    return {id(s) for s in (*ones, *tf.compat.v1.summary.all_v2_summary_ops())}


def written_summaries(graph_before: set[int]) -> list[tf.Operation]:
    """The ops with which tf.summary writes what `model_fn` added since, if it records."""
    ops = tf.compat.v1.summary.all_v2_summary_ops()
    return [op for op in ops if id(op) not in graph_before]


def build_loop_report(
    report: LoopReport,
    summary: tf.Tensor | None,
    hooks: tuple,
    *,
    is_last: tf.Tensor,
    is_recording: tf.Tensor,
) -> list[tf.Operation]:
    """Leaves the last step's summaries and logged tensors for the host.

    Args:
      report: filled in.
      summary: merged, scalar, string.
      hooks: the model's training hooks.
      is_last: scalar, bool: this is the last step of the loop.
      is_recording: scalar, bool: the host wants summaries of the last step.

    Returns:
      The ops that the step must run.
    """
    ops = []
    if summary is not None:
        report.summary = build_last_value(tf.string, "last_summary")
        due = tf.logical_and(is_last, is_recording)
        ops.append(build_write_if(due, [summary], [report.summary], "summaries_if_due"))
    graph = tf.compat.v1.get_default_graph()
    for hook in hooks:
        if not isinstance(hook, tf.compat.v1.train.LoggingTensorHook):
            continue
        tensors = {
            tag: graph.as_graph_element(t, allow_tensor=True, allow_operation=False)
            for tag, t in _tf.logging_hook_tensors(hook).items()
        }
        places = {tag: build_last_value(t.dtype, "last_logged") for tag, t in tensors.items()}
        report.logged.append((hook, places))
        ops.append(build_write_if(is_last, list(tensors.values()), list(places.values()), "logged"))
    return ops


def point_logging_hooks_at_last_values(report: LoopReport) -> None:
    """Gives the model's LoggingTensorHooks tensors that can be fetched after the loop.

    Call it with the loop's results as control dependencies.
    """
    for hook, places in report.logged:
        tensors = {tag: place.build_read() for tag, place in places.items()}
        _tf.set_logging_hook_tensors(hook, tensors)
