"""The servers that sessions connect to: this process's own, or one that already runs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from estimator.config.cluster import Cluster
from estimator.config.run_config import RunConfig
from estimator.console import say
from estimator.rewrite.graph_walk import all_nodes
from estimator.spec import ModeKeys

if TYPE_CHECKING:
    from estimator.cluster.failure_notices import FailureNotices

_PYTHON_OPS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")
# Servers by address. A server cannot be stopped; it ends with the process.
_servers: dict[str, tf.distribute.Server] = {}


@dataclasses.dataclass(frozen=True)
class Connection:
    """Describes how a training session reaches the cluster.

    Attributes:
      target: the session's target.
      session_config: the session's config.
      needed: the addresses, by name, of the tasks that training needs.
      replaceable: the addresses, by name, of the tasks that may end and be restarted.
      is_elsewhere: whether the target is a server in another process.
      notices: tells the workers that train together of a failure; None if there are no others.
    """

    target: str = ""
    session_config: tf.compat.v1.ConfigProto = dataclasses.field(
        default_factory=tf.compat.v1.ConfigProto
    )
    needed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    replaceable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_elsewhere: bool = False
    notices: FailureNotices | None = None

    def telling_failures(self) -> contextlib.AbstractContextManager[None]:
        """Inside, tells other workers if this one's training fails before it has joined theirs."""
        if self.notices is None:
            return contextlib.nullcontext()
        return self.notices.telling_before_joining()

    @property
    def has_remote_calls(self) -> bool:
        """Whether a call may hang when a task is gone, even if its session is closed.

        Our own server, when it calls another task such as a ps, waits for that task's answer even
        to cancel the step. If it only runs ops of this task, closing the session ends its calls,
        and no extra thread needs to wait for them.
        """
        return self.is_elsewhere or any(name.startswith("ps ") for name in self.needed)


def connect_to_existing(
    config: RunConfig, mode: str, session_config: tf.compat.v1.ConfigProto, is_isolated: bool = True
) -> Connection | None:
    """Returns the connection to the server that the config names for a mode; None if there is none.

    Args:
      config: names the server by `master` or `evaluation_master`, or in TF_CONFIG. For a task of a
        cluster, the server named there is used for training only.
      mode: a `ModeKeys`.
      session_config: the strategy's session config; the connection gets a copy that may have
        additional settings.
      is_isolated: whether the session has its own variables and iterators: other sessions on the
        server use some of the same names.

    Raises:
      ValueError: the name is not a valid address.
    """
    target = config.named_master(mode)
    if not target:
        return None
    scheme, _, address = target.partition("://")
    host, _, port = address.rpartition(":")
    name = "evaluation_master" if mode == ModeKeys.EVAL else "master"
    if not scheme or not host or not port.isdecimal():
        raise ValueError(
            f"`{name}` ({target!r}) must be the target of a session, "
            'such as "grpc://10.0.0.1:2222". Leave it out to run in this process.'
        )
    session_config = copy.deepcopy(session_config)
    if is_isolated:
        session_config.isolate_session_state = True
    needed = {f"the server of `{name}`": address}
    return Connection(target, session_config, needed, is_elsewhere=True)


def check_runs_there(graph: tf.Graph, connection: Connection) -> None:
    """Raises an error if a graph that runs in another process calls Python functions of this one.

    Raises:
      ValueError: names the server, and the ways out.
    """
    if not connection.is_elsewhere:
        return
    nodes = all_nodes(graph.as_graph_def())
    names = sorted({node.name for node in nodes if node.op in _PYTHON_OPS})
    if names:
        raise ValueError(
            f"The program calls Python functions ({', '.join(names)}), but it runs in another "
            f"process, the server {connection.target}. Write the input without `tf.py_function`, "
            "`from_generator` and `numpy_input_fn`, or train in this process."
        )


def start_server(
    cluster: Cluster, session_config: tf.compat.v1.ConfigProto, protocol: str | None
) -> tf.distribute.Server:
    """Returns this task's server, which the first call starts.

    Raises:
      ValueError: the server's port is in use, or the address of some task is unknown.
    """
    if cluster.unreachable:
        raise ValueError(
            f"`TF_CONFIG` gives port 0 to {', '.join(cluster.unreachable)}, so the tasks could not "
            "find each other. Give each a port of its own, in the TF_CONFIG of all tasks."
        )
    address = cluster.cluster_spec[cluster.task_type][cluster.task_id]
    if address in _servers:
        return _servers[address]
    try:
        _servers[address] = tf.distribute.Server(
            tf.train.ClusterSpec(cluster.cluster_spec),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol=protocol or "grpc",
            config=make_server_config(cluster, session_config),
        )
    except tf.errors.OpError as error:
        raise ValueError(
            f"The server of {cluster.task_type} {cluster.task_id} cannot listen on {address} "
            f"({error.message}). Is the port in use, perhaps by an earlier run of this task? Give "
            "the task another port in the TF_CONFIG of all tasks."
        ) from error
    return _servers[address]


def make_server_config(
    cluster: Cluster, session_config: tf.compat.v1.ConfigProto
) -> tf.compat.v1.ConfigProto:
    """Makes a server's config from its sessions' one, without what is set for each session."""
    config = copy.deepcopy(session_config)
    # Each session sets this for itself; those in which workers leave notices are not isolated.
    config.isolate_session_state = False
    del config.device_filters[:]  # A server sees all tasks.
    hosts = [_host(address) for listed in cluster.cluster_spec.values() for address in listed]
    own = _host(cluster.cluster_spec[cluster.task_type][cluster.task_id])
    if hosts.count(own) > 1:
        # A task waits for messages several times a step. Threads that spin in the meantime take the
        # CPUs from the other tasks of the machine.
        config.experimental.disable_thread_spinning = True
    return config


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def make_resolver(config: RunConfig) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Makes the resolver that tells a strategy of the cluster's tasks, and which this one is."""
    cluster = config.cluster
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster.cluster_spec),
        task_type=cluster.task_type,
        task_id=cluster.task_id,
        rpc_layer=config.protocol or "grpc",
    )


def task_addresses(cluster: Cluster, role: str) -> dict[str, str]:
    """Returns the addresses of the other tasks of a role, by name."""
    return {
        task_name(role, index): address
        for index, address in enumerate(cluster.cluster_spec.get(role, ()))
        if (role, index) != (cluster.task_type, cluster.task_id)
    }


def chief_address(cluster: Cluster) -> dict[str, str]:
    """Returns the address of the chief, by its name; of worker 0 if there is no chief."""
    chief = task_addresses(cluster, "chief")
    return chief or {"worker 0": task_addresses(cluster, "worker")["worker 0"]}


def say_waiting(cluster: Cluster, others: Mapping[str, str]) -> None:
    """Logs which tasks this task waits for: `others`, by name, with their addresses."""
    listed = ", ".join(f"{name} ({address})" for name, address in others.items())
    own = task_name(str(cluster.task_type), cluster.task_id).capitalize()
    say("%s has started, and waits for %s", own, listed)


def session_target(address: str, protocol: str | None) -> str:
    """Returns the target of sessions on the server of a task."""
    return f"{protocol or 'grpc'}://{address}"


def task_name(role: str, index: int) -> str:
    """Returns the name of a task in messages."""
    return "the chief" if role == "chief" else f"{role} {index}"
