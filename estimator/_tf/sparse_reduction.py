"""Sums IndexedSlices over workers, whatever the number of their rows in each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils as _cross_device
from tensorflow.python.ops import collective_ops as _collective_ops

from estimator._tf.patches import Patch, patched

_NUM_SIZES = 31  # The powers of two that an int32 holds.


def sparse_sums_of_any_length() -> Patch:
    """Inside, workers can reduce IndexedSlices whose numbers of rows change from step to step.

    A worker's runtime notes the shape of a collective by its instance key. In a v1 graph
    TensorFlow's keys are constants, so that the step after one with another number of rows ends
    with "Shape mismatch in the collective instance". Here each power of two has a key, and rows are
    padded to the next one.
    `all_reduce_indexed_slices` and `_all_gather` of CollectiveReplicaLauncher, 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        def all_reduce_indexed_slices(
            self: Any, input_slices: tf.IndexedSlices, options: Any = None
        ) -> tf.IndexedSlices:
            if self._use_unique_instance_key():  # In a tf.function, each call has its own keys.
                return original(self, input_slices, options)
            return _gathered(self, input_slices, self._options.merge(options))

        return all_reduce_indexed_slices

    launcher = _cross_device.CollectiveReplicaLauncher
    return patched(launcher, "all_reduce_indexed_slices", make)


def _gathered(launcher: Any, slices: tf.IndexedSlices, options: Any) -> tf.IndexedSlices:
    """Returns the rows of all members of the group, without padding."""
    with tf.device(launcher._device):
        lengths = launcher._all_gather(tf.shape(slices.indices), options)
        sizes = 2 ** tf.range(_NUM_SIZES)
        exponent = tf.reduce_sum(tf.cast(sizes < tf.reduce_max(lengths), tf.int32))
        size = sizes[exponent]
        is_row = tf.reshape(tf.sequence_mask(lengths, size), [-1])

        def gather(rows: tf.Tensor) -> tf.Tensor:
            padding = [[0, size - tf.shape(rows)[0]], *([[0, 0]] * (rows.shape.rank - 1))]
            gathered = _collective_ops.all_gather_v2(
                tf.pad(rows, padding),
                launcher._group_size,
                launcher._group_key,
                _reserved_keys(launcher) + exponent,
                communication_hint=options.implementation.value,
                timeout=options.timeout_seconds,
            )
            return tf.boolean_mask(gathered, is_row)

        values = gather(slices.values)
        with tf.control_dependencies([values]):  # NCCL needs one order on all members.
            indices = gather(slices.indices)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _reserved_keys(launcher: Any) -> int:
    """Returns the first of as many new instance keys as there are sizes."""
    first, *_ = (
        launcher._collective_keys.get_instance_key(launcher._group_key, launcher._device)
        for _ in range(_NUM_SIZES)
    )
    return first
