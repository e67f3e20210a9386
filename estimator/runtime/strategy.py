"""Names and objects to a `tf.distribute` strategy, and the session that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from estimator import _tf
from estimator.config.cluster import CHIEF, EVALUATOR, MASTER, PS, WORKER
from estimator.config.strategy_names import STRATEGY_TYPES, check_strategy_name
from estimator.runtime.greedy_load_balancing import GreedyLoadBalancing
from estimator.runtime.tpu_strategy import is_tpu, make_tpu_strategy
from estimator.spec import ModeKeys

if TYPE_CHECKING:
    from estimator.config.cluster import Cluster
    from estimator.config.run_config import RunConfig

_PS_TYPE = tf.compat.v1.distribute.experimental.ParameterServerStrategy
# Those of this machine that have a thread a replica.
_THREADED_TYPES = (
    tf.distribute.MirroredStrategy,
    tf.compat.v1.distribute.MirroredStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)
# Those whose devices are all of this machine.
_LOCAL_TYPES = (
    tf.distribute.OneDeviceStrategy,
    tf.distribute.MirroredStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
)


def make_strategy(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """The strategy that the config asks for in this mode.

    It leaves the eager context as it is: neither initialised nor with other devices. On a machine
    without a GPU, replicas run on logical CPUs, which exist only in a session that is opened with
    `make_session_config`.

    Args:
      config: `strategy` and `num_replicas` hold for every mode, but that evaluation and
        prediction under "central_storage" run on one replica; else `train_distribute` for
        training and `eval_distribute` for evaluation and prediction.
      mode: a `ModeKeys`.

    Raises:
      ValueError: the strategy's name is unknown, there are fewer GPUs than replicas, a strategy
        object names a GPU that is not there, or there is no TPU.
    """
    choice = _choose(config, mode)
    if mode != ModeKeys.TRAIN and _is_central_storage(choice):
        # Its replicas share one copy of each metric and update it in one place, so that a last
        # batch for some replicas only could not be counted. One replica sees every example too.
        choice = None
    if mode != ModeKeys.TRAIN and isinstance(choice, STRATEGY_TYPES):
        choice = _local_part(choice)
    if isinstance(choice, STRATEGY_TYPES):
        _check_gpus(choice)
        return choice
    if choice is None:
        return make_no_strategy()
    check_strategy_name(choice)
    if is_tpu(choice):
        return make_tpu_strategy(config, mode)
    # Made inside a graph, a strategy does not touch the eager context, a scope that the caller is
    # in does not count, and on CPUs it reduces with plain ops, which a session needs.
    with tf.Graph().as_default():
        if choice == "multi_worker_mirrored":
            return _make_multi_worker_mirrored(config, mode)
        if choice == "parameter_server":
            return _make_parameter_server(config, mode)
        return _MAKERS[choice](config.num_replicas)


def make_no_strategy() -> tf.distribute.Strategy:
    """The one that there is without any: of one replica, on no device in particular."""
    with tf.Graph().as_default():  # Whatever scope the caller is in.
        return tf.distribute.get_strategy()


def _is_central_storage(choice: Any) -> bool:
    if isinstance(choice, str):
        return choice == "central_storage"
    return isinstance(choice, tf.distribute.experimental.CentralStorageStrategy)


def make_session_config(
    config: RunConfig, strategy: tf.distribute.Strategy
) -> tf.compat.v1.ConfigProto:
    """A copy of the user's `session_config`, with the logical CPUs that the strategy runs on."""
    session_config = tf.compat.v1.ConfigProto()
    if config.session_config is not None:
        session_config.CopyFrom(config.session_config)
    # TensorFlow's strategies know no "master", so the job is called "chief" on servers.
    filters = [
        one.replace(f"/job:{MASTER}", f"/job:{CHIEF}") for one in session_config.device_filters
    ]
    session_config.device_filters[:] = list(dict.fromkeys(filters))
    session_config.allow_soft_placement = True
    session_config.device_count["CPU"] = max(
        session_config.device_count.get("CPU", 0), _num_cpus(strategy)
    )
    if is_tpu(strategy):
        # Names the machines of the TPU, and keeps the variables of each session apart.
        return strategy.update_config_proto(session_config)
    if _tf.is_multi_worker(strategy):
        session_config = strategy.update_config_proto(session_config)
        # The next session on this task's server has variables and iterators of its own.
        session_config.isolate_session_state = True
    return session_config


def check_fits_cluster(config: RunConfig, strategy: tf.distribute.Strategy) -> None:
    """Raises unless `strategy` trains on just the tasks of the config's cluster.

    Raises:
      ValueError: says what each of the two has, and what to pass.
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
    """Raises unless it is this task's part to train.

    Raises:
      ValueError: says what its part is, and what to call.
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
    """Raises unless the strategy has work for all tasks of the cluster; the same in each of them.

    Raises:
      ValueError: says what each of the two has, and what to pass.
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
    """What the config calls the strategy that it trains under."""
    choice = _choose(config, ModeKeys.TRAIN)
    return repr(choice) if isinstance(choice, str) or choice is None else type(choice).__name__


def start_eager_context(strategy: tf.distribute.Strategy) -> None:
    """Initializes the eager context if a build under this strategy would do so, inside its graph.

    There it would get no soft placement, for as long as the process lives: what the program runs
    eagerly, later, would fail where it names a device that is not there.
    """
    # These have a thread a replica, which initializes it. So do workers that train together, but
    # their eager contexts would wait for each other.
    if isinstance(strategy, _THREADED_TYPES) and tf.executing_eagerly():
        tf.config.list_logical_devices()


def replicas_in_words(strategy: tf.distribute.Strategy) -> str:
    """How many replicas, and of which strategy: "1 replica", "2 replicas (mirrored)"."""
    count = strategy.num_replicas_in_sync
    name = "" if _is_default(strategy) else f" ({strategy_name(strategy)})"
    return f"{count:,} replica{'s' * (count > 1)}{name}"


def devices_in_words(strategy: tf.distribute.Strategy) -> str:
    """Where the replicas of a local strategy run: "CPU:0, CPU:1"."""
    if _is_default(strategy):
        return "GPU:0" if tf.config.get_visible_devices("GPU") else "CPU:0"
    specs = map(tf.DeviceSpec.from_string, strategy.extended.worker_devices)
    return ", ".join(f"{spec.device_type}:{spec.device_index or 0}" for spec in specs)


def strategy_name(strategy: tf.distribute.Strategy) -> str:
    """What `RunConfig` calls a strategy, or the name of its class."""
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
    """Raises if a local strategy names a GPU that is not there: soft placement would hide it."""
    if not isinstance(strategy, _LOCAL_TYPES):
        return
    num_gpus = len(tf.config.get_visible_devices("GPU"))
    for name in strategy.extended.worker_devices:
        device = tf.DeviceSpec.from_string(name)
        if device.device_type == "GPU" and (device.device_index or 0) >= num_gpus:
            raise ValueError(
                f"The strategy ({strategy!r}) names the device {name}, and this machine has "
                f"{num_gpus or 'no'} GPU{'s' * (num_gpus > 1)}. Name devices that are there, such "
                'as "/cpu:0", or let RunConfig(strategy="mirrored", num_replicas=...) choose.'
            )


def _num_cpus(strategy: tf.distribute.Strategy) -> int:
    """How many logical CPUs the devices of the strategy name, at least 1."""
    if _is_default(strategy):
        return 1  # It does not know its devices.
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
    """One for the process: workers count their collectives in it, and must agree on the count.

    Evaluation and prediction are each worker's own.
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
    """One of the devices of this process; one replica needs none: its ops are merely placed."""
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
    """The strategy on this process's devices alone, if it is one of several processes."""
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
    """One device a replica: GPUs if the machine has any, else logical CPUs."""
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
