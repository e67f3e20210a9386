"""Consensus of the workers in each session call, so that all of them do the same next.

Every worker has its own requests: a signal arrived, a hook wants to stop, a checkpoint is due by
the clock. A session call feeds them and returns what any worker has requested. Before a loop of
steps the workers also agree on its length, and the loop is empty if a worker wants to stop; a
single step does not wait for this agreement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import Workers, build_minimum, build_piggyback_sum

# Reasons to stop, the most important first; then "save", after which training continues. Only the
# chief asks for it, and only by the clock: all workers know which steps are saved.
REQUESTS = ("SIGTERM", "SIGINT", "hook", "listener", "max_time", "save")
_NUM_REASONS = len(REQUESTS) - 1
# The elements of a report: the loss, whether there is more input, and the requests.
REPORT_SIZE = 2 + len(REQUESTS)


@dataclasses.dataclass(frozen=True)
class Consensus:
    """The tensors with which workers reach a consensus.

    Attributes:
      workers: the workers that take part.
      num_steps: scalar, int32: the number of steps that this worker wants to run. Fed
        where `agreed` is run on its own, so that no batch is taken.
      requests: [len(REQUESTS)], int32, fed: 1 for each thing that this worker requests.
      agreed: [1 + len(REQUESTS)], int32: the smallest number of steps, and 1 for everything that
        any worker requests. All workers may run it on its own, as a barrier.
    """

    workers: Workers
    num_steps: tf.Tensor
    requests: tf.Tensor
    agreed: tf.Tensor

    def build_num_steps(self) -> tf.Tensor:
        """Returns the number of steps that a loop runs: 0 if any worker wants to stop."""
        is_stop = tf.reduce_any(self.agreed[1 : 1 + _NUM_REASONS] > 0)
        return tf.where(is_stop, 0, self.agreed[0])

    def build_is_whole(self, condition: tf.Tensor) -> tf.Tensor:
        """Returns `condition`, or false if another worker shortens this worker's loop."""
        return tf.logical_and(condition, tf.equal(self.agreed[0], self.num_steps))


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How workers that train together agree on what each session call does.

    Attributes:
      graph: the graph of the program.
      consensus: the collective by which they agree; None for one worker.
      outcome: [1 + len(REQUESTS)], int32: whether all have input for another step, and what any
        worker asks for; fetched along with the loss. None for one worker.
      has_first_batch: scalar, bool: whether this worker has input for the first step; run once,
        before it. None if the input does not look ahead.
    """

    graph: tf.Graph
    consensus: Consensus | None
    outcome: tf.Tensor | None
    has_first_batch: tf.Tensor | None


def build_consensus(
    workers: Workers, num_steps: tf.Tensor, build_has_batch: Callable[[], tf.Tensor] | None
) -> Consensus | None:
    """Adds a consensus of several workers to the default graph; returns None for one worker.

    Args:
      workers: the workers that take part.
      num_steps: scalar, int32, fed: the number of steps that this worker wants to run.
      build_has_batch: takes the batch of the first step; returns whether there is one (scalar,
        bool). Without one, this worker wants no step. None if batches are taken later.
    """
    if workers.count == 1:
        return None
    # In a name scope, like all that is built before the model: a variable of the same name as an op
    # would be saved under another name.
    with tf.device("/cpu:0"), tf.name_scope("training/"):
        if build_has_batch is not None:
            num_steps = tf.where(build_has_batch(), num_steps, 0)
        requests = tf.compat.v1.placeholder_with_default(
            [0] * len(REQUESTS), [len(REQUESTS)], "requests"
        )
        least = build_minimum(workers, tf.concat([[num_steps], -requests], axis=0))
        return Consensus(workers, num_steps, requests, least * ([1] + [-1] * len(REQUESTS)))


def build_report(
    consensus: Consensus,
    loss: tf.Tensor,
    has_more: tf.Tensor | None,
    slots: Sequence[_tf.PiggybackSlot] = (),
    step_ops: Iterable[tf.Operation] = (),
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Builds the report of a step, which is exchanged with all workers while the step runs.

    Args:
      consensus: the consensus of the graph around the step.
      loss: this worker's share of the loss: scalar, float32.
      has_more: whether this worker has input for another step: scalar, bool; None if unknown.
      slots: the all-reduces that may carry the report; each slot has REPORT_SIZE elements.
      step_ops: the ops that every step runs.

    Returns:
      The sum of the losses, whether all workers have input for another step, and what any worker
      requests ([len(REQUESTS)], int32).
    """
    with tf.device("/cpu:0"):
        more = tf.constant(1.0) if has_more is None else tf.cast(has_more, tf.float32)
        mine = tf.concat([[loss, more], tf.cast(consensus.requests, tf.float32)], axis=0)
        everyones = build_piggyback_sum(consensus.workers, mine, slots, step_ops)
        all_have_more = everyones[1] > consensus.workers.count - 0.5
        return everyones[0], all_have_more, tf.cast(everyones[2:] > 0.5, tf.int32)
