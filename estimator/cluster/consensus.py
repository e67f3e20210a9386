"""What workers agree on in each session call, so that all of them do the same next.

Each has its own wishes: a signal came, a hook wants to stop, a checkpoint is due by the clock. A
call takes them along and gives back what any worker wished. Before a loop of steps they agree on
its length too, and the loop is empty if somebody wants to stop; a single step does not wait for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import Workers, build_minimum, build_piggyback_sum

# Why to stop, the weightiest first, and last to save, after which training goes on.
REQUESTS = ("SIGTERM", "SIGINT", "hook", "listener", "max_time", "save")
_NUM_REASONS = len(REQUESTS) - 1
# The numbers of a report: the loss, whether there is more input, the wishes.
REPORT_SIZE = 2 + len(REQUESTS)


@dataclasses.dataclass(frozen=True)
class Consensus:
    """A vote of the workers.

    Attributes:
      workers: who votes.
      num_steps: scalar, int32, fed: the steps that this worker wants to run.
      requests: [len(REQUESTS)], int32, fed: 1 for what it wishes.
      agreed: [1 + len(REQUESTS)], int32: the least of the numbers of steps, and 1 for what anybody
        wishes. It can be run by itself, by all workers: none goes on before all have come.
    """

    workers: Workers
    num_steps: tf.Tensor
    requests: tf.Tensor
    agreed: tf.Tensor

    def build_num_steps(self) -> tf.Tensor:
        """The steps that a loop runs: none if anybody wants to stop."""
        is_stop = tf.reduce_any(self.agreed[1 : 1 + _NUM_REASONS] > 0)
        return tf.where(is_stop, 0, self.agreed[0])

    def build_is_whole(self, condition: tf.Tensor) -> tf.Tensor:
        """`condition`, unless another worker cuts the loop of this one short."""
        return tf.logical_and(condition, tf.equal(self.agreed[0], self.num_steps))


def build_consensus(workers: Workers, num_steps: tf.Tensor) -> Consensus:
    """Adds a vote to the default graph."""
    with tf.device("/cpu:0"):
        requests = tf.compat.v1.placeholder_with_default(
            [0] * len(REQUESTS), [len(REQUESTS)], "wishes"
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
    """What a step tells all workers, while it runs.

    Args:
      consensus: of the graph around the step.
      loss: this worker's part of the loss: scalar, float32.
      has_more: whether it has input for another step: scalar, bool; None if it cannot tell.
      slots: of all-reduces that may take the report along, each of REPORT_SIZE.
      step_ops: what each step runs.

    Returns:
      The sum of the losses, whether all have input for another step, and what anybody wishes
      ([len(REQUESTS)], int32).
    """
    with tf.device("/cpu:0"):
        more = tf.constant(1.0) if has_more is None else tf.cast(has_more, tf.float32)
        mine = tf.concat([[loss, more], tf.cast(consensus.requests, tf.float32)], axis=0)
        everyones = build_piggyback_sum(consensus.workers, mine, slots, step_ops)
        all_have_more = everyones[1] > consensus.workers.count - 0.5
        return everyones[0], all_have_more, tf.cast(everyones[2:] > 0.5, tf.int32)
