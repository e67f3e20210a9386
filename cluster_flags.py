"""The flags of TensorFlow's classic distributed example, and the cluster that they describe.

    python run_mnist.py --job_name=worker --task_index=1 --ps_hosts=a:2222 --worker_hosts=b:1,b:2

is one task of a cluster, as with `mnist_replica.py`. If TF_CONFIG describes the cluster, only
--sync_replicas, --replicas_to_aggregate and --num_gpus apply.
"""

import json
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import flags

FLAGS = flags.FLAGS
flags.DEFINE_enum("job_name", None, ["worker", "ps", "evaluator"], "What this task is.")
flags.DEFINE_integer(
    "task_index", None, "Its index among the tasks of its job. Worker 0 is the chief.", 0
)
flags.DEFINE_list("ps_hosts", [], "host:port of each parameter server, separated by commas.")
flags.DEFINE_list("worker_hosts", [], "host:port of each worker, separated by commas.")
flags.DEFINE_boolean("existing_servers", False, "Connect to servers that already run there.")
flags.DEFINE_boolean("sync_replicas", False, "Add up the workers' gradients before an update.")
flags.DEFINE_integer(
    "replicas_to_aggregate", None, "Gradients in an update. Default: one a worker.", 1
)
flags.DEFINE_integer(
    "num_gpus", None, "GPUs of each machine, of which a task uses one. Default: all of them.", 0
)

_CLUSTER_FLAGS = ("job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers")


def make_tf_config() -> str | None:
    """Returns the TF_CONFIG that these flags describe; None if they do not name a task."""
    if FLAGS.job_name is None:
        return None
    cluster = {"worker": FLAGS.worker_hosts, "ps": FLAGS.ps_hosts}
    config: dict[str, Any] = {
        "cluster": {role: hosts for role, hosts in cluster.items() if hosts},
        "task": {"type": FLAGS.job_name, "index": FLAGS.task_index},
    }
    if FLAGS.existing_servers:
        config["session_master"] = f"grpc://{FLAGS.worker_hosts[FLAGS.task_index]}"
    return json.dumps(config)


def choose_gpu(task_index: int) -> None:
    """Shows TensorFlow one of the first --num_gpus GPUs; consecutive tasks take consecutive ones.

    Raises:
      ValueError: this machine has fewer GPUs than that.
    """
    if FLAGS.num_gpus is None:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if FLAGS.num_gpus > len(gpus):
        raise ValueError(
            f"--num_gpus ({FLAGS.num_gpus}) must be at most what this machine has ({len(gpus)}). "
            "Leave it out to use them all, or pass 0 to use none."
        )
    mine = [gpus[task_index % FLAGS.num_gpus]] if FLAGS.num_gpus else []
    tf.config.set_visible_devices(mine, "GPU")


def _checks(*names: str) -> Callable[[Callable[..., str | None]], None]:
    """Registers a function that returns what is wrong with the values of these flags, or None."""

    def register(find_fault: Callable[..., str | None]) -> None:
        def check(values: dict[str, Any]) -> bool:
            fault = find_fault(**values)
            if fault:
                raise flags.ValidationError(fault)
            return True

        flags.register_multi_flags_validator(names, check)

    return register


@_checks("job_name", "task_index", "ps_hosts", "worker_hosts", "existing_servers")
def _check_complete(job_name: str | None, **values: Any) -> str | None:
    given = [
        f"--{name}"
        for name, value in values.items()
        if value not in (None, []) and value is not False
    ]
    if job_name is None and given:
        return f"{', '.join(given)} needs --job_name: which task is this?"
    for name in ("task_index", "worker_hosts"):
        if job_name is not None and values[name] in (None, []):
            return f"--job_name={job_name} needs --{name}."
    return None


@_checks("job_name", "task_index", "ps_hosts", "worker_hosts")
def _check_task(
    job_name: str | None, task_index: int | None, ps_hosts: list[str], worker_hosts: list[str]
) -> str | None:
    if job_name is None or task_index is None:
        return None
    hosts = {"worker": worker_hosts, "ps": ps_hosts, "evaluator": ["one"]}[job_name]
    if task_index < len(hosts):
        return None
    reason = "evaluator" if job_name == "evaluator" else f"address in --{job_name}_hosts"
    return f"--task_index ({task_index}) is too large: there are {len(hosts)} x {reason}."


@_checks("ps_hosts", "worker_hosts")
def _check_addresses(**hosts: list[str]) -> str | None:
    owners: dict[str, str] = {}
    for name, addresses in hosts.items():
        for index, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 65536):
                return f"--{name}: {address!r} is no host:port, such as 10.0.0.1:2222."
            if address in owners:
                return f"--{name}: {address!r} is the address of {owners[address]} too."
            owners[address] = f"--{name}[{index}]"
    return None


@_checks("job_name", "existing_servers")
def _check_existing_servers(job_name: str | None, existing_servers: bool) -> str | None:
    if existing_servers and job_name in ("ps", "evaluator"):
        return (
            f"--existing_servers is for workers: what --job_name={job_name} would start runs "
            "already, or needs no server."
        )
    return None


@_checks("replicas_to_aggregate", "sync_replicas")
def _check_aggregate(replicas_to_aggregate: int | None, sync_replicas: bool) -> str | None:
    if replicas_to_aggregate is not None and not sync_replicas:
        return f"--replicas_to_aggregate ({replicas_to_aggregate}) needs --sync_replicas."
    return None
