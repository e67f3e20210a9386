"""Reductions by collective ops, made fit for a session: any gradients, read by any replica."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops as _cross_device_ops
from tensorflow.python.distribute import cross_device_utils as _cross_device
from tensorflow.python.distribute import values as _values
from tensorflow.python.ops import collective_ops as _collective_ops

from estimator._tf.patches import Patch, patched, together

_NUM_SIZES = 31  # The powers of two that an int32 holds.


def collectives_in_sessions() -> Patch:
    """Inside, a graph can reduce by collectives what replicas on other devices or workers have.

    Several workers reduce so, and a MirroredStrategy that has several GPUs or was made eagerly. In
    a v1 graph TensorFlow leaves the following out.

    - IndexedSlices may have other numbers of rows in each step. A process notes the shape of a
      collective by its instance key, which is a constant in a v1 graph, so that the next step ended
      with "Shape mismatch in the collective instance". Here each power of two has a key, and rows
      are padded to the next one.
    - Gradients may have several dtypes. TensorFlow concatenates all of them.
    - One replica's result may be all that is read, as where an optimizer assigns to each copy of a
      variable what the first replica computes. A session does not run what nothing reads, and the
      first replica's collective would wait for the others for ever.

    `all_reduce_indexed_slices` and `_all_gather` of CollectiveReplicaLauncher,
    `_all_reduce_per_replica_values` and `_batch_all_gather` of CollectiveAllReduce, 2.16 to 2.21.
    """
    launcher = _cross_device.CollectiveReplicaLauncher
    reduction = _cross_device_ops.CollectiveAllReduce
    return together(
        [
            patched(launcher, "all_reduce_indexed_slices", _of_any_length),
            patched(reduction, "_all_reduce_per_replica_values", _of_any_dtypes),
            patched(reduction, "_batch_all_gather", _of_all_replicas),
        ]
    )


def _of_any_length(original: Callable) -> Callable:
    def all_reduce_indexed_slices(
        self: Any, input_slices: tf.IndexedSlices, options: Any = None
    ) -> tf.IndexedSlices:
        if self._use_unique_instance_key():  # In a tf.function, each call has its own keys.
            return original(self, input_slices, options)
        return _gathered(self, input_slices, self._options.merge(options))

    return all_reduce_indexed_slices


def _of_any_dtypes(original: Callable) -> Callable:
    def all_reduce(
        self: Any, reduce_op: tf.distribute.ReduceOp, values: Sequence[Any], options: Any
    ) -> list:
        if tf.executing_eagerly():
            return original(self, reduce_op, values, options)
        dtypes = [value.values[0].dtype for value in values]
        results: dict[int, Any] = {}
        for dtype in dict.fromkeys(dtypes):
            places = [place for place, other in enumerate(dtypes) if other == dtype]
            with tf.control_dependencies(_tensors(results.values())):  # One order on all members.
                reduced = original(self, reduce_op, [values[place] for place in places], options)
            results.update(zip(places, reduced, strict=True))
        return _run_together([results[place] for place in range(len(values))], self._devices)

    return all_reduce


def _of_all_replicas(original: Callable) -> Callable:
    def all_gather(self: Any, values: Sequence[Any], axis: int, options: Any) -> list:
        return _run_together(original(self, values, axis, options), self._devices)

    return all_gather


def _run_together(results: Sequence[Any], devices: Sequence[str]) -> list:
    """Returns results that are there only once those of all devices are."""
    if tf.executing_eagerly() or len(devices) == 1:
        return list(results)
    with tf.control_dependencies([tf.group(_tensors(results))]):
        return [_values.Mirrored(_copies(result.values, devices)) for result in results]


def _tensors(results: Iterable[Any]) -> list[tf.Tensor]:
    """Returns all tensors of results, each of which has values on one device or several."""
    return tf.nest.flatten([list(result.values) for result in results], expand_composites=True)


def _copies(values: Sequence[Any], devices: Sequence[str]) -> list:
    copies = []
    for value, device in zip(values, devices, strict=True):
        with tf.device(device):
            copies.append(tf.nest.map_structure(tf.identity, value, expand_composites=True))
    return copies


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
