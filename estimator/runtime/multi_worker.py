"""The runtime of workers that run each step together, each with a copy of the variables."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from estimator import _tf
from estimator.cluster import server
from estimator.cluster.collectives import number_collectives
from estimator.cluster.consensus import Agreement
from estimator.cluster.failure_notices import FailureNotices
from estimator.cluster.synchronous import SynchronousWorkers
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.cluster import CHIEF, MASTER, PS, WORKER
from estimator.config.run_config import RunConfig
from estimator.runtime.local import Runtime, make_default_strategy, make_mirrored, replica_devices
from estimator.spec import ModeKeys

# A process can have one server and must number its collectives as the others do, so each strategy
# is made once.
_strategies: dict[str, tf.distribute.Strategy] = {}


class MultiWorkerRuntime(Runtime):
    """Training with a MultiWorkerMirroredStrategy of several workers."""

    looks_ahead: ClassVar[bool] = True

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, the default graph is built under the strategy.

        Initializers need no broadcast: a new session broadcasts all of the chief's variables.
        """
        with _tf.initializers_without_broadcast(self.strategy), super().scope():
            yield

    def session_config(self) -> tf.compat.v1.ConfigProto:
        """Returns the config of sessions on this worker's server, each with its own variables."""
        session_config = self.strategy.update_config_proto(super().session_config())
        # Isolates each session's variables and iterators on this task's server.
        session_config.isolate_session_state = True
        return session_config

    def check_trainable(self) -> None:
        """Raises ValueError if the strategy was made for other tasks than the config's."""
        told = tf.train.ClusterSpec(self.strategy.cluster_resolver.cluster_spec()).as_dict()
        theirs = {CHIEF if role == MASTER else role: given for role, given in told.items()}
        theirs = {role: theirs[role] for role in (CHIEF, WORKER, PS) if role in theirs}
        if theirs != self.config.cluster.cluster_spec:
            raise ValueError(
                f"The strategy's cluster ({theirs}) is not that of the RunConfig "
                f"({self.config.cluster.cluster_spec}). Set TF_CONFIG before both are made, or "
                "pass RunConfig(cluster=parse_tf_config(...))."
            )

    def connect(self) -> server.Connection:
        """Connects to this worker's own server, which needs those of all others."""
        cluster, session_config = self.config.cluster, self.session_config()
        existing = server.connect_to_existing(self.config, self.mode, session_config)
        if existing is not None:
            raise ValueError(
                f"`master` ({existing.target!r}) names a server that already runs, but workers "
                "that train together must start their own servers, configured for collectives. "
                'Leave it out, or train with ps tasks: RunConfig(strategy="parameter_server").'
            )
        if not _tf.has_started_server(self.strategy):
            server.start_server(cluster, session_config, self.config.protocol)
        address = cluster.cluster_spec[cluster.task_type][cluster.task_id]
        target = server.session_target(address, self.config.protocol)
        others = server.task_addresses(cluster, "chief") | server.task_addresses(cluster, "worker")
        return server.Connection(target, session_config, needed=others)

    def begin_training(self) -> server.Connection:
        """Connects for a training, from whose number all workers count their collectives."""
        notices = FailureNotices(self.config.cluster, self.config.protocol)
        number_collectives(self.strategy, notices.number)
        return dataclasses.replace(self.connect(), notices=notices)

    def make_worker_group(
        self, agreement: Agreement, asked: Mapping[str, Any], connection: server.Connection
    ) -> WorkerGroup:
        """Makes this worker's part of workers that agree in each session call."""
        assert connection.notices is not None
        return SynchronousWorkers(self.config.is_chief, agreement, connection.notices)


def make_multi_worker_mirrored(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Makes one strategy per process, as workers number their collectives in it and must agree.

    Each worker evaluates and predicts on its own.
    """
    cluster = config.cluster
    devices = replica_devices(config.num_replicas)
    if mode != ModeKeys.TRAIN or cluster.num_worker_replicas <= 1:
        return make_mirrored(config.num_replicas) if len(devices) > 1 else make_default_strategy()
    options = config.communication_options or tf.distribute.experimental.CommunicationOptions()
    kind = tf.DeviceSpec.from_string(devices[0]).device_type
    nccl = tf.distribute.experimental.CommunicationImplementation.NCCL
    if options.implementation == nccl and kind != "GPU":
        raise ValueError(
            f"`communication_options` ({options.implementation.value}) needs GPUs, and this "
            "machine has none. Pass RING or AUTO."
        )
    key = repr((cluster.cluster_spec, cluster.task_type, cluster.task_id, devices, vars(options)))
    if key not in _strategies:
        resolver = server.make_resolver(config)
        _strategies[key] = _tf.make_multi_worker_mirrored(
            resolver, options, kind, len(devices), number=1 + len(_strategies)
        )
    return _strategies[key]


def make_local_part(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Makes a strategy on this process's devices alone; returns a local strategy as it is."""
    if not _tf.is_for_workers(strategy):
        return strategy
    devices = [tf.DeviceSpec.from_string(name) for name in strategy.extended.worker_devices]
    if len(devices) == 1:
        return make_default_strategy()
    names = [f"/{device.device_type.lower()}:{device.device_index}" for device in devices]
    with tf.Graph().as_default():
        return tf.distribute.MirroredStrategy(names)
