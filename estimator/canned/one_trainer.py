"""Models whose training keeps state that neither replicas nor workers can share."""

from __future__ import annotations

import tensorflow as tf

from estimator.config.run_config import RunConfig
from estimator.spec import ModeKeys


def check_one_trainer(
    title: str, reason: str, mode: str, config: RunConfig, *, alternative: str = ""
) -> None:
    """Raises an error if several replicas run, or if several workers train.

    Args:
      title: what cannot run there.
      reason: what each of them would do.
      mode: a mode key. Only one worker evaluates, whatever the cluster.
      config: the model's configuration.
      alternative: another way out than one process, if there is one.

    Raises:
      ValueError: there are several.
    """
    num_replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if num_replicas > 1:
        raise ValueError(
            f"{title} cannot run on {num_replicas} replicas, because each would {reason}. Leave "
            f"the strategy out of the RunConfig{alternative}."
        )
    if mode == ModeKeys.TRAIN and config.num_worker_replicas > 1:
        raise ValueError(
            f"{title} cannot train with {config.num_worker_replicas} workers, because each would "
            f"{reason}. Train in one process, with a TF_CONFIG that names one worker or "
            f"chief{alternative}."
        )
