"""Private parts of strategies: variables, replicas, all-reduces and servers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as _multi_worker
from tensorflow.python.distribute import cross_device_utils as _cross_device

from estimator._tf.graph import outer_graphs
from estimator._tf.patches import patched


def copies(variable: tf.Variable) -> Sequence[tf.Variable]:
    """Returns the copies of a variable, one per replica, or a single one if replicas share it.

    `DistributedValues.values` is public; the wrapper that CentralStorage uses is not.
    2.16 to 2.21.
    """
    if isinstance(variable, tf.distribute.DistributedValues):
        return variable.values
    return (getattr(variable, "_v", variable),)


def allows_partitions(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether variables of a strategy may be partitioned, as those of central storage.

    `StrategyExtended` 2.16 to 2.21.
    """
    return bool(strategy.extended._allow_variable_partition())


def variables_by_handle() -> dict[Any, tf.Variable]:
    """Returns all copies of all variables, by the `ref` of their handles in the outermost graph."""
    keys = tf.compat.v1.GraphKeys
    graph = outer_graphs(tf.compat.v1.get_default_graph())[-1]
    collected = graph.get_collection(keys.GLOBAL_VARIABLES)
    collected += graph.get_collection(keys.LOCAL_VARIABLES)
    return {copy.handle.ref(): copy for v in collected for copy in copies(v)}


def variables_by_name(graph: tf.Graph) -> dict[str, tf.Variable]:
    """Returns a graph's variables by the names of handles and of v1's reads: "w:0", "w/read:0"."""
    keys = tf.compat.v1.GraphKeys
    collected = [graph.get_collection(k) for k in (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)]
    all_copies = [copy for variables in collected for v in variables for copy in copies(v)]
    found = {copy.handle.name: copy for copy in all_copies if hasattr(copy, "handle")}
    reads = {f"{name.removesuffix(':0')}/read:0": copy for name, copy in found.items()}
    return {**reads, **found}


@contextlib.contextmanager
def replica_reaches_outer_graphs() -> Iterator[None]:
    """Inside, `tf.init_scope` in a loop's body keeps the replica context and variable creators.

    Both are kept per graph and thread, and a replica's thread enters them in the body only. Without
    them, a variable that is lifted out of the body, as by tf-keras optimizers, would not get one
    copy per replica. 2.16 to 2.21.
    """
    body, *around = outer_graphs(tf.compat.v1.get_default_graph())
    with contextlib.ExitStack() as stack:
        for graph in around:
            for name in ("_distribution_strategy_stack", "_variable_creator_stack"):
                stack.callback(setattr, graph, name, getattr(graph, name))
                setattr(graph, name, list(getattr(body, name)))
        yield


_MULTI_WORKER_TYPES = (
    _multi_worker.CollectiveAllReduceStrategy,
    _multi_worker.CollectiveAllReduceStrategyV1,
)


def is_for_workers(strategy: Any) -> bool:
    """Returns whether `strategy` is a MultiWorkerMirroredStrategy, even of a single worker.

    An evaluator's has a single worker. The public classes have no common base. 2.16 to 2.21.
    """
    return isinstance(strategy, _MULTI_WORKER_TYPES)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether it is a MultiWorkerMirroredStrategy, of v1 or v2, with several workers."""
    if not is_for_workers(strategy):
        return False
    return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def make_multi_worker_mirrored(
    resolver: Any, options: Any, device_type: str, num_devices: int, number: int
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """Makes a MultiWorkerMirroredStrategy with given devices and collective keys of its own.

    By default it uses one CPU or all GPUs of the eager context, and its collectives have the same
    group keys as those of other strategies. `_initialize_local_devices` of the extended class and
    `_collective_key_base` 2.16 to 2.21.

    Args:
      resolver: the cluster resolver.
      options: the communication options.
      device_type: such as "GPU".
      num_devices: the number of devices of each worker.
      number: a different number for each strategy of this process, which sets the keys apart.
    """
    extended: Any = _multi_worker.CollectiveAllReduceExtended

    def local_devices(self: Any, cluster_resolver: Any, worker_device: str) -> tuple:
        names = [f"{worker_device}/device:{device_type}:{i}" for i in range(num_devices)]
        return tuple(names), device_type

    strategy_class: Any = tf.distribute.MultiWorkerMirroredStrategy
    with (
        patched(extended, "_initialize_local_devices", lambda original: local_devices),
        patched(strategy_class, "_collective_key_base", lambda first: first + 1000 * number),
    ):
        return strategy_class(resolver, options)


@contextlib.contextmanager
def initializers_without_broadcast(
    strategy: tf.distribute.MultiWorkerMirroredStrategy,
) -> Iterator[None]:
    """Inside, the initializers of new global variables do not broadcast the chief's values.

    If the chief loads a value instead of running the initializer, the others would wait for ever.
    Local variables, which all workers initialize, are broadcast as usual. `_create_variable` and
    `_get_variable_creator_initial_value` of the extended class 2.16 to 2.21.
    """
    creation = threading.local()

    def note(create: Callable) -> Callable:
        def create_variable(next_creator: Callable, **kwargs: Any) -> tf.Variable:
            # The strategy does not pass the collections on.
            keys, key = kwargs.get("collections"), tf.compat.v1.GraphKeys.GLOBAL_VARIABLES
            creation.is_global = keys is None or key in keys
            return create(next_creator, **kwargs)

        return create_variable

    def leave_out(broadcast: Callable) -> Callable:
        def initial_value(replica_id: int, **kwargs: Any) -> Any:
            if replica_id == 0 and creation.is_global:
                return kwargs["initial_value"]
            return broadcast(replica_id=replica_id, **kwargs)

        return initial_value

    with (
        patched(strategy.extended, "_create_variable", note),
        patched(strategy.extended, "_get_variable_creator_initial_value", leave_out),
    ):
        yield


def number_collectives(strategy: tf.distribute.MultiWorkerMirroredStrategy, first: int) -> None:
    """Numbers the collectives of graphs that are built later, beginning with `first`.

    Otherwise TensorFlow counts on, so that workers of which one has built another graph than the
    others would never meet again. `_collective_keys` of the extended class and its
    `_instance_key_table` 2.16 to 2.21.
    """
    keys = strategy.extended._collective_keys
    for device in strategy.extended.worker_devices:
        keys.get_group_key([device])  # Else made for the first local variable, numbered from 100.
    with keys._lock:
        for devices in keys._instance_key_table.values():
            devices.update(dict.fromkeys(devices, _cross_device.INSTANCE_KEY_START_NUMBER + first))


def make_parameter_server(
    resolver: Any, devices: Sequence[str], place_variable: Callable[[tf.Operation], str]
) -> tf.distribute.Strategy:
    """Makes a v1 ParameterServerStrategy with given compute devices and variable placement.

    By default it uses one CPU or all GPUs, and places variables round-robin. `_compute_devices` and
    `_variable_device` of the extended class 2.16 to 2.21.
    """
    strategy = tf.compat.v1.distribute.experimental.ParameterServerStrategy(resolver)
    strategy.extended._compute_devices = list(devices)
    strategy.extended._variable_device = place_variable
    return strategy


def has_started_server(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a MultiWorkerMirroredStrategy has started this task's server.

    It does so if it is made eagerly, but not in a graph or after `disable_v2_behavior`.
    2.16 to 2.21.
    """
    return bool(getattr(strategy.extended, "_std_server_started", False))


class PiggybackSlot(NamedTuple):
    """A place for an additional vector in an all-reduce that a strategy makes.

    Attributes:
      entry: an op whose first input is the vector to reduce: zeros, until it is replaced.
      reduction: the op of the all-reduce, by which to see whether a step runs it.
      total: the sum of the vectors over all replicas.
    """

    entry: tf.Operation
    reduction: tf.Operation
    total: tf.Tensor


@contextlib.contextmanager
def piggyback_slots(size: int) -> Iterator[list[PiggybackSlot]]:
    """Inside, each all-reduce of float32 tensors over workers has a slot for `size` more numbers.

    A strategy packs gradients into one tensor, and no public API adds anything to it. So a method
    of TensorFlow is replaced while one graph is built (builds hold a lock). An all-reduce in a
    branch or a loop of the model has no slot, because it may not run.
    `batch_all_reduce` of CollectiveReplicaLauncher, and `_get_control_flow_context`, 2.16 to 2.21.

    Yields:
      A list of the slots, which grows as all-reduces are built.
    """
    home, slots = tf.compat.v1.get_default_graph(), []

    def make(original: Callable) -> Callable:
        def batch_all_reduce(self: Any, packs: list, options: Any = None) -> list:
            graph = tf.compat.v1.get_default_graph()
            is_in_step = graph is home and graph._get_control_flow_context() is None
            if not is_in_step or not packs or {t.dtype for t in packs[0]} != {tf.float32}:
                return original(self, packs, options)
            with tf.device(self._device):
                entry = tf.identity(tf.zeros([size]), "training/piggyback_slot")
            # Appended, so that the offsets and the alignment of the others do not change.
            sums = list(original(self, [[*packs[0], entry], *packs[1:]], options))
            total = sums.pop(len(packs[0]))
            slots.append(PiggybackSlot(entry.op, total.op.inputs[0].op, total))
            return sums

        return batch_all_reduce

    with patched(_cross_device.CollectiveReplicaLauncher, "batch_all_reduce", make):
        yield slots
