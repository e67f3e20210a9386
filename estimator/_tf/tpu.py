"""Private parts of TPUs: their programs, their initialization, and the ops they support."""

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
    """Returns whether `tensor` is inside a TPU program, unusable outside of it (2.16 to 2.21)."""
    return TPU_PROGRAM in tensor.op.node_def.attr


def free_tpu_handles(graph: tf.Graph) -> None:
    """Removes the control inputs of the variables that are inputs of a TPU program.

    A variable that is first used under control dependencies gets these as control inputs, although
    it is only an input. If they are inside the program, it would wait for itself. 2.16 to 2.21.
    """
    for op in graph.get_operations():
        if op.type == "TPUReplicatedInput" and op.outputs[0].dtype == tf.resource:
            op._remove_all_control_inputs()


def per_replica(strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]) -> Any:
    """Returns one value per replica, as an argument of `strategy.run`.

    The public function exists for TF 2 strategies only. 2.16 to 2.21.
    """
    return strategy.extended._experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def tpu_resolver(strategy: tf.distribute.Strategy) -> Any:
    """Returns a TPUStrategy's cluster resolver, which is not public in v1 (2.16 to 2.21)."""
    return strategy.extended._tpu_cluster_resolver


def is_initialized_tpu(resolver: Any) -> bool:
    """Returns whether any code in this process has initialized that TPU (2.16 to 2.21)."""
    return tpu_name(resolver) in map(str, _tpu_strategy_util.get_initialized_tpu_systems())


def note_initialized_tpu(resolver: Any, topology: bytes) -> None:
    """Registers with TensorFlow that the TPU is initialized.

    TensorFlow's own function does so, but it has no option for what a failed compilation does.
    2.16 to 2.21.

    Args:
      resolver: the TPU's cluster resolver.
      topology: the result of `tf.compat.v1.tpu.initialize_system`, a serialized TopologyProto.
    """
    resolver.set_tpu_topology(topology)
    systems = _tpu_strategy_util._INITIALIZED_TPU_SYSTEMS
    systems[resolver._tpu] = tf.tpu.experimental.Topology(serialized=topology)


def tpu_name(resolver: Any) -> str:
    """Returns TensorFlow's name of that TPU: its name, its address or "local" (2.16 to 2.21)."""
    return str(resolver._tpu)


@functools.cache
def compilable_ops() -> frozenset[str]:
    """Returns the types of ops that XLA can compile for this machine's CPU (2.16 to 2.21).

    It includes other op types for which a TPU kernel is registered.
    """
    # XLA registers its kernels when it first compiles something.
    without_gpus = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    with (
        tf.Graph().as_default() as graph,
        tf.compat.v1.Session(graph=graph, config=without_gpus) as session,
    ):
        session.run(tf.function(lambda: tf.zeros([]) + 1, jit_compile=True, autograph=False)())
    devices = ("XLA_CPU_JIT", "TPU", "TPU_SYSTEM")
    listed = _kernels.get_all_registered_kernels().kernel
    return frozenset(kernel.op for kernel in listed if kernel.device_type in devices)
