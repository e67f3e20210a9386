"""The tasks of a cluster, and which of them this process is.

The only module that reads the environment. It does not import TensorFlow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimator.config.checks import WrongTypeError

CHIEF = "chief"
WORKER = "worker"
PS = "ps"
EVALUATOR = "evaluator"
# Programs written before TensorFlow 1.4 call the chief "master"; there it also evaluates.
MASTER = "master"
_ROLES = (CHIEF, WORKER, PS, EVALUATOR)
# The roles that train together, in the order in which tasks are counted.
_TRAINING_ROLES = (CHIEF, WORKER, PS)

_EXAMPLE = (
    '{"cluster": {"chief": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


@dataclass(frozen=True)
class Cluster:
    """The addresses of all tasks, and the task of this process.

    `Cluster()` is a single local task: a chief without a network.

    Attributes:
      addresses: addresses by role; the chief's is under "chief", whatever TF_CONFIG calls it. Jobs
        with other names may exist, which take no part in training.
      task_type: the role of this process, or the name of such a job.
      task_id: the index of this process among the tasks of its role.
      session_master: the target of training sessions, if TF_CONFIG names one.
      eval_session_master: the target of evaluation sessions, if TF_CONFIG names one.
      model_dir: the `model_dir` of TF_CONFIG, if any.
      service: the "service" of TF_CONFIG, where a platform may put anything.
      chief_name: TF_CONFIG's name for the chief: "chief" or "master".
      writes: whether this task is the chief, if a RunConfig overrides that; else its role decides.
    """

    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    task_type: str = WORKER
    task_id: int = 0
    session_master: str | None = None
    eval_session_master: str | None = None
    model_dir: str | None = None
    service: Mapping[str, Any] | None = field(default=None, hash=False)
    chief_name: str = CHIEF
    writes: bool | None = None

    @property
    def cluster_spec(self) -> dict[str, list[str]]:
        """Addresses of the tasks that train together; empty for a local task or an evaluator."""
        if self.task_type == EVALUATOR:
            return {}
        return {
            role: list(self.addresses[role]) for role in _TRAINING_ROLES if role in self.addresses
        }

    @property
    def named_cluster_spec(self) -> dict[str, list[str]]:
        """The tasks that train and any extra jobs, under TF_CONFIG's names."""
        if self.task_type == EVALUATOR:
            return {}
        return {
            self.chief_name if job == CHIEF else job: list(listed)
            for job, listed in self.addresses.items()
            if job != EVALUATOR
        }

    @property
    def named_task_type(self) -> str:
        """TF_CONFIG's name for the role of this task."""
        return self.chief_name if self.task_type == CHIEF else self.task_type

    @property
    def default_device_filters(self) -> list[str]:
        """The jobs that a session of this task sees, by TensorFlow's default for ps tasks."""
        if not self.addresses or self.task_type not in _TRAINING_ROLES:
            return []
        if self.task_type == PS:
            return [f"/job:{job}" for job in (PS, WORKER, CHIEF, MASTER)]
        task = f"/task:{self.task_id}" if self.task_type == WORKER else ""
        return [f"/job:{PS}", f"/job:{self.named_task_type}{task}"]

    @property
    def is_chief(self) -> bool:
        """Whether this task writes: the chief, or worker 0 of a cluster that names no chief."""
        if self.writes is not None:
            return self.writes
        if self.task_type == CHIEF:
            return True
        return self.task_type == WORKER and self.task_id == 0 and CHIEF not in self.addresses

    @property
    def is_alone(self) -> bool:
        """Whether no other task trains with this one or holds its variables."""
        return sum(map(len, self.cluster_spec.values())) <= 1

    @property
    def num_ps_replicas(self) -> int:
        """The number of tasks that hold variables."""
        return len(self.cluster_spec.get(PS, ()))

    @property
    def num_worker_replicas(self) -> int:
        """Number of tasks that run replicas, with the chief; 1 when local, 0 for an evaluator."""
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
        return f"grpc://{self.addresses[self.task_type][self.task_id]}"

    @property
    def evaluation_master(self) -> str:
        """The session target of an evaluation: "" unless TF_CONFIG names another for this task."""
        trains = self.task_type != EVALUATOR and bool(self.addresses)
        return "" if trains else self.eval_session_master or ""

    @property
    def global_id_in_cluster(self) -> int | None:
        """The index of this task among all tasks; 0 when local, None for an evaluator.

        The chief comes first, then workers and other jobs in alphabetical order, then ps tasks.
        """
        if self.task_type == EVALUATOR:
            return None
        others = sorted(set(self.addresses) - {CHIEF, PS, EVALUATOR})
        order = [job for job in (CHIEF, *others, PS) if job in self.addresses]
        before = order[: order.index(self.task_type)] if order else []
        return sum(len(self.addresses[job]) for job in before) + self.task_id

    @property
    def unreachable(self) -> dict[str, str]:
        """The training tasks whose addresses have port 0, by name."""
        return {
            f"{role} {index}": address
            for role, listed in self.cluster_spec.items()
            for index, address in enumerate(listed)
            if _port(address) == 0
        }


def read_cluster() -> Cluster:
    """Reads the cluster from the environment variable TF_CONFIG."""
    return parse_tf_config(os.environ.get("TF_CONFIG"))


def parse_tf_config(text: str | None) -> Cluster:
    """Parses the JSON of TF_CONFIG; without text or a cluster, returns one local task.

    Raises:
      ValueError: the text is not JSON of the expected form, repeats an address, or describes a task
        that the cluster lacks.
    """
    if not text or not text.strip():
        return Cluster()
    config = _parse_json(text)
    _check_rest(config)
    rest: dict[str, Any] = {
        name: config.get(name)
        for name in ("session_master", "eval_session_master", "model_dir", "service")
    }
    cluster = config.get("cluster") or {}
    addresses = _parse_addresses(cluster)
    chief_name = MASTER if MASTER in cluster else CHIEF
    task = config.get("task") or {}
    if not isinstance(task, dict):
        raise _error("task", task, 'must be a dictionary {"type": ..., "index": ...}')
    if not addresses and task.get("type") != EVALUATOR:
        return Cluster(**rest)
    task_type, task_id = _parse_task(task, addresses, chief_name)
    return Cluster(addresses, task_type, task_id, chief_name=chief_name, **rest)


def format_tf_config(addresses: Mapping[str, Sequence[str]], task_type: str, task_id: int) -> str:
    """Formats TF_CONFIG, the inverse of `parse_tf_config`."""
    cluster = {role: list(listed) for role, listed in addresses.items()}
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": task_id}})


def read_tpu_name() -> str:
    """Returns the TPU that the environment variable TPU_NAME names; "" if it names none."""
    return os.environ.get("TPU_NAME", "")


def use_legacy_keras() -> None:
    """Has TensorFlow take tf-keras as tf.keras, if the environment does not choose one.

    To be called before TensorFlow is imported.
    """
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def choose_cpp_log_level(level: str) -> str:
    """Has TensorFlow's C++ code log from this level on, if the environment chooses none.

    To be called before TensorFlow is imported. Returns the level that holds.
    """
    return os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", level)


def environment_with(**variables: str) -> dict[str, str]:
    """Returns this process's environment with other variables, for a process to be started."""
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
        raise WrongTypeError(str(_error("service", service, "must be a dictionary")))


def _parse_addresses(cluster: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(cluster, dict):
        raise _error("cluster", cluster, "must be a dictionary from role to a list of addresses")
    if CHIEF in cluster and MASTER in cluster:
        raise _error("cluster", cluster, 'names both "chief" and "master", the same role. Keep one')
    addresses: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for name, listed in cluster.items():
        role = CHIEF if name == MASTER else name
        if not isinstance(listed, list):
            raise _error(f"cluster.{name}", listed, 'must be a list of "host:port"')
        _check_addresses(name, listed, owners)
        if listed:  # `hosts[1:]` of one host is empty.
            addresses[role] = tuple(listed)
    if cluster and not addresses:
        raise _error("cluster", cluster, 'has no task. Name a "chief" or a "worker"')
    if len(addresses.get(CHIEF, ())) > 1:
        raise _error("cluster.chief", list(addresses[CHIEF]), "must be one task")
    if addresses and not {CHIEF, WORKER} & set(addresses):
        raise _error("cluster", cluster, 'has no task that trains. Name a "chief" or a "worker"')
    return addresses


def _check_addresses(name: str, listed: list[Any], owners: dict[str, str]) -> None:
    """Raises an error if an address of a role is not valid or has an owner; notes their owners."""
    for index, address in enumerate(listed):
        place = f"cluster.{name}[{index}]"
        if not _is_address(address):
            raise _error(place, address, 'must be an address "host:port"')
        if address in owners and _port(address):
            other = owners[address]
            rule = f"is the address of {other} too. Each task needs a server of its own"
            raise _error(place, address, rule)
        owners[address] = place


def _parse_task(
    task: dict[str, Any], addresses: dict[str, tuple[str, ...]], chief_name: str
) -> tuple[str, int]:
    if "type" not in task:
        raise _error("task", task, f'lacks "type": one of {_quote(addresses)}')
    role = CHIEF if task["type"] == MASTER else task["type"]
    index = _parse_index(task.get("index", 0))
    if role == EVALUATOR:
        # An evaluator is outside the training cluster and need not be listed in it.
        if chief_name == MASTER:
            raise _error(
                "task.type",
                EVALUATOR,
                'has nothing to do: a cluster with a "master" is evaluated by that. Call the '
                '"master" "chief" in the TF_CONFIG of all tasks, or start no evaluator',
            )
        if index < 0:
            raise _error("task.index", index, "must not be negative")
        return role, index
    if role not in addresses:
        rule = f"is not in the cluster: {_quote(addresses)}"
        if role not in _ROLES:
            rule += f". The roles of training and evaluation are {_quote(_ROLES)}"
        raise _error("task.type", task["type"], rule)
    num_tasks = len(addresses[role])
    if not 0 <= index < num_tasks:
        raise _error("task.index", index, f"must be between 0 and {num_tasks - 1} for {role!r}")
    return role, index


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
    return bool(host) and "/" not in host and port.isdecimal() and int(port) < 65536


def _port(address: str) -> int:
    """Returns the port of an address; 0 means that it is not known yet."""
    return int(address.rpartition(":")[2])


def _quote(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _error(place: str, value: Any, rule: str) -> ValueError:
    return ValueError(f"`TF_CONFIG` {place} ({json.dumps(value)}) {rule}.")
