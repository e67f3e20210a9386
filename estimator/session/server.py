"""This task's server in the cluster, one a process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from estimator import _tf
from estimator.config.cluster import Cluster
from estimator.config.run_config import RunConfig
from estimator.graph.workers import workers_of

# By address. A server cannot be stopped; it ends with the process.
_servers: dict[str, tf.distribute.Server] = {}


@dataclasses.dataclass(frozen=True)
class Connection:
    """How a session of training reaches the cluster.

    Attributes:
      target: of the session.
      session_config: of the session.
      needed: the addresses, by name, of the tasks without which training cannot go on.
      replaceable: those of the tasks that may end and come back.
    """

    target: str = ""
    session_config: tf.compat.v1.ConfigProto | None = None
    needed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    replaceable: Mapping[str, str] = dataclasses.field(default_factory=dict)


def connect(
    strategy: tf.distribute.Strategy,
    config: RunConfig,
    session_config: tf.compat.v1.ConfigProto,
) -> Connection:
    """How to train under a strategy; starts this task's server if there is none yet.

    Raises:
      ValueError: this task's port is in use.
    """
    cluster = config.cluster
    if cluster.num_ps_replicas:
        needed = task_addresses(cluster, "ps")
        chief, workers = task_addresses(cluster, "chief"), task_addresses(cluster, "worker")
        if not chief:
            chief = {"worker 0": workers.pop("worker 0", "")} if not cluster.is_chief else {}
        if not session_config.device_filters:
            # A worker that is gone holds nobody up.
            own = f"/job:{cluster.task_type}/task:{cluster.task_id}"
            session_config.device_filters.extend(["/job:ps", own])
        if cluster.session_master is None:
            start_server(cluster, session_config, config.protocol)
        if cluster.is_chief:
            return Connection(config.master, session_config, needed, workers)
        return Connection(config.master, session_config, {**needed, **chief})
    if workers_of(strategy).count == 1:
        return Connection(config.master, session_config)
    if not _tf.has_started_server(strategy):
        start_server(cluster, session_config, config.protocol)
    address = cluster.cluster_spec[cluster.task_type][cluster.task_id]
    others = {**task_addresses(cluster, "chief"), **task_addresses(cluster, "worker")}
    return Connection(f"{config.protocol or 'grpc'}://{address}", session_config, others)


def start_server(
    cluster: Cluster, session_config: tf.compat.v1.ConfigProto, protocol: str | None
) -> tf.distribute.Server:
    """The server of this task; the same one in each call.

    Raises:
      ValueError: its port is in use.
    """
    address = cluster.cluster_spec[cluster.task_type][cluster.task_id]
    if address in _servers:
        return _servers[address]
    config = tf.compat.v1.ConfigProto()
    config.CopyFrom(session_config)
    del config.device_filters[:]  # A session has its own; a server sees everybody.
    try:
        _servers[address] = tf.distribute.Server(
            tf.train.ClusterSpec(cluster.cluster_spec),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol=protocol or "grpc",
            config=config,
        )
    except tf.errors.OpError as error:
        raise ValueError(
            f"The server of {cluster.task_type} {cluster.task_id} cannot listen on {address} "
            f"({error.message}). Is the port in use, perhaps by an earlier run of this task? Give "
            "the task another port in the TF_CONFIG of all tasks."
        ) from error
    return _servers[address]


def task_addresses(cluster: Cluster, role: str) -> dict[str, str]:
    """The addresses of the other tasks of a role, by name."""
    return {
        task_name(role, index): address
        for index, address in enumerate(cluster.cluster_spec.get(role, ()))
        if (role, index) != (cluster.task_type, cluster.task_id)
    }


def task_name(role: str, index: int) -> str:
    """What a task is called in messages."""
    return "the chief" if role == "chief" else f"{role} {index}"
