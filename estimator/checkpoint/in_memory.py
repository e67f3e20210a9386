"""What a checkpoint would hold, taken from one session into another without a file.

A saver's graph ends in SaveV2 ops, which name the tensors that they write, and begins in RestoreV2
ops, which name those that they read. Fetching the inputs of the ones and feeding the outputs of the
others is a checkpoint in memory: what is aggregated over replicas, copied to them or renamed by the
saver of a Scaffold is so here too.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import tensorflow as tf

# (name in the checkpoint, the part of a partitioned variable or b"") to value.
State: TypeAlias = dict[tuple[bytes, bytes], np.ndarray]


def read_state(saver: tf.compat.v1.train.Saver, session: tf.compat.v1.Session) -> State:
    """What `saver` would write now."""
    last = session.graph.get_tensor_by_name(saver.as_saver_def().save_tensor_name).op
    tensors = {
        key: tensor
        for op in _ops_behind(last, "SaveV2")
        for key, tensor in zip(_keys(op), op.inputs[3:], strict=True)
    }
    return dict(zip(tensors, session.run(list(tensors.values())), strict=True))


def load_state(
    saver: tf.compat.v1.train.Saver, session: tf.compat.v1.Session, state: State
) -> None:
    """Sets everything that `saver` restores to its value in `state`.

    Raises:
      ValueError: `state` lacks something of it.
    """
    last = session.graph.get_operation_by_name(saver.as_saver_def().restore_op_name)
    tensors = {
        tensor: key
        for op in _ops_behind(last, "RestoreV2")
        for key, tensor in zip(_keys(op), op.outputs, strict=True)
    }
    missing = sorted(
        {name.decode() for name, part in tensors.values() if (name, part) not in state}
    )
    if missing:
        raise ValueError(
            f"The graph has variables that the training lacks: {', '.join(missing)}. Make the same "
            "variables in every mode of `model_fn`."
        )
    session.run(last, {tensor: state[key] for tensor, key in tensors.items()})


def _keys(op: tf.Operation) -> list[tuple[bytes, bytes]]:
    names, parts = (tf.get_static_value(op.inputs[i]) for i in (1, 2))
    return list(zip(names.tolist(), parts.tolist(), strict=True))


def _ops_behind(last: tf.Operation, kind: str) -> list[tf.Operation]:
    """The ops of a kind that `last` waits for."""
    found, seen, stack = [], {last}, [last]
    while stack:
        op = stack.pop()
        if op.type == kind:
            found.append(op)
            continue
        before = {tensor.op for tensor in op.inputs} | set(op.control_inputs)
        stack.extend(before - seen)
        seen |= before
    return found
