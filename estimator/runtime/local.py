"""The runtime of a strategy: all that differs between families of strategies.

Here it is for devices of this process; each other family has a subclass in a file of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import Workers, num_local_replicas, workers_of
from estimator.cluster.consensus import Agreement
from estimator.cluster.server import Connection, connect_to_existing
from estimator.cluster.worker_group import WorkerGroup
from estimator.config.cluster import CHIEF, MASTER
from estimator.config.run_config import RunConfig

# Strategies that run each replica in a thread, which initializes the eager context. So do workers
# that train together, but their eager contexts would wait for each other.
_THREADED_TYPES = (
    tf.distribute.MirroredStrategy,
    tf.compat.v1.distribute.MirroredStrategy,
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)


@dataclasses.dataclass(frozen=True)
class Runtime:
    """Where and how an estimator runs in a mode: on devices of this process.

    Attributes:
      config: the estimator's config.
      strategy: where the replicas run.
      mode: a `ModeKeys`.
      is_compiled: whether a step is compiled as a whole, one program for all replicas. Then batches
        have fixed shapes, training always runs loops, and metrics are computed on the host.
      shares_variables: whether variables are on other tasks, where other workers change them, too.
      looks_ahead: whether a worker must know before a step if it has the batches for it.
      params: what a TPUEstimator adds to the `params`.
    """

    config: RunConfig
    strategy: tf.distribute.Strategy
    mode: str

    is_compiled: ClassVar[bool] = False
    shares_variables: ClassVar[bool] = False
    looks_ahead: ClassVar[bool] = False
    params: ClassVar[Mapping[str, Any]] = {"use_tpu": False}

    @property
    def num_replicas(self) -> int:
        """The number of replicas that run a step together."""
        return self.strategy.num_replicas_in_sync

    @property
    def workers(self) -> Workers:
        """The workers that run each step together."""
        return workers_of(self.strategy)

    @property
    def num_local_replicas(self) -> int:
        """The number of replicas in this process."""
        return num_local_replicas(self.strategy)

    @property
    def only_gpu(self) -> str | None:
        """The device of the only replica if it is a GPU of this process; else None.

        It is "" without a strategy: TensorFlow places there whatever has no device, and a meta
        graph without devices can be imported where there is no GPU.
        """
        if self.num_replicas > 1 or self.is_compiled or self.shares_variables:
            return None
        if self.config.device_fn is not None or not self.runs_here:
            return None
        if not count_gpus():
            return None
        if is_default(self.strategy):
            return ""
        device = self.strategy.extended.worker_devices[0]
        return device if tf.DeviceSpec.from_string(device).device_type == "GPU" else None

    @property
    def hosts(self) -> tuple[int, int]:
        """How many tasks call `input_fn` for one model, and the index of this one."""
        return self.workers.count, self.workers.index

    @property
    def runs_here(self) -> bool:
        """Whether sessions run in this process, where their ops can call Python functions."""
        return not self.config.named_master(self.mode)

    # To build.

    def check_trainable(self) -> None:
        """Raises ValueError if the config asks for what training here does not support."""

    def check_accumulation(self, num_batches: int) -> None:
        """Raises ValueError if gradients of so many batches cannot be accumulated here."""

    def make_device_fn(self) -> Callable[[tf.Operation], str] | None:
        """Returns the function that places ops; None if only the strategy does.

        The config's function is called only where no `tf.device` is set.
        """
        device_fn = self.config.device_fn
        return None if device_fn is None else lambda op: op.device or device_fn(op)

    def start_eager_context(self) -> None:
        """Initializes the eager context if a build under the strategy would do so in its graph.

        There it would be initialized without soft placement for the life of the process, and eager
        code that names a missing device would fail later.
        """
        if isinstance(self.strategy, _THREADED_TYPES) and tf.executing_eagerly():
            tf.config.list_logical_devices()

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, the default graph is built under the strategy."""
        with (
            self.strategy.scope(),
            _tf.collectives_in_sessions(),
            _tf.mean_gradients(self.strategy),
            _tf.unscaled_keras_losses(self.strategy),
            self.replacing_sync_replicas(),
        ):
            yield

    def replacing_sync_replicas(self) -> contextlib.AbstractContextManager[None]:
        """Inside, a SyncReplicasOptimizer applies its gradients in the step itself."""
        return _tf.sync_replicas_in_line()

    def refusing_sync_replicas(self, is_in_loop: bool) -> contextlib.AbstractContextManager[None]:
        """Inside, using a SyncReplicasOptimizer raises an error if it could not work in a step."""
        return contextlib.nullcontext()

    # To run.

    def session_config(self) -> tf.compat.v1.ConfigProto:
        """Returns the user's `session_config` with the logical CPUs that the strategy uses.

        What it leaves out is as the process has set it with `tf.config`.
        """
        given = self.config.session_config or tf.compat.v1.ConfigProto()
        session_config = _tf.settings_of_tf_config()
        gpus = given.gpu_options
        if (
            gpus.experimental.virtual_devices  # Merged, they would be appended.
            or gpus.visible_device_list
            or gpus.per_process_gpu_memory_fraction
        ):
            session_config.gpu_options.experimental.ClearField("virtual_devices")
        session_config.MergeFrom(given)
        # TensorFlow's strategies do not support "master", so servers call that job "chief".
        filters = [
            one.replace(f"/job:{MASTER}", f"/job:{CHIEF}") for one in session_config.device_filters
        ]
        session_config.device_filters[:] = list(dict.fromkeys(filters))
        session_config.allow_soft_placement = True
        session_config.device_count["CPU"] = max(
            session_config.device_count.get("CPU", 0), _num_cpus(self.strategy)
        )
        return session_config

    def connect(self) -> Connection:
        """Returns how sessions reach the devices; starts this task's server if they need it.

        Raises:
          ValueError: this task's port is in use, or the server that the config names is not a valid
            address or cannot be used.
        """
        session_config = self.session_config()
        existing = connect_to_existing(self.config, self.mode, session_config)
        return existing or Connection("", session_config)

    def begin_training(self) -> Connection:
        """Connects for a training, which tells others of a failure from then on; see `connect`."""
        return self.connect()

    def start(self) -> None:
        """Prepares the devices for sessions."""

    def num_failures(self) -> int:
        """Returns how often the devices have failed; a change invalidates open sessions."""
        return 0

    def restarting_after_failure(self) -> contextlib.AbstractContextManager[None]:
        """Makes a failed operation inside the block prepare the devices again."""
        return contextlib.nullcontext()

    def make_worker_group(
        self, agreement: Agreement, asked: Mapping[str, Any], connection: Connection
    ) -> WorkerGroup:
        """Makes this worker's part of the workers that train together.

        Args:
          agreement: how workers agree, as built in the graph of the train program.
          asked: what `train` was asked to do, by name, which must be equal on all workers.
          connection: the result of `begin_training`.
        """
        return WorkerGroup(self.config.is_chief)


def make_plain_runtime(config: RunConfig, mode: str) -> Runtime:
    """Returns a runtime with one replica, under TensorFlow's default strategy."""
    return Runtime(config, make_default_strategy(), mode)


def is_default(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether it is TensorFlow's default strategy."""
    return strategy is make_default_strategy()


def make_default_strategy() -> tf.distribute.Strategy:
    """Returns TensorFlow's default strategy: one replica, on no particular device."""
    with tf.Graph().as_default():  # Ignores the caller's strategy scope.
        return tf.distribute.get_strategy()


def make_mirrored(num_replicas: int | None) -> tf.distribute.Strategy:
    """Makes a strategy with a copy of the variables on each of the replicas' devices."""
    return tf.distribute.MirroredStrategy(replica_devices(num_replicas))


def replica_devices(num_replicas: int | None) -> list[str]:
    """Returns a device for each replica: GPUs if the machine has any, else logical CPUs."""
    num_gpus = count_gpus()
    num_replicas = num_replicas or num_gpus or 1
    if num_gpus and num_replicas > num_gpus:
        raise ValueError(
            f"`num_replicas` ({num_replicas}) must be at most the number of GPUs ({num_gpus}). "
            "Leave it out to use them all."
        )
    kind = "gpu" if num_gpus else "cpu"
    return [f"/{kind}:{index}" for index in range(num_replicas)]


def count_gpus() -> int:
    """Returns how many GPUs a process sees; one that `tf.config` splits counts as its parts."""
    parts = map(tf.config.get_logical_device_configuration, tf.config.get_visible_devices("GPU"))
    return sum(len(part) if part else 1 for part in parts)


def _num_cpus(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of logical CPUs that the strategy's devices need, at least 1."""
    if is_default(strategy):
        return 1  # The default strategy has no device names.
    devices = map(tf.DeviceSpec.from_string, strategy.extended.worker_devices)
    indexes = [device.device_index or 0 for device in devices if device.device_type == "CPU"]
    return 1 + max(indexes, default=0)


# What makes a strategy of a number of replicas, by its name in the RunConfig.
MAKERS: Mapping[str, Callable[[int | None], tf.distribute.Strategy]] = {
    "one_device": lambda n: tf.distribute.OneDeviceStrategy(replica_devices(n or 1)[0]),
    "mirrored": make_mirrored,
    "central_storage": lambda n: tf.distribute.experimental.CentralStorageStrategy(
        replica_devices(n), parameter_device="/cpu:0"
    ),
}
