"""Replaces SyncReplicasOptimizer's queues and threads, or refuses it where it cannot work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from estimator._tf.distribute import copies
from estimator._tf.patches import Patch, patched


def sync_replicas_refused(message: str) -> Patch:
    """Inside, a SyncReplicasOptimizer raises ValueError with this message.

    It makes queues, and ops that wait for them. In a loop's body that fails with an unhelpful
    message. Builds hold a lock. 2.16 to 2.21.
    """

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(message)

    owner = tf.compat.v1.train.SyncReplicasOptimizer
    return patched(owner, "apply_gradients", lambda original: refuse)


def sync_replicas_in_line() -> Patch:
    """Inside, a SyncReplicasOptimizer applies gradients with its inner optimizer within the step.

    By default it collects the gradients of several workers, and a thread of the chief applies them.
    With one worker there is nothing to collect, and a thread's updates would be outside of loops
    and in no fixed order with saves. The attributes that its hook needs are set. Builds hold a
    lock. 2.16 to 2.21.
    """
    owner = tf.compat.v1.train.SyncReplicasOptimizer
    return patched(owner, "apply_gradients", lambda original: _apply_in_line)


def _apply_in_line(
    self: tf.compat.v1.train.SyncReplicasOptimizer,
    grads_and_vars: Iterable[tuple[Any, tf.Variable]],
    global_step: tf.Variable | None = None,
    name: str | None = None,
) -> tf.Operation:
    if self._replicas_to_aggregate not in (1, tf.distribute.get_strategy().num_replicas_in_sync):
        raise ValueError(
            f"`replicas_to_aggregate` ({self._replicas_to_aggregate}) of SyncReplicasOptimizer "
            "must be 1 on one worker, or the number of its replicas. Pass 1."
        )
    if global_step is None:
        raise ValueError(
            "`global_step` of SyncReplicasOptimizer.apply_gradients must not be None. Pass "
            "tf.compat.v1.train.get_global_step()."
        )
    train_op = self._opt.apply_gradients(grads_and_vars, global_step, name)
    if self._variable_averages is not None:
        with tf.control_dependencies([train_op]):
            train_op = self._variable_averages.apply(self._variables_to_average)
    with tf.init_scope():
        self.local_step_init_op = self.chief_init_op = tf.no_op()
        self.ready_for_local_init_op = tf.constant([], tf.string)
        self._global_step = copies(global_step)[0]
        # The hook enqueues tokens, but no step waits for them.
        self._sync_token_queue = tf.queue.FIFOQueue(-1, global_step.dtype.base_dtype, shapes=())
    self._gradients_applied = True
    return train_op
