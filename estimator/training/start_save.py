"""Saves step 0 in the same session call that checks the weights.

The first call of any kind copies and optimizes the whole graph: 5% of a small model's start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.saver_ops import has_stock_methods
from estimator.checkpoint.writer import CheckpointWriter
from estimator.config.run_config import RunConfig
from estimator.hooks.stock_hooks_in_loops import saver_hooks
from estimator.training.nan_guard import BadWeightsError, WeightsCheck
from estimator.training.open_training import OpenTraining


class OtherStepError(Exception):
    """Training does not start at step 0."""


@dataclasses.dataclass(frozen=True)
class StartSave:
    """The call that saves step 0.

    Attributes:
      saver: the saver, whose ops may be built later.
      step: scalar, int64: the global step.
      are_finite: whether each weight is finite, scalar bools by name; empty to save any.
    """

    saver: tf.compat.v1.train.Saver
    step: tf.Tensor
    are_finite: Mapping[str, tf.Tensor]

    def prepare(self, session: tf.compat.v1.Session) -> Callable[..., list]:
        """Prepares the call, in any thread; returns a function that takes the checkpoint's path."""
        saver_def, find = self.saver.saver_def, session.graph.as_graph_element
        fetches = [find(saver_def.save_tensor_name), self.step, *self.are_finite.values()]
        return _tf.make_callable(session, fetches, [find(saver_def.filename_tensor_name)])

    def run(
        self,
        session: tf.compat.v1.Session,
        call: Callable[..., list],
        checkpoints: CheckpointWriter,
    ) -> int:
        """Saves step 0 and returns 0.

        Args:
          session: the open session.
          call: makes the call that `prepare` returned.
          checkpoints: saves in the session.

        Raises:
          BadWeightsError: some weights are not finite; no file is left.
          OtherStepError: training does not start at step 0; no file is left.
        """

        def checked(*values: Any) -> list:
            saved, step, *are_finite = call(*values)
            if WeightsCheck.read((step, dict(zip(self.are_finite, are_finite, strict=True)))) != 0:
                raise OtherStepError
            return [saved]

        try:
            checkpoints.save_start(_tf.PreparingSession(session, lambda *_: checked), 0)
        except (BadWeightsError, OtherStepError):
            checkpoints.remove(0)
            raise
        return 0


def make_start_save(
    training: OpenTraining, saver: tf.compat.v1.train.Saver, weights: WeightsCheck
) -> StartSave | None:
    """Returns the call that saves step 0; None if others belong to a save, or if none is wanted."""
    request, config = training.request, training.config
    is_one_call = training.worker_group.decides_alone and not config.async_checkpoints
    is_plain = is_one_call and has_stock_methods(saver) and not request.listeners
    if not is_plain or saver_hooks(request.hooks) or not saves_start(training):
        return None
    return StartSave(saver, *weights.fetches_for(config.nan_policy))


def saves_start(training: OpenTraining) -> bool:
    """Returns whether a new training is saved before its first step."""
    return training.worker_group.saves and saves_on_the_way(training.config)


def saves_on_the_way(config: RunConfig) -> bool:
    """Returns whether checkpoints are saved before the end of training, too."""
    return config.save_checkpoints_steps is not None or config.save_checkpoints_secs is not None
