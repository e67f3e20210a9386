"""SyncReplicasOptimizer, whose queues and threads fit neither a loop nor one worker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from estimator._tf.distribute import copies
from estimator._tf.patches import patched


@contextlib.contextmanager
def sync_replicas_refused(message: str) -> Iterator[None]:
    """Inside, a SyncReplicasOptimizer raises: it has queues, and an op that waits for them.

    Neither can be in a loop's body, and it would fail there with a message that says nothing.
    Builds hold a lock. 2.16 to 2.21.
    """

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(message)

    owner = tf.compat.v1.train.SyncReplicasOptimizer
    with patched(owner, "apply_gradients", lambda original: refuse):
        yield


@contextlib.contextmanager
def sync_replicas_in_line() -> Iterator[None]:
    """Inside, the optimizer in a SyncReplicasOptimizer applies gradients as a part of the step.

    The other collects those of several workers, for a thread of the chief to apply. With one worker
    there is nothing to collect, and what a thread does is in no loop, in no order with a save, and
    in no resumed run. Its hook finds what it looks for. Builds hold a lock. 2.16 to 2.21.
    """
    owner = tf.compat.v1.train.SyncReplicasOptimizer
    with patched(owner, "apply_gradients", lambda original: _apply_in_line):
        yield


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
        # The hook puts tokens into it, for which no step waits.
        self._sync_token_queue = tf.queue.FIFOQueue(-1, global_step.dtype.base_dtype, shapes=())
    self._gradients_applied = True
    return train_op
