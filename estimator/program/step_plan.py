"""What a train step is built from, and what it begins with."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from estimator.cluster.collectives import ONE_WORKER, Workers
from estimator.cluster.consensus import Consensus
from estimator.input.input_calls import Input
from estimator.model.replicas import Model
from estimator.program.loop_batches import LoopInput
from estimator.program.loop_output import LoopOutput


@dataclasses.dataclass(frozen=True)
class StepCounters:
    """What counts steps.

    Attributes:
      global_step: the variable.
      before: scalar, int64: the global step before the session call.
      skipped: counts the steps that are taken back.
    """

    global_step: tf.Variable
    before: tf.Tensor
    skipped: LoopOutput


@dataclasses.dataclass(frozen=True)
class StepPlan:
    """What a train step is built from; all of it is in the graph around a loop.

    Attributes:
      strategy: where the replicas run.
      model: of each replica.
      source: the input, or what the turns of a loop take from it.
      counters: of the session.
      is_recording: scalar, bool: whether the last step's summaries are wanted.
      consensus: what several workers agree on; None if there is one.
      takes_back: whether a step that leaves a number that is not finite is taken back.
      host_call_steps: how many steps from one `host_call` to the next.
    """

    strategy: tf.distribute.Strategy
    model: Model
    source: Input | LoopInput
    counters: StepCounters
    is_recording: tf.Tensor
    consensus: Consensus | None
    takes_back: bool
    host_call_steps: int

    @property
    def workers(self) -> Workers:
        """Those that train together."""
        return ONE_WORKER if self.consensus is None else self.consensus.workers

    @property
    def has_ps(self) -> bool:
        """Whether ps tasks hold the variables."""
        return self.model.config.num_ps_replicas > 0

    @property
    def can_end(self) -> bool:
        """Whether a step says that no other may follow."""
        return self.consensus is not None or self.has_ps or isinstance(self.source, LoopInput)


@dataclasses.dataclass(frozen=True)
class StepStart:
    """What a step begins with.

    Attributes:
      is_in_loop: whether it is built in a loop's body.
      step: scalar, int64: the global step before it.
      batches: one a replica.
      has_more: scalar, bool: whether there are batches for another step, as far as this worker
        knows; None if it does not.
      is_last: scalar, bool: no other step follows in this session call.
      summaries_before: `id`s of the summaries that `model_fn` has not made.
    """

    is_in_loop: bool
    step: tf.Tensor
    batches: list[Any]
    has_more: tf.Tensor | None
    is_last: tf.Tensor
    summaries_before: set[int]
