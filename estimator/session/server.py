"""This task's server in the cluster, one a process."""

from __future__ import annotations

import tensorflow as tf

from estimator import _tf
from estimator.config.cluster import Cluster
from estimator.config.run_config import RunConfig
from estimator.graph.workers import workers_of

# By address. A server cannot be stopped; it ends with the process.
_servers: dict[str, tf.distribute.Server] = {}


def served_target(
    strategy: tf.distribute.Strategy,
    config: RunConfig,
    session_config: tf.compat.v1.ConfigProto,
) -> str:
    """The session target of a strategy, whose server is started if there is none yet.

    Args:
      strategy: what runs in the session.
      config: knows the cluster, and which of its tasks this is.
      session_config: of the session; the server's devices are made by it.

    Raises:
      ValueError: this task's port is in use.
    """
    if workers_of(strategy).count == 1:
        return config.master
    cluster, protocol = config.cluster, config.protocol
    address = cluster.cluster_spec[cluster.task_type][cluster.task_id]
    if not _tf.has_started_server(strategy):
        start_server(cluster, session_config, protocol)
    return f"{protocol or 'grpc'}://{address}"


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


def other_workers(cluster: Cluster) -> dict[str, str]:
    """The addresses of the other tasks that run replicas, by name."""
    spec = cluster.cluster_spec
    found = {}
    for role in ("chief", "worker"):
        for index, address in enumerate(spec.get(role, ())):
            if (role, index) != (cluster.task_type, cluster.task_id):
                found["the chief" if role == "chief" else f"worker {index}"] = address
    return found
