"""Saves step 0 in the same session call that checks the weights.

Each call that runs once is copied and optimized with its whole graph: 5% of a small model's start.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint import files
from estimator.checkpoint.saver_ops import has_stock_methods
from estimator.checkpoint.writer import CheckpointWriter
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.run_config import RunConfig
from estimator.hooks.stock_hooks_in_loops import saver_hooks
from estimator.training.nan_guard import BadWeightsError, WeightsCheck
from estimator.training.request import TrainRequest


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
        """Returns the call, which takes the path, optimized; used in any thread."""
        saver_def, find = self.saver.saver_def, session.graph.as_graph_element
        fetches = [find(saver_def.save_tensor_name), self.step, *self.are_finite.values()]
        return _tf.make_callable(session, fetches, [find(saver_def.filename_tensor_name)])

    def run(
        self,
        session: tf.compat.v1.Session,
        call: Callable[..., list],
        checkpoints: CheckpointWriter,
        model_dir: str,
    ) -> int:
        """Saves step 0 and returns 0; leaves no file behind if it raises an error.

        Args:
          session: the open session.
          call: makes the call that `prepare` returned.
          checkpoints: saves in the session.
          model_dir: where it saves.

        Raises:
          BadWeightsError: some weights are not finite.
          OtherStepError: training does not start at step 0.
        """

        def check(step: int, *are_finite: bool) -> None:
            if WeightsCheck.read((step, dict(zip(self.are_finite, are_finite, strict=True)))) != 0:
                raise OtherStepError

        try:
            checkpoints.save_start(_tf.PreparedSession(session, call, check), 0)
        except (BadWeightsError, OtherStepError):
            files.remove_checkpoint(os.path.join(model_dir, f"{files.PREFIX}-0"))
            raise
        return 0


def make_start_save(
    request: TrainRequest,
    saver: tf.compat.v1.train.Saver,
    weights: WeightsCheck,
    worker_group: WorkerGroup,
) -> StartSave | None:
    """Returns the call that saves step 0; None if others belong to a save, or if none is wanted."""
    config = request.config
    is_one_call = worker_group.decides_alone and not config.async_checkpoints
    is_plain = is_one_call and has_stock_methods(saver) and not request.listeners
    if not is_plain or saver_hooks(request.hooks) or not saves_start(config, worker_group):
        return None
    return StartSave(saver, *weights.fetches_for(config.nan_policy))


def saves_start(config: RunConfig, worker_group: WorkerGroup) -> bool:
    """Returns whether a new training is saved before its first step."""
    return worker_group.saves and saves_on_the_way(config)


def saves_on_the_way(config: RunConfig) -> bool:
    """Returns whether checkpoints are saved before the end of training, too."""
    return config.save_checkpoints_steps is not None or config.save_checkpoints_secs is not None
