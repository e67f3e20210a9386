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
from estimator.cluster.collectives import Workers, build_minimum, build_sum_in_seat

# Why to stop, the weightiest first, and last to save, after which training goes on.
WISHES = ("SIGTERM", "SIGINT", "hook", "listener", "max_time", "save")
_NUM_REASONS = len(WISHES) - 1
# The numbers of a report: the loss, whether there is more input, the wishes.
REPORT_SIZE = 2 + len(WISHES)


@dataclasses.dataclass(frozen=True)
class Ballot:
    """A vote of the workers.

    Attributes:
      workers: who votes.
      num_steps: scalar, int32, fed: the steps that this worker wants to run.
      wishes: [len(WISHES)], int32, fed: 1 for what it wishes.
      agreed: [1 + len(WISHES)], int32: the least of the numbers of steps, and 1 for what anybody
        wishes. It can be run by itself, by all workers: none goes on before all have come.
    """

    workers: Workers
    num_steps: tf.Tensor
    wishes: tf.Tensor
    agreed: tf.Tensor

    def build_num_steps(self) -> tf.Tensor:
        """The steps that a loop runs: none if anybody wants to stop."""
        is_stop = tf.reduce_any(self.agreed[1 : 1 + _NUM_REASONS] > 0)
        return tf.where(is_stop, 0, self.agreed[0])

    def build_is_whole(self, condition: tf.Tensor) -> tf.Tensor:
        """`condition`, unless another worker cuts the loop of this one short."""
        return tf.logical_and(condition, tf.equal(self.agreed[0], self.num_steps))


def build_ballot(workers: Workers, num_steps: tf.Tensor) -> Ballot:
    """Adds a vote to the default graph."""
    with tf.device("/cpu:0"):
        wishes = tf.compat.v1.placeholder_with_default([0] * len(WISHES), [len(WISHES)], "wishes")
        least = build_minimum(workers, tf.concat([[num_steps], -wishes], axis=0))
        return Ballot(workers, num_steps, wishes, least * ([1] + [-1] * len(WISHES)))


def build_report(
    ballot: Ballot,
    loss: tf.Tensor,
    has_more: tf.Tensor | None,
    seats: Sequence[_tf.Seat] = (),
    step_ops: Iterable[tf.Operation] = (),
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What a step tells all workers, while it runs.

    Args:
      ballot: of the graph around the step.
      loss: this worker's part of the loss: scalar, float32.
      has_more: whether it has input for another step: scalar, bool; None if it cannot tell.
      seats: of all-reduces that may take the report along, each of REPORT_SIZE.
      step_ops: what each step runs.

    Returns:
      The sum of the losses, whether all have input for another step, and what anybody wishes
      ([len(WISHES)], int32).
    """
    with tf.device("/cpu:0"):
        more = tf.constant(1.0) if has_more is None else tf.cast(has_more, tf.float32)
        mine = tf.concat([[loss, more], tf.cast(ballot.wishes, tf.float32)], axis=0)
        everyones = build_sum_in_seat(ballot.workers, mine, seats, step_ops)
        all_have_more = everyones[1] > ballot.workers.count - 0.5
        return everyones[0], all_have_more, tf.cast(everyones[2:] > 0.5, tf.int32)
