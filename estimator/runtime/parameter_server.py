"""The runtime of workers that run their steps independently, with variables on ps tasks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from estimator import _tf
from estimator.cluster import server
from estimator.cluster.asynchronous import AsynchronousWorkers
from estimator.cluster.consensus import Agreement
from estimator.cluster.consistency_check import describe_variables
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.cluster import PS
from estimator.config.run_config import RunConfig
from estimator.runtime.local import Runtime, make_default_strategy, make_mirrored, replica_devices
from estimator.runtime.ps_placement import make_device_fn, make_variable_placer
from estimator.spec import ModeKeys

_NO_LOOP = (
    "A SyncReplicasOptimizer waits for the other workers in every step, in queues that a loop of "
    "steps cannot hold. Train with `iterations_per_loop=1`, or leave it out and use "
    'RunConfig(strategy="multi_worker_mirrored").'
)
_ONE_REPLICA = (
    "A SyncReplicasOptimizer takes one gradient a worker, and this one has several replicas. Train "
    "with `num_replicas=1` and a worker for each device, or leave it out and use "
    'RunConfig(strategy="multi_worker_mirrored").'
)


class ParameterServerRuntime(Runtime):
    """Training in a cluster with ps tasks."""

    shares_variables: ClassVar[bool] = True

    @property
    def hosts(self) -> tuple[int, int]:
        """How many workers call `input_fn`, and the index of this one."""
        return self.config.num_worker_replicas, self.config.global_id_in_cluster or 0

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, the default graph is built under the strategy, and counts of Keras are atomic."""
        with super().scope(), _tf.keras_additions_in_one_op():
            yield

    def check_trainable(self) -> None:
        """Raises ValueError if `nan_policy` is "skip" and workers share the variables."""
        if self.config.nan_policy == "skip" and self.config.num_worker_replicas > 1:
            raise ValueError(
                f"`nan_policy` ({self.config.nan_policy!r}) cannot be used with ps tasks and "
                f"{self.config.num_worker_replicas} workers: others read the weights before a step "
                'is undone. Pass "raise", "stop" or "ignore", train with one worker, or with '
                'RunConfig(strategy="multi_worker_mirrored").'
            )

    def check_accumulation(self, num_batches: int) -> None:
        """Raises ValueError, because gradients are accumulated in variables."""
        raise ValueError(
            f"`accumulate_steps` ({num_batches}) cannot be used with ps tasks: all workers "
            "would add to one sum. Use larger batches, or "
            'RunConfig(strategy="multi_worker_mirrored").'
        )

    def make_device_fn(self) -> Callable[[tf.Operation], str] | None:
        """Returns the function that places variables on ps tasks, unless others place them."""
        places_itself = self.config.train_distribute is not None or self.num_replicas > 1
        if self.config.device_fn is not None or places_itself:
            return super().make_device_fn()
        return make_device_fn(self.config.cluster, self.config.ps_placement)

    def replacing_sync_replicas(self) -> contextlib.AbstractContextManager[None]:
        """Replaces nothing: a SyncReplicasOptimizer has other workers to wait for."""
        return contextlib.nullcontext()

    def refusing_sync_replicas(self, is_in_loop: bool) -> contextlib.AbstractContextManager[None]:
        """Inside, using a SyncReplicasOptimizer raises an error if it could not work in a step."""
        if not is_in_loop and self.num_local_replicas <= 1:
            return contextlib.nullcontext()
        return _tf.sync_replicas_refused(_NO_LOOP if is_in_loop else _ONE_REPLICA)

    def connect(self) -> server.Connection:
        """Connects a chief or a worker to its ps tasks, through an existing server or its own."""
        config, cluster = self.config, self.config.cluster
        session_config = self.session_config()
        if not session_config.device_filters:
            # With these filters, a lost worker does not block the others.
            own = f"/job:{cluster.task_type}/task:{cluster.task_id}"
            session_config.device_filters.extend(["/job:ps", own])
        needed = server.task_addresses(cluster, "ps")
        existing = server.connect_to_existing(config, self.mode, session_config, is_isolated=False)
        if existing is not None:
            # Servers that outlive a worker do not report that it is gone: only they are watched.
            return dataclasses.replace(existing, needed={**existing.needed, **needed})
        server.start_server(cluster, session_config, config.protocol)
        if cluster.is_chief:
            workers = server.task_addresses(cluster, "worker")
            return server.Connection(config.master, session_config, needed, replaceable=workers)
        needed |= server.chief_address(cluster)
        return server.Connection(config.master, session_config, needed)

    def make_worker_group(
        self, agreement: Agreement, asked: Mapping[str, Any], connection: server.Connection
    ) -> WorkerGroup:
        """Makes this worker's part of workers that talk through the ps tasks."""
        described = {
            "TensorFlow": tf.__version__,
            **asked,
            "`ps_placement`": self.config.ps_placement,
            **describe_variables(agreement.graph, has_devices=True),
        }
        return AsynchronousWorkers(self.config, agreement, described)


def make_parameter_server(config: RunConfig, mode: str) -> tf.distribute.Strategy:
    """Makes a strategy for this process's devices; a single replica needs only op placement."""
    cluster = config.cluster
    devices = replica_devices(config.num_replicas)
    if len(devices) == 1:
        return make_default_strategy()
    if mode != ModeKeys.TRAIN or not cluster.num_ps_replicas or cluster.task_type == PS:
        return make_mirrored(config.num_replicas)
    own = f"/job:{cluster.task_type}/replica:0/task:{cluster.task_id}"
    specs = map(tf.DeviceSpec.from_string, devices)
    names = [f"{own}/device:{spec.device_type}:{spec.device_index}" for spec in specs]
    place_variable = make_variable_placer(cluster, own, config.ps_placement)
    return _tf.make_parameter_server(server.make_resolver(config), names, place_variable)
