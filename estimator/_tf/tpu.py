"""TPUs and their programs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.tpu import tpu_strategy_util as _tpu_strategy_util

# The attribute of an op that is part of a TPU's program (2.16 to 2.21).
TPU_PROGRAM = "_tpu_replicate"


def is_in_tpu_program(tensor: tf.Tensor) -> bool:
    """Whether `tensor` is part of a TPU's program: nothing outside can use it (2.16 to 2.21)."""
    return TPU_PROGRAM in tensor.op.node_def.attr


def free_tpu_handles(graph: tf.Graph) -> None:
    """Lets the variables that a TPU's program takes in wait for nothing that is part of it.

    A variable that is first used under control dependencies waits for them, although it is only
    handed in; the program as a whole would wait for itself. 2.16 to 2.21.
    """
    for op in graph.get_operations():
        if op.type == "TPUReplicatedInput" and op.outputs[0].dtype == tf.resource:
            op._remove_all_control_inputs()


def per_replica(strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]) -> Any:
    """One value for each replica, as an argument of `strategy.run`.

    In public only strategies of TF 2 have it. 2.16 to 2.21.
    """
    return strategy.extended._experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def tpu_resolver(strategy: tf.distribute.Strategy) -> Any:
    """The resolver that a TPUStrategy was made with; that of v1 does not tell (2.16 to 2.21)."""
    return strategy.extended._tpu_cluster_resolver


def is_initialized_tpu(resolver: Any) -> bool:
    """Whether this process has initialized that TPU already, by whatever program (2.16 to 2.21)."""
    return tpu_name(resolver) in map(str, _tpu_strategy_util.get_initialized_tpu_systems())


def note_initialized_tpu(resolver: Any, topology: bytes) -> None:
    """Tells TensorFlow that the TPU has been initialized, as its own function does.

    That function cannot say what a failed compilation is to do. 2.16 to 2.21.

    Args:
      resolver: of the TPU.
      topology: what `tf.compat.v1.tpu.initialize_system` gave, a serialized TopologyProto.
    """
    resolver.set_tpu_topology(topology)
    systems = _tpu_strategy_util._INITIALIZED_TPU_SYSTEMS
    systems[resolver._tpu] = tf.tpu.experimental.Topology(serialized=topology)


def tpu_name(resolver: Any) -> str:
    """What TensorFlow calls that TPU: its name, its address or "local" (2.16 to 2.21)."""
    return str(resolver._tpu)


@functools.cache
def compilable_ops() -> frozenset[str]:
    """The types of ops that XLA can compile, as far as this machine's CPU tells (2.16 to 2.21).

    What else a TPU has a kernel for is there too.
    """
    # XLA lists its kernels when it first compiles something.
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        session.run(tf.function(lambda: tf.zeros([]) + 1, jit_compile=True, autograph=False)())
    devices = ("XLA_CPU_JIT", "TPU", "TPU_SYSTEM")
    listed = _kernels.get_all_registered_kernels().kernel
    return frozenset(kernel.op for kernel in listed if kernel.device_type in devices)
