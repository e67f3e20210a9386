"""Chooses the `tf.distribute` strategy that a config asks for, and its runtime."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.cluster import CHIEF, EVALUATOR, PS, WORKER, Cluster
from estimator.config.run_config import RunConfig
from estimator.config.strategy_names import STRATEGY_TYPES
from estimator.runtime.local import (
    MAKERS,
    Runtime,
    count_gpus,
    is_default,
    make_default_strategy,
    make_plain_runtime,
)
from estimator.runtime.multi_worker import (
    MultiWorkerRuntime,
    make_local_part,
    make_multi_worker_mirrored,
)
from estimator.runtime.parameter_server import ParameterServerRuntime, make_parameter_server
from estimator.runtime.tpu_runtime import TPURuntime
from estimator.runtime.tpu_strategy import is_tpu, make_tpu_strategy
from estimator.spec import ModeKeys

_PS_TYPE = tf.compat.v1.distribute.experimental.ParameterServerStrategy
_CENTRAL_TYPE = tf.distribute.experimental.CentralStorageStrategy
# Strategies whose devices are all on this machine.
_LOCAL_TYPES = (tf.distribute.OneDeviceStrategy, tf.distribute.MirroredStrategy, _CENTRAL_TYPE)
_V1_LOCAL_TYPES = (
    tf.compat.v1.distribute.MirroredStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)


def make_runtime(config: RunConfig, mode: str) -> Runtime:
    """Returns the runtime of the strategy that the config asks for; see `make_strategy`."""
    return runtime_of(make_strategy(config, mode), config, mode)


def make_training_runtime(config: RunConfig) -> Runtime:
    """Returns the runtime of training.

    Raises:
      ValueError: this task cannot train there, or the strategy does not fit the config's cluster;
        the message says what each has, and what to pass.
    """
    runtime = make_runtime(config, ModeKeys.TRAIN)
    runtime.check_trainable()
    check_roles(config)
    return runtime


def runtime_of(strategy: tf.distribute.Strategy, config: RunConfig, mode: str) -> Runtime:
    """Returns the runtime of a strategy in a mode, a `ModeKeys`."""
    if is_tpu(strategy):
        return TPURuntime(config, strategy, mode)
    if mode == ModeKeys.TRAIN and config.num_ps_replicas:
        return ParameterServerRuntime(config, strategy, mode)
    if _tf.is_multi_worker(strategy):
        return MultiWorkerRuntime(config, strategy, mode)
    return Runtime(config, strategy, mode)


def make_strategy(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Returns the strategy that the config asks for in this mode.

    It does not initialize or change the eager context. On a machine without a GPU, replicas run on
    logical CPUs, which exist only in a session opened with the runtime's `session_config`.

    Args:
      config: `strategy` and `num_replicas` hold for every mode, except that evaluation and
        prediction under "central_storage" run on one replica; otherwise `train_distribute` holds
        for training and `eval_distribute` for evaluation and prediction.
      mode: a `ModeKeys`.

    Raises:
      ValueError: there are fewer GPUs than replicas, a strategy object names a missing GPU, or
        there is no TPU.
    """
    choice = _choose(config, mode)
    is_training = mode == ModeKeys.TRAIN
    is_central_storage = choice == "central_storage" or isinstance(choice, _CENTRAL_TYPE)
    if not is_training and (is_central_storage or isinstance(choice, _PS_TYPE)):
        # The replicas of central storage share one copy of each metric and update it in one place,
        # so a last batch for only some replicas could not be counted. One replica sees every
        # example too; and a ps strategy evaluates in one process, which needs no ps.
        choice = None
    if isinstance(choice, STRATEGY_TYPES):
        # A single worker trains without a server, and so without the devices of its task.
        is_together = is_training and _tf.is_multi_worker(choice)
        strategy = choice if is_together else make_local_part(choice)
        _check_gpus(strategy)
        return strategy
    if choice is None:
        return make_default_strategy()
    if is_tpu(choice):
        return make_tpu_strategy(config, mode)
    if config.session_config is not None and config.session_config.gpu_options.ByteSize():
        _start_gpus(make_plain_runtime(config, mode).session_config())
    # A strategy that is made inside a graph does not touch the eager context if it has no GPUs,
    # ignores the caller's scope, and reduces with plain ops on CPUs.
    with tf.Graph().as_default():
        if choice == "multi_worker_mirrored":
            return make_multi_worker_mirrored(config, mode)
        if choice == "parameter_server":
            return make_parameter_server(config, mode)
        return MAKERS[choice](config.num_replicas)


def check_task_trains(cluster: Cluster) -> None:
    """Raises an error unless this task is one that trains.

    Raises:
      ValueError: the task has another role; the message says which, and what to call.
    """
    if not cluster.addresses and cluster.task_type != EVALUATOR:
        return
    if cluster.task_type in (CHIEF, WORKER):
        return
    parts = {PS: "holds variables", EVALUATOR: "evaluates what the others train"}
    part = parts.get(cluster.task_type, "has a role that takes no part in training")
    raise ValueError(
        f"This task is {cluster.task_type} {cluster.task_id} of TF_CONFIG, which {part}: `train` "
        "cannot be called in it. Call `train_and_evaluate`, as in all tasks, or start this one "
        'as a "chief" or a "worker".'
    )


def check_roles(config: RunConfig) -> None:
    """Raises an error unless the strategy uses all tasks of the cluster; the same in every task.

    Raises:
      ValueError: they do not match; the message says what each has, and what to pass.
    """
    addresses = config.cluster.addresses
    tasks = {role: len(addresses[role]) for role in (CHIEF, WORKER, PS) if role in addresses}
    listed = ", ".join(f"{number} {role}" for role, number in tasks.items())
    choice = _choose(config, ModeKeys.TRAIN)
    if PS in tasks and (choice in (None, "parameter_server") or isinstance(choice, _PS_TYPE)):
        return
    if choice == "parameter_server":
        raise ValueError(
            "`strategy` ('parameter_server') keeps the variables on ps tasks, and TF_CONFIG names "
            f'{listed or "no cluster"}. Add "ps" to its cluster, or pass another strategy.'
        )
    is_name = choice is None or isinstance(choice, str)
    named = repr(choice) if is_name else type(choice).__name__
    if PS in tasks:
        raise ValueError(
            f"`TF_CONFIG` names {listed}, but the strategy ({named}) has no use for a ps: it keeps "
            "variables on the workers. Leave the ps out of TF_CONFIG."
        )
    is_together = choice == "multi_worker_mirrored" or (
        _tf.is_for_workers(choice)
        if config.cluster.task_type == EVALUATOR
        else isinstance(choice, STRATEGY_TYPES) and _tf.is_multi_worker(choice)
    )
    if sum(tasks.values()) > 1 and not is_together:
        raise ValueError(
            f"`TF_CONFIG` names {listed}, but the strategy ({named}) trains in one process. Pass "
            'RunConfig(strategy="multi_worker_mirrored"), or unset TF_CONFIG.'
        )


def replicas_in_words(strategy: tf.distribute.Strategy) -> str:
    """Describes the replicas: "1 replica", "2 replicas (mirrored)"."""
    count = strategy.num_replicas_in_sync
    name = "" if is_default(strategy) else f" ({strategy_name(strategy)})"
    return f"{count:,} replica{'s' * (count > 1)}{name}"


def devices_in_words(strategy: tf.distribute.Strategy) -> str:
    """Describes the devices of a local strategy: "CPU:0, CPU:1"."""
    if is_default(strategy):
        return "GPU:0" if count_gpus() else "CPU:0"
    specs = map(tf.DeviceSpec.from_string, strategy.extended.worker_devices)
    return ", ".join(f"{spec.device_type}:{spec.device_index or 0}" for spec in specs)


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """Returns `RunConfig`'s name for a strategy, or the name of its class."""
    words = re.sub(r"Strategy(V[12])?$", "", type(strategy).__name__)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower()
    return {"collective_all_reduce": "multi_worker_mirrored"}.get(name, name)


def _choose(config: RunConfig, mode: str) -> Any:
    if config.strategy is not None:
        return config.strategy
    return config.train_distribute if mode == ModeKeys.TRAIN else config.eval_distribute


def _start_gpus(session_config: tf.compat.v1.ConfigProto) -> None:
    """Has this process take as much of its GPUs' memory as a session's config says.

    Whatever uses a GPU first decides for the process. With GPUs, TensorFlow's strategies initialize
    the eager context, which knows nothing of the config and would take all memory.
    """
    if count_gpus():
        with tf.compat.v1.Session(graph=tf.Graph(), config=session_config):
            pass


def _check_gpus(strategy: tf.distribute.Strategy) -> None:
    """Raises an error if a local strategy names a missing GPU, which soft placement would hide.

    Old programs name one where there may be none, and train on the CPU. With several, they hang.
    """
    if not isinstance(strategy, (*_LOCAL_TYPES, *_V1_LOCAL_TYPES)):
        return
    devices, num_gpus = strategy.extended.worker_devices, count_gpus()
    if isinstance(strategy, _V1_LOCAL_TYPES) and len(devices) == 1:
        return
    for name in devices:
        device = tf.DeviceSpec.from_string(name)
        if device.device_type == "GPU" and (device.device_index or 0) >= num_gpus:
            raise ValueError(
                f"The strategy ({strategy!r}) names the device {name}, but this machine has "
                f"{num_gpus or 'no'} GPU{'s' * (num_gpus > 1)}. Name existing devices, such as "
                '"/cpu:0", or let RunConfig(strategy="mirrored", num_replicas=...) choose.'
            )
