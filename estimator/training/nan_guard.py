"""Prevents saving weights that are not finite, also by the user's CheckpointSaverHooks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.console import log


class NanLossError(tf.compat.v1.train.NanLossDuringTrainingError):
    """The loss is not finite; the message names the step."""

    __str__ = RuntimeError.__str__  # The base class has a fixed message.


class BadWeightsError(NanLossError):
    """Some weights are not finite; the message names them."""


class WeightsCheck:
    """Checks that the weights are finite: a gradient can be NaN although the loss is finite.

    Attributes:
      fetches: what `read` takes the values of: the global step, and whether each weight is finite.
    """

    def __init__(self, graph: tf.Graph, current_step: tf.Tensor, nan_policy: str) -> None:
        """Adds an op to the graph for each trainable floating-point variable.

        Args:
          graph: the graph of the program.
          current_step: scalar, int64: the global step.
          nan_policy: the RunConfig's; with "ignore", no weight is checked.
        """
        self._names: list[str] = []
        self.fetches = [current_step]
        if nan_policy == "ignore":
            return
        with graph.as_default():
            weights = [w for w in tf.compat.v1.trainable_variables() if w.dtype.is_floating]
            # Few ops for each, as a large model has hundreds of weights.
            all_axes = functools.cache(tf.range)
            for weight in weights:
                variable = _tf.copies(weight)[0]
                value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
                rank = value.shape.rank
                axes = tf.range(tf.rank(value)) if rank is None else all_axes(rank)
                is_finite = tf.raw_ops.IsFinite(x=value)
                self._names.append(weight.name.partition(":")[0])
                self.fetches.append(tf.raw_ops.All(input=is_finite, axis=axes))

    def check(self, session: tf.compat.v1.Session) -> None:
        """Raises BadWeightsError unless all weights are finite."""
        if self._names:
            self.read(session.run(self.fetches))

    def read(self, values: Sequence[Any]) -> int:
        """Returns the global step; raises BadWeightsError unless all weights were finite."""
        step, *are_finite = values
        bad = [name for name, is_ok in zip(self._names, are_finite, strict=True) if not is_ok]
        if bad:
            raise BadWeightsError(f"After step {step} some weights are not finite: {bad}")
        return int(step)


class WeightsListener(tf.compat.v1.train.CheckpointSaverListener):
    """Prevents a user's CheckpointSaverHook from saving weights that are not finite."""

    def __init__(self, weights: WeightsCheck) -> None:
        """Creates a listener that runs `weights.check` before each save."""
        self._weights = weights

    def before_save(self, session: tf.compat.v1.Session, global_step_value: int) -> None:
        """Raises BadWeightsError unless all weights are finite."""
        del global_step_value
        self._weights.check(session)


def stop_on_nan(what: str, nan_policy: str) -> str:
    """Logs that a value is not finite, and raises or returns the reason to stop.

    Args:
      what: the start of the message: which value is not finite, and since which step.
      nan_policy: the RunConfig's.

    Returns:
      The `reason` of the `TrainResult`, if the policy is "stop".

    Raises:
      NanLossError: the policy is not "stop".
    """
    message = (
        f"{what}. The state after it is not saved: training resumes from the last checkpoint "
        "before it."
    )
    log.error(message)
    if nan_policy == "stop":
        return "nan loss"
    raise NanLossError(message)
