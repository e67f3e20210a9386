"""The names of strategies in a `RunConfig`, and the objects that it accepts instead."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_choice

# The two classes have no public base class in common.
STRATEGY_TYPES = (tf.distribute.Strategy, tf.compat.v1.distribute.Strategy)
STRATEGY_NAMES = (
    "one_device",
    "mirrored",
    "central_storage",
    "multi_worker_mirrored",
    "parameter_server",
    "tpu",
)


def check_strategy_name(name: str) -> None:
    """Raises an error unless `name` is the name of a strategy."""
    check_choice("strategy", name, STRATEGY_NAMES)


def check_is_for_graphs(argument: str, strategy: Any) -> None:
    """Raises an error for TF 2's ParameterServerStrategy, which works only eagerly."""
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ValueError(
            f"`{argument}` is a tf.distribute.ParameterServerStrategy, which schedules eager "
            "functions from one process, by a ClusterCoordinator. Start a process for each task "
            'of TF_CONFIG, with "ps" tasks in its cluster, and pass '
            'RunConfig(strategy="parameter_server"), or a '
            "tf.compat.v1.distribute.experimental.ParameterServerStrategy."
        )
