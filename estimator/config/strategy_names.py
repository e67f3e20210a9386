"""The names of strategies in a `RunConfig`, and the objects that it accepts instead."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator.config.checks import check_choice, check_type

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


def check_strategies(config: Any) -> None:
    """Checks the fields of a RunConfig that name strategies, or hold them."""
    rule = 'a tf.distribute strategy; a name goes into `strategy`, as in strategy="mirrored"'
    check_type("train_distribute", config.train_distribute, STRATEGY_TYPES, rule)
    check_type("eval_distribute", config.eval_distribute, STRATEGY_TYPES, rule)
    check_type("strategy", config.strategy, (str, *STRATEGY_TYPES), "a name or a strategy object")
    if isinstance(config.strategy, str):
        check_choice("strategy", config.strategy, STRATEGY_NAMES)
    for name in ("strategy", "train_distribute", "eval_distribute"):
        check_is_for_graphs(name, getattr(config, name))
    for name in ("train_distribute", "eval_distribute"):
        if config.strategy is not None and getattr(config, name) is not None:
            raise ValueError(
                f"`strategy` ({config.strategy!r}) and `{name}` ({getattr(config, name)!r}) "
                "exclude each other: `strategy` holds for every mode. Pass one of them."
            )
    _check_num_replicas(config)


def _check_num_replicas(config: Any) -> None:
    if config.num_replicas is None:
        return
    given = f"`num_replicas` ({config.num_replicas})"
    if isinstance(
        config.strategy or config.train_distribute or config.eval_distribute, STRATEGY_TYPES
    ):
        raise ValueError(
            f"{given} cannot change a strategy object, which has its own devices. Leave it "
            "out, or pass the strategy by name."
        )
    if config.num_replicas > 1 and config.strategy in (None, "one_device"):
        raise ValueError(
            f"{given} must be 1 under `strategy` ({config.strategy!r}). For several replicas "
            'pass strategy="mirrored".'
        )
