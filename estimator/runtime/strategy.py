"""Makes the `tf.distribute` strategy that a config asks for, and its session config."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.cluster import CHIEF, EVALUATOR, MASTER, PS, WORKER, Cluster
from estimator.config.run_config import RunConfig
from estimator.config.strategy_names import STRATEGY_TYPES
from estimator.runtime.greedy_load_balancing import GreedyLoadBalancing
from estimator.runtime.tpu_strategy import is_tpu, make_tpu_strategy
from estimator.spec import ModeKeys

_PS_TYPE = tf.compat.v1.distribute.experimental.ParameterServerStrategy
# Local strategies that run each replica in its own thread.
_THREADED_TYPES = (
    tf.distribute.MirroredStrategy,
    tf.compat.v1.distribute.MirroredStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)
# Strategies whose devices are all on this machine.
_LOCAL_TYPES = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


def make_strategy(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Returns the strategy that the config asks for in this mode.

    It does not initialize or change the eager context. On a machine without a GPU, replicas run on
    logical CPUs, which exist only in a session opened with `make_session_config`.

    Args:
      config: `strategy` and `num_replicas` hold for every mode, except that evaluation and
        prediction under "central_storage" run on one replica; otherwise `train_distribute` holds
        for training and `eval_distribute` for evaluation and prediction.
      mode: a `ModeKeys`.

    Raises:
      ValueError: the strategy's name is unknown, there are fewer GPUs than replicas, a strategy
        object names a missing GPU, or there is no TPU.
    """
    choice = _choose(config, mode)
    if mode != ModeKeys.TRAIN and _is_central_storage(choice):
        # Its replicas share one copy of each metric and update it in one place, so a last batch for
        # only some replicas could not be counted. One replica sees every example too.
        choice = None
    if mode != ModeKeys.TRAIN and isinstance(choice, STRATEGY_TYPES):
        choice = _local_part(choice)
    if isinstance(choice, STRATEGY_TYPES):
        _check_gpus(choice)
        return choice
    if choice is None:
        return make_no_strategy()
    if is_tpu(choice):
        return make_tpu_strategy(config, mode)
    # A strategy that is made inside a graph does not touch the eager context, ignores the caller's
    # scope, and reduces with plain ops on CPUs, as a session requires.
    with tf.Graph().as_default():
        if choice == "multi_worker_mirrored":
            return _make_multi_worker_mirrored(config, mode)
        if choice == "parameter_server":
            return _make_parameter_server(config, mode)
        return _MAKERS[choice](config.num_replicas)


def make_no_strategy() -> tf.distribute.Strategy:
    """Returns TensorFlow's default strategy: one replica, on no particular device."""
    with tf.Graph().as_default():  # Ignores the caller's strategy scope.
        return tf.distribute.get_strategy()


def _is_central_storage(choice: Any) -> bool:
    if isinstance(choice, str):
        return choice == "central_storage"
    return isinstance(choice, tf.distribute.experimental.CentralStorageStrategy)


def make_session_config(
    config: RunConfig, strategy: tf.distribute.Strategy
) -> tf.compat.v1.ConfigProto:
    """Copies the user's `session_config`, and adds the logical CPUs that the strategy uses."""
    session_config = tf.compat.v1.ConfigProto()
    if config.session_config is not None:
        session_config.CopyFrom(config.session_config)
    # TensorFlow's strategies do not support "master", so servers call that job "chief".
    filters = [
        one.replace(f"/job:{MASTER}", f"/job:{CHIEF}") for one in session_config.device_filters
    ]
    session_config.device_filters[:] = list(dict.fromkeys(filters))
    session_config.allow_soft_placement = True
    session_config.device_count["CPU"] = max(
        session_config.device_count.get("CPU", 0), _num_cpus(strategy)
    )
    if is_tpu(strategy):
        # Adds the TPU's machines, and isolates the variables of each session.
        return strategy.update_config_proto(session_config)
    if _tf.is_multi_worker(strategy):
        session_config = strategy.update_config_proto(session_config)
        # Isolates each session's variables and iterators on this task's server.
        session_config.isolate_session_state = True
    return session_config


def check_fits_cluster(config: RunConfig, strategy: tf.distribute.Strategy) -> None:
    """Raises an error unless `strategy` trains on exactly the tasks of the config's cluster.

    Raises:
      ValueError: they do not match; the message says what each has, and what to pass.
    """
    cluster = config.cluster
    if _tf.is_multi_worker(strategy):
        told = tf.train.ClusterSpec(strategy.cluster_resolver.cluster_spec()).as_dict()
        theirs = {CHIEF if role == MASTER else role: given for role, given in told.items()}
        theirs = {role: theirs[role] for role in (CHIEF, WORKER, PS) if role in theirs}
        if theirs != cluster.cluster_spec:
            raise ValueError(
                f"The strategy's cluster ({theirs}) is not that of the RunConfig "
                f"({cluster.cluster_spec}). Set TF_CONFIG before both are made, or pass "
                "RunConfig(cluster=parse_tf_config(...))."
            )
    check_roles(config)


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
    named = _choice_in_words(config)
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


def _choice_in_words(config: RunConfig) -> str:
    """Returns the config's name for the training strategy."""
    choice = _choose(config, ModeKeys.TRAIN)
    return repr(choice) if isinstance(choice, str) or choice is None else type(choice).__name__


def start_eager_context(strategy: tf.distribute.Strategy) -> None:
    """Initializes the eager context if a build under this strategy would do so inside its graph.

    There it would be initialized without soft placement for the life of the process, and eager code
    that names a missing device would fail later.
    """
    # These strategies run each replica in a thread, which initializes the context. So do workers
    # that train together, but their eager contexts would wait for each other.
    if isinstance(strategy, _THREADED_TYPES) and tf.executing_eagerly():
        tf.config.list_logical_devices()


def replicas_in_words(strategy: tf.distribute.Strategy) -> str:
    """Describes the replicas: "1 replica", "2 replicas (mirrored)"."""
    count = strategy.num_replicas_in_sync
    name = "" if _is_default(strategy) else f" ({strategy_name(strategy)})"
    return f"{count:,} replica{'s' * (count > 1)}{name}"


def devices_in_words(strategy: tf.distribute.Strategy) -> str:
    """Describes the devices of a local strategy: "CPU:0, CPU:1"."""
    if _is_default(strategy):
        return "GPU:0" if tf.config.get_visible_devices("GPU") else "CPU:0"
    specs = map(tf.DeviceSpec.from_string, strategy.extended.worker_devices)
    return ", ".join(f"{spec.device_type}:{spec.device_index or 0}" for spec in specs)


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """Returns `RunConfig`'s name for a strategy, or the name of its class."""
    words = re.sub(r"Strategy(V[12])?$", "", type(strategy).__name__)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", words).lower()
    return {"collective_all_reduce": "multi_worker_mirrored"}.get(name, name)


def _is_default(strategy: tf.distribute.Strategy) -> bool:
    return strategy is make_no_strategy()


def _choose(config: RunConfig, mode: str) -> Any:
    if config.strategy is not None:
        return config.strategy
    return config.train_distribute if mode == ModeKeys.TRAIN else config.eval_distribute


def _check_gpus(strategy: tf.distribute.Strategy) -> None:
    """Raises an error if a local strategy names a missing GPU, which soft placement would hide."""
    if not isinstance(strategy, _LOCAL_TYPES):
        return
    num_gpus = len(tf.config.get_visible_devices("GPU"))
    for name in strategy.extended.worker_devices:
        device = tf.DeviceSpec.from_string(name)
        if device.device_type == "GPU" and (device.device_index or 0) >= num_gpus:
            raise ValueError(
                f"The strategy ({strategy!r}) names the device {name}, but this machine has "
                f"{num_gpus or 'no'} GPU{'s' * (num_gpus > 1)}. Name existing devices, such as "
                '"/cpu:0", or let RunConfig(strategy="mirrored", num_replicas=...) choose.'
            )


def _num_cpus(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of logical CPUs that the strategy's devices need, at least 1."""
    if _is_default(strategy):
        return 1  # The default strategy has no device names.
    devices = map(tf.DeviceSpec.from_string, strategy.extended.worker_devices)
    indexes = [device.device_index or 0 for device in devices if device.device_type == "CPU"]
    return 1 + max(indexes, default=0)


def _make_one_device(num_replicas: int | None) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy(_replica_devices(num_replicas or 1)[0])


def _make_mirrored(num_replicas: int | None) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(_replica_devices(num_replicas))


def _make_central_storage(num_replicas: int | None) -> tf.distribute.Strategy:
    return tf.distribute.experimental.CentralStorageStrategy(
        _replica_devices(num_replicas), parameter_device="/cpu:0"
    )


def _make_multi_worker_mirrored(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Makes one strategy per process, as workers number their collectives in it and must agree.

    Each worker evaluates and predicts on its own.
    """
    cluster = config.cluster
    devices = _replica_devices(config.num_replicas)
    if mode != ModeKeys.TRAIN or cluster.num_worker_replicas <= 1:
        return _make_mirrored(config.num_replicas) if len(devices) > 1 else make_no_strategy()
    options = config.communication_options or tf.distribute.experimental.CommunicationOptions()
    kind = tf.DeviceSpec.from_string(devices[0]).device_type
    nccl = tf.distribute.experimental.CommunicationImplementation.NCCL
    if options.implementation == nccl and kind != "GPU":
        raise ValueError(
            f"`communication_options` ({options.implementation.value}) needs GPUs, and this "
            "machine has none. Pass RING or AUTO."
        )
    spec = cluster.cluster_spec
    key = repr((spec, cluster.task_type, cluster.task_id, devices, vars(options)))
    if key not in _multi_worker_mirrored:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(spec),
            task_type=cluster.task_type,
            task_id=cluster.task_id,
            rpc_layer=config.protocol or "grpc",
        )
        _multi_worker_mirrored[key] = _tf.make_multi_worker_mirrored(
            resolver, options, kind, len(devices), number=1 + len(_multi_worker_mirrored)
        )
    return _multi_worker_mirrored[key]


def _make_parameter_server(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Makes a strategy for this process's devices; a single replica needs only op placement."""
    cluster = config.cluster
    devices = _replica_devices(config.num_replicas)
    if len(devices) == 1:
        return make_no_strategy()
    if mode != ModeKeys.TRAIN or not cluster.num_ps_replicas or cluster.task_type == PS:
        return _make_mirrored(config.num_replicas)
    own = f"/job:{cluster.task_type}/replica:0/task:{cluster.task_id}"
    specs = map(tf.DeviceSpec.from_string, devices)
    names = [f"{own}/device:{spec.device_type}:{spec.device_index}" for spec in specs]
    num_ps = cluster.num_ps_replicas
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.cluster_spec),
        task_type=cluster.task_type,
        task_id=cluster.task_id,
    )
    place_variable = tf.compat.v1.train.replica_device_setter(
        ps_tasks=num_ps,
        worker_device=own,
        ps_strategy=GreedyLoadBalancing(num_ps) if config.ps_placement == "by_size" else None,
    )
    return _tf.make_parameter_server(resolver, names, place_variable)


_multi_worker_mirrored: dict[str, tf.distribute.Strategy] = {}


def _local_part(strategy: tf.distribute.Strategy) -> Any:
    """Returns a multi-process strategy's part on this process's devices; None for one device."""
    if isinstance(strategy, _PS_TYPE):
        return None
    if not _tf.is_multi_worker(strategy):
        return strategy
    devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    if len(devices) == 1:
        return None
    names = [f"/{device.device_type.lower()}:{device.device_index}" for device in devices]
    with tf.Graph().as_default():
        return tf.distribute.MirroredStrategy(names)


def _replica_devices(num_replicas: int | None) -> list[str]:
    """Returns a device for each replica: GPUs if the machine has any, else logical CPUs."""
    num_gpus = len(tf.config.get_visible_devices("GPU"))
    num_replicas = num_replicas or num_gpus or 1
    if num_gpus and num_replicas > num_gpus:
        raise ValueError(
            f"`num_replicas` ({num_replicas}) must be at most the number of GPUs ({num_gpus}). "
            "Leave it out to use them all."
        )
    kind = "gpu" if num_gpus else "cpu"
    return [f"/{kind}:{index}" for index in range(num_replicas)]


_MAKERS: dict[str, Callable[[int | None], tf.distribute.Strategy]] = {
    "one_device": _make_one_device,
    "mirrored": _make_mirrored,
    "central_storage": _make_central_storage,
}
