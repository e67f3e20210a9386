"""Finds the TPU that a config names, and makes the strategy that runs on it.

Importing this needs no TPU, and nothing here has been run on one: see docs/tpu.md.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from estimator.config.cluster import read_tpu_name
from estimator.config.run_config import RunConfig
from estimator.spec import ModeKeys

_TPU_TYPES = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.compat.v1.distribute.experimental.TPUStrategy,
)
# TensorFlow itself retries a TPU that does not answer for a day.
_MAX_SECS_TO_FIND = 60.0
# Errors that TensorFlow raises when it looks a name up in a metadata server, or asks the TPU for
# its cores.
_NOT_FOUND = (tf.errors.OpError, OSError, ValueError, RuntimeError, ImportError)
_WAY_OUT = (
    "Name the TPU: est.tpu.RunConfig(cluster=tf.distribute.cluster_resolver.TPUClusterResolver("
    'tpu="name", zone=..., project=...)) or (master="grpc://address:8470"); on a machine with a '
    'TPU of its own, TPUClusterResolver(tpu="local") finds it. Without a TPU leave `use_tpu` out '
    'and choose another strategy, as in RunConfig(strategy="mirrored").'
)
# One strategy for each TPU, because its variables and programs belong together.
_strategies: dict[Any, tf.distribute.TPUStrategy] = {}


def is_tpu(strategy: Any) -> bool:
    """Returns whether a strategy, or the name of one, is a TPU's."""
    return isinstance(strategy, _TPU_TYPES) or strategy == "tpu"


def make_tpu_strategy(config: RunConfig, mode: str) -> tf.distribute.TPUStrategy:
    """Returns the strategy on all cores of the config's TPU; always the same one for a TPU.

    Args:
      config: its `tpu_cluster_resolver` or its master names the TPU. With neither, the environment
        does, as `TPUClusterResolver("")` reads it, or it is this machine's own TPU.
      mode: a `ModeKeys`: the `evaluation_master` may name another TPU.

    Raises:
      ValueError: there is no TPU, it does not answer in time (`session_creation_timeout_secs`, at
        most a minute), or its number of cores differs from `num_replicas`.
    """
    resolver = getattr(config, "tpu_cluster_resolver", None)
    if resolver is None:
        is_training = mode == ModeKeys.TRAIN
        address = config.master if is_training else config.evaluation_master
        resolver = _resolver_of(address or read_tpu_name())
    wait_secs = min(config.session_creation_timeout_secs, _MAX_SECS_TO_FIND)
    if resolver not in _strategies:
        _strategies[resolver] = _make_strategy_on(resolver, wait_secs)
    strategy = _strategies[resolver]
    num_cores = strategy.num_replicas_in_sync
    if config.num_replicas not in (None, num_cores):
        raise ValueError(
            f"`num_replicas` ({config.num_replicas}) must be the number of the TPU's cores "
            f"({num_cores}), one replica each. Leave it out."
        )
    return strategy


def on_tpu(config: RunConfig, *, eval_on_tpu: bool) -> RunConfig:
    """Returns the config of a TPUEstimator with `use_tpu=True`.

    Args:
      config: names the strategy "tpu", holds a TPUStrategy object, or leaves the strategy open.
      eval_on_tpu: whether evaluation and prediction run on the TPU instead of this machine.

    Raises:
      ValueError: the config asks for another strategy, or for model parallelism.
    """
    chosen = config.strategy if config.strategy is not None else config.train_distribute
    if chosen is not None and not is_tpu(chosen):
        raise ValueError(
            f"`use_tpu=True` and the config's strategy ({chosen!r}) exclude each other. Leave one "
            "of them out."
        )
    is_named = chosen is None or isinstance(chosen, str)
    if is_named:
        _check_whole_cores(getattr(config, "tpu_config", None))
    if not eval_on_tpu:
        strategy = make_tpu_strategy(config, ModeKeys.TRAIN) if is_named else chosen
        return config.replace(strategy=None, train_distribute=strategy, eval_distribute=None)
    if config.train_distribute is not None:
        evaluates_on = config.eval_distribute or config.train_distribute
        return config.replace(eval_distribute=evaluates_on)
    return config if chosen is not None else config.replace(strategy="tpu")


def _check_whole_cores(tpu_config: Any) -> None:
    cores = getattr(tpu_config, "num_cores_per_replica", None)
    if cores is not None and cores > 1:
        raise ValueError(
            f"`num_cores_per_replica` ({cores}) must be 1: each replica has its own core. To split "
            "a model over cores, make a TPUStrategy with `experimental_device_assignment` and pass "
            "it as `train_distribute`."
        )


@functools.lru_cache(maxsize=8)
def _resolver_of(address: str) -> Any:
    """Returns the resolver of an address or name; "" is the environment's TPU, or this machine's.

    Raises:
      ValueError: the name cannot be resolved.
    """
    make_resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    try:
        return make_resolver(tpu=address)
    except _NOT_FOUND as error:
        if not address and isinstance(error, ValueError):
            return make_resolver(tpu="local")
        raise _not_found_error(f"The TPU {address!r}", error) from error


def _make_strategy_on(resolver: Any, wait_secs: float) -> tf.distribute.TPUStrategy:
    """Makes the strategy in a graph, where TensorFlow queries the TPU in a session, not eagerly."""
    with tf.Graph().as_default():
        try:
            _check_answers(resolver, wait_secs)
            num_cores = resolver.get_tpu_system_metadata().num_cores
        except _NOT_FOUND as error:
            raise _not_found_error("The TPU of the RunConfig", error) from error
        if not num_cores:
            where = resolver.master() or "this machine"
            raise ValueError(f"There is no TPU: {where} has none. {_WAY_OUT}")
        return tf.distribute.TPUStrategy(resolver)


def _not_found_error(what: str, error: Exception) -> ValueError:
    message = str(error).strip().split("\n")[0]
    return ValueError(f"{what} cannot be found ({type(error).__name__}: {message}). {_WAY_OUT}")


def _check_answers(resolver: Any, wait_secs: float) -> None:
    """Raises an error unless the TPU's host answers in time."""
    master = resolver.master()
    if not master:
        return
    config = make_host_config(resolver, operation_timeout_in_ms=int(wait_secs * 1000))
    with tf.compat.v1.Session(master, config=config) as session:
        session.list_devices()


def make_host_config(resolver: Any, **settings: Any) -> tf.compat.v1.ConfigProto:
    """Makes the config of a session on the TPU's hosts, outside a program."""
    cluster = resolver.cluster_spec()
    cluster_def = cluster.as_cluster_def() if cluster else None
    return tf.compat.v1.ConfigProto(cluster_def=cluster_def, **settings)
