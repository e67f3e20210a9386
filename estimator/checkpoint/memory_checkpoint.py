"""Copies the contents of a checkpoint from one session to another without a file.

A saver's graph ends in SaveV2 ops, which take the tensors to write, and begins with RestoreV2 ops,
which return the tensors read. Fetching the inputs of the former and feeding the outputs of the
latter amounts to a checkpoint in memory: aggregation over replicas, copying to them and renaming by
a Scaffold's saver all apply.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import tensorflow as tf

from estimator.checkpoint.saver_ops import Key, keys_of, last_restore_op, save_ops
from estimator.rewrite.graph_walk import ops_of_type

State: TypeAlias = dict[Key, np.ndarray]


def read_state(saver: tf.compat.v1.train.Saver, session: tf.compat.v1.Session) -> State:
    """Returns what `saver` would write now."""
    tensors = {
        key: tensor
        for op in save_ops(session.graph, saver)
        for key, tensor in zip(keys_of(op), op.inputs[3:], strict=True)
    }
    return session.run(tensors)


def load_state(
    saver: tf.compat.v1.train.Saver, session: tf.compat.v1.Session, state: State
) -> None:
    """Sets everything that `saver` restores to its value in `state`.

    Raises:
      ValueError: `state` lacks some of the values.
    """
    last = last_restore_op(session.graph, saver)
    tensors = {
        tensor: key
        for op in ops_of_type(last, "RestoreV2")
        for key, tensor in zip(keys_of(op), op.outputs, strict=True)
    }
    missing = sorted({name.decode() for name, _ in set(tensors.values()) - set(state)})
    if missing:
        raise ValueError(
            f"The graph has variables that the training lacks: {', '.join(missing)}. Make the same "
            "variables in every mode of `model_fn`."
        )
    session.run(last, {tensor: state[key] for tensor, key in tensors.items()})
