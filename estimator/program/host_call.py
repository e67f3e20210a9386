"""Builds `host_call`: a function of a step's tensors that runs on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf

HostCall = tuple[Callable, Any]


def build_host_call(
    host_calls: Sequence[HostCall | None], is_due: tf.Tensor | None = None
) -> list[Any]:
    """Calls the model's host function once, on the tensors of all replicas.

    Args:
      host_calls: each replica's (function, tensors), where tensors is a list or a dict of tensors
        whose first dimension is the batch's; they are concatenated over the replicas.
      is_due: scalar, bool: whether to call it in this step; None means always.

    Returns:
      The ops that the function returned, which the step must run.
    """
    if host_calls[0] is None:
        return []
    if is_due is None:
        return _build_call(host_calls)

    def call() -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        # The function may return all summaries of the graph, including those of the step.
        ops = [op for op in _build_call(host_calls) if op.graph is graph]
        with tf.control_dependencies(ops):
            return tf.constant(True)

    return [_tf.cond(is_due, call, lambda: tf.constant(False), name="host_call_if_due").op]


def _build_call(host_calls: Sequence[HostCall | None]) -> list[Any]:
    assert host_calls[0] is not None
    host_fn, first = host_calls[0]
    tensors = [call[1] for call in host_calls if call is not None]
    with tf.device("/cpu:0"):
        if isinstance(first, Mapping):
            result = host_fn(**{key: _concat([t[key] for t in tensors]) for key in first})
        else:
            result = host_fn(*[_concat(list(parts)) for parts in zip(*tensors, strict=True)])
    return [op for op in tf.nest.flatten(result) if op is not None]


def _concat(tensors: list[tf.Tensor]) -> tf.Tensor:
    if len(tensors) == 1:
        return tensors[0]
    if tensors[0].shape.rank == 0:
        raise ValueError(
            f"`host_call` has the scalar {tensors[0]!r}, but those of several replicas "
            f"({len(tensors)}) are joined along their first dimension. Give it one with "
            "tf.reshape(tensor, [1])."
        )
    return tf.concat(tensors, axis=0)
