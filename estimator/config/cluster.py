"""The tasks of a cluster, and which of them this process is.

The only module that reads the environment. It imports no TensorFlow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHIEF = "chief"
WORKER = "worker"
PS = "ps"
EVALUATOR = "evaluator"
# Programs written before TensorFlow 1.4 call the chief "master".
_OLD_CHIEF = "master"
_ROLES = (CHIEF, WORKER, PS, EVALUATOR)
# The order in which tasks are counted, and the roles that train together.
_TRAINING_ROLES = (CHIEF, WORKER, PS)

_EXAMPLE = (
    '{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclass(frozen=True)
class Cluster:
    """The addresses of every task, and the task of this process.

    `Cluster()` is the one local task: a chief without a network. `model_dir` and `service` are what
    TF_CONFIG says of them; a platform may say anything of its service.
    """

    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    task_type: str = WORKER
    task_id: int = 0
    session_master: str | None = None
    eval_session_master: str | None = None
    model_dir: str | None = None
    service: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """Addresses of the tasks that train together; empty for a local task or an evaluator."""
        if self.task_type == EVALUATOR:
            return {}
        return {
            role: list(self.addresses[role]) for role in _TRAINING_ROLES if role in self.addresses
        }

    @property
    def is_chief(self) -> bool:
        """Whether this task writes: the chief, or worker 0 of a cluster that names no chief."""
        if self.task_type == CHIEF:
            return True
        return self.task_type == WORKER and self.task_id == 0 and CHIEF not in self.addresses

    @property
    def is_alone(self) -> bool:
        """Whether no other task trains with this one, nor holds its variables."""
        return sum(map(len, self.cluster_spec.values())) <= 1

    @property
    def num_ps_replicas(self) -> int:
        """Tasks that hold variables."""
        return len(self.cluster_spec.get(PS, ()))

    @property
    def num_worker_replicas(self) -> int:
        """Tasks that run replicas, the chief among them; 1 when local, 0 for an evaluator."""
        if self.task_type == EVALUATOR:
            return 0
        spec = self.cluster_spec
        return len(spec.get(CHIEF, ())) + len(spec.get(WORKER, ())) if spec else 1

    @property
    def master(self) -> str:
        """The session target of this task: "" in process, else "grpc://<own address>"."""
        if self.task_type == EVALUATOR:
            return ""
        if self.session_master is not None:
            return self.session_master
        if self.is_alone:
            return ""
        return f"grpc://{self.cluster_spec[self.task_type][self.task_id]}"

    @property
    def evaluation_master(self) -> str:
        """The session target of an evaluation: "" unless TF_CONFIG names another for this task."""
        trains = self.task_type != EVALUATOR and bool(self.addresses)
        return "" if trains else self.eval_session_master or ""

    @property
    def global_id_in_cluster(self) -> int | None:
        """The place of this task in chief, workers, ps; 0 when local, None for an evaluator."""
        if self.task_type == EVALUATOR:
            return None
        spec = self.cluster_spec
        before = _TRAINING_ROLES[: _TRAINING_ROLES.index(self.task_type)] if spec else ()
        return sum(len(spec.get(role, ())) for role in before) + self.task_id


def read_cluster() -> Cluster:
    """The cluster that the environment variable TF_CONFIG describes."""
    return parse_tf_config(os.environ.get("TF_CONFIG"))


def parse_tf_config(text: str | None) -> Cluster:
    """Reads the JSON of TF_CONFIG; nothing, or no cluster in it, is one local task.

    Raises:
      ValueError: it is not JSON of the expected form, names an unknown role, gives an address
        twice, or describes no task that the cluster has.
    """
    if not text or not text.strip():
        return Cluster()
    config = _parse_json(text)
    _check_rest(config)
    rest: dict[str, Any] = {
        name: config.get(name)
        for name in ("session_master", "eval_session_master", "model_dir", "service")
    }
    addresses = _parse_addresses(config.get("cluster") or {})
    task = config.get("task") or {}
    if not isinstance(task, dict):
        raise _error("task", task, 'must be a dictionary {"type": ..., "index": ...}')
    if not addresses and task.get("type") != EVALUATOR:
        return Cluster(**rest)
    task_type, task_id = _parse_task(task, addresses)
    return Cluster(addresses, task_type, task_id, **rest)


def format_tf_config(addresses: Mapping[str, Sequence[str]], task_type: str, task_id: int) -> str:
    """The text of TF_CONFIG: the other way from `parse_tf_config`."""
    cluster = {role: list(listed) for role, listed in addresses.items()}
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": task_id}})


def read_tpu_name() -> str:
    """The TPU that the environment variable TPU_NAME names; "" if it names none."""
    return os.environ.get("TPU_NAME", "")


def environment_with(**variables: str) -> dict[str, str]:
    """The environment of this process with other variables, for a process to be started."""
    return {**os.environ, **variables}


def _parse_json(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"`TF_CONFIG` ({text!r}) is not JSON: {error}. A valid one: {_EXAMPLE}"
        ) from error
    if not isinstance(config, dict):
        raise ValueError(f"`TF_CONFIG` ({text!r}) must be a dictionary, such as {_EXAMPLE}")
    return config


def _check_rest(config: dict[str, Any]) -> None:
    for name in ("session_master", "eval_session_master"):
        master = config.get(name)
        if master is not None and not isinstance(master, str):
            raise _error(name, master, 'must be a session target such as "grpc://10.0.0.1:2222"')
    model_dir, service = config.get("model_dir"), config.get("service")
    if model_dir is not None and (not isinstance(model_dir, str) or not model_dir):
        raise _error("model_dir", model_dir, "must be a path, not empty. Leave it out for none")
    if service is not None and not isinstance(service, dict):
        raise _error("service", service, "must be a dictionary")


def _parse_addresses(cluster: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(cluster, dict):
        raise _error("cluster", cluster, "must be a dictionary from role to a list of addresses")
    if CHIEF in cluster and _OLD_CHIEF in cluster:
        raise _error("cluster", cluster, 'names both "chief" and "master", the same role. Keep one')
    addresses: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for name, listed in cluster.items():
        role = _parse_role("cluster", name)
        if not isinstance(listed, list) or not listed:
            raise _error(f"cluster.{name}", listed, 'must be a list of "host:port", not empty')
        for index, address in enumerate(listed):
            place = f"cluster.{name}[{index}]"
            if not _is_address(address):
                raise _error(place, address, 'must be an address "host:port"')
            if address in owners:
                other = owners[address]
                rule = f"is the address of {other} too. Each task needs a server of its own"
                raise _error(place, address, rule)
            owners[address] = place
        addresses[role] = tuple(listed)
    if len(addresses.get(CHIEF, ())) > 1:
        raise _error("cluster.chief", list(addresses[CHIEF]), "must be one task")
    if addresses and not {CHIEF, WORKER} & set(addresses):
        raise _error("cluster", cluster, 'has nobody that trains. Name a "chief" or a "worker"')
    return addresses


def _parse_task(task: dict[str, Any], addresses: dict[str, tuple[str, ...]]) -> tuple[str, int]:
    if "type" not in task:
        raise _error("task", task, f'lacks "type": one of {_quote(addresses)}')
    role = _parse_role("task.type", task["type"])
    index = _parse_index(task.get("index", 0))
    if role == EVALUATOR and role not in addresses:
        # An evaluator stands outside the training cluster and need not be listed in it.
        num_tasks = 1
    elif role not in addresses:
        raise _error("task.type", task["type"], f"is not in the cluster: {_quote(addresses)}")
    else:
        num_tasks = len(addresses[role])
    if not 0 <= index < num_tasks:
        raise _error("task.index", index, f"must be between 0 and {num_tasks - 1} for {role!r}")
    return role, index


def _parse_role(place: str, name: Any) -> str:
    role = CHIEF if name == _OLD_CHIEF else name
    if role not in _ROLES:
        raise _error(place, name, f"is an unknown role. The roles are {_quote(_ROLES)}")
    return role


def _parse_index(index: Any) -> int:
    # Job templates often substitute the index as a string.
    if isinstance(index, str) and index.isdecimal():
        return int(index)
    if isinstance(index, bool) or not isinstance(index, int):
        raise _error("task.index", index, "must be an integer")
    return index


def _is_address(address: Any) -> bool:
    if not isinstance(address, str):
        return False
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def _quote(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _error(place: str, value: Any, rule: str) -> ValueError:
    return ValueError(f"`TF_CONFIG` {place} ({json.dumps(value)}) {rule}.")
