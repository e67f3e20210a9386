"""Makes TensorFlow's collectives work in a session, whatever is reduced and whoever reads it."""

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

    - IndexedSlices, and what is gathered, may have other numbers of rows in each step. A process
      notes the shape of a collective by its instance key, which is a constant in a v1 graph, so
      that the next step ended with "Shape mismatch in the collective instance". Here each power of
      two has a key, and rows are padded to the next one.
    - Gradients may have several dtypes. TensorFlow concatenates all of them.
    - One replica's result may be all that is read, as where an optimizer assigns to each copy of a
      variable what the first replica computes. A session does not run what nothing reads, and the
      first replica's collective would wait for the others for ever.

    `all_reduce_indexed_slices`, `all_gather`, `_all_gather` and `_use_unique_instance_key` of
    CollectiveReplicaLauncher, `_launchers`, `_all_reduce_per_replica_values` and
    `_batch_all_gather` of CollectiveAllReduce, 2.16 to 2.21.
    """
    launcher = _cross_device.CollectiveReplicaLauncher
    reduction = _cross_device_ops.CollectiveAllReduce
    return together(
        [
            patched(launcher, "all_reduce_indexed_slices", _of_any_length),
            patched(launcher, "all_gather", _of_any_shape),
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
        options = self._options.merge(options)
        with tf.device(self._device):
            lengths = self._all_gather(tf.shape(input_slices.indices), options)
            values = _gather(self, input_slices.values, lengths, options)
            with tf.control_dependencies([values]):  # NCCL needs one order on all members.
                indices = _gather(self, input_slices.indices, lengths, options)
        return tf.IndexedSlices(values, indices, input_slices.dense_shape)

    return all_reduce_indexed_slices


def _of_any_shape(original: Callable) -> Callable:
    def all_gather(self: Any, input_tensor: tf.Tensor, axis: Any, options: Any = None) -> tf.Tensor:
        if self._use_unique_instance_key():
            return original(self, input_tensor, axis, options)
        options = self._options.merge(options)
        with tf.device(self._device):
            shapes = self._all_gather(tf.shape(input_tensor)[tf.newaxis], options)
            lengths = tf.reduce_prod(shapes, axis=1)
            with tf.control_dependencies([shapes]):
                flat = _gather(self, tf.reshape(input_tensor, [-1]), lengths, options)
            parts = tf.split(flat, lengths, num=self._group_size)
            shapes = tf.unstack(shapes, self._group_size)
            result = tf.concat(list(map(tf.reshape, parts, shapes)), axis)
        result.set_shape(_shape_of_any_length(input_tensor, tf.get_static_value(axis)))
        return result

    return all_gather


def _shape_of_any_length(tensor: tf.Tensor, axis: int | None) -> tf.TensorShape:
    """Returns what is known of a tensor's shape, but for its length along an axis."""
    if axis is None or tensor.shape.rank is None:
        return tf.TensorShape(None)
    sizes = tensor.shape.as_list()
    sizes[axis] = None
    return tf.TensorShape(sizes)


def _of_any_dtypes(original: Callable) -> Callable:
    def all_reduce(
        self: Any, reduce_op: tf.distribute.ReduceOp, values: Sequence[Any], options: Any
    ) -> list:
        if self._launchers[0]._use_unique_instance_key():
            return original(self, reduce_op, values, options)
        # IndexedSlices are reduced one by one.
        kinds = [None if _cross_device.is_indexed_slices(v) else _parts(v)[0].dtype for v in values]
        results: dict[int, Any] = {}
        for kind in dict.fromkeys(kinds):
            places = [place for place, other in enumerate(kinds) if other == kind]
            with tf.control_dependencies(_tensors(results.values())):  # One order on all members.
                reduced = original(self, reduce_op, [values[place] for place in places], options)
            results.update(zip(places, reduced, strict=True))
        return _run_together([results[place] for place in range(len(values))], self._devices)

    return all_reduce


def _of_all_replicas(original: Callable) -> Callable:
    def all_gather(self: Any, values: Sequence[Any], axis: int, options: Any) -> list:
        results = original(self, values, axis, options)
        if self._launchers[0]._use_unique_instance_key():
            return results
        return _run_together(results, self._devices)

    return all_gather


def _run_together(results: Sequence[Any], devices: Sequence[str]) -> list:
    """Returns results that are there only once those of all devices are."""
    if len(devices) == 1:
        return list(results)
    with tf.control_dependencies([tf.group(_tensors(results))]):
        return [_values.Mirrored(_copies(_parts(result), devices)) for result in results]


def _parts(result: Any) -> Sequence[Any]:
    """Returns the values of all devices; with one device TensorFlow returns the value itself."""
    return result.values if isinstance(result, tf.distribute.DistributedValues) else [result]


def _tensors(results: Iterable[Any]) -> list[tf.Tensor]:
    """Returns all tensors of results."""
    return tf.nest.flatten([list(_parts(result)) for result in results], expand_composites=True)


def _copies(values: Sequence[Any], devices: Sequence[str]) -> list:
    copies = []
    for value, device in zip(values, devices, strict=True):
        with tf.device(device):
            copies.append(tf.nest.map_structure(tf.identity, value, expand_composites=True))
    return copies


def _gather(launcher: Any, rows: tf.Tensor, lengths: tf.Tensor, options: Any) -> tf.Tensor:
    """Returns the rows of all members of the group, one after the other.

    Args:
      launcher: the CollectiveReplicaLauncher of a member.
      rows: its rows.
      lengths: how many each member has.
      options: how they communicate.
    """
    sizes = 2 ** tf.range(_NUM_SIZES)
    exponent = tf.reduce_sum(tf.cast(sizes < tf.reduce_max(lengths), tf.int32))
    size = sizes[exponent]
    missing = [[0, size - tf.shape(rows)[0]]]
    if rows.shape.rank is None:
        padding = tf.concat([missing, tf.zeros([tf.rank(rows) - 1, 2], tf.int32)], axis=0)
    else:
        padding = [*missing, *([[0, 0]] * (rows.shape.rank - 1))]
    gathered = _collective_ops.all_gather_v2(
        tf.pad(rows, padding),
        launcher._group_size,
        launcher._group_key,
        _reserved_keys(launcher) + exponent,
        communication_hint=options.implementation.value,
        timeout=options.timeout_seconds,
    )
    return tf.boolean_mask(gathered, tf.reshape(tf.sequence_mask(lengths, size), [-1]))


def _reserved_keys(launcher: Any) -> int:
    """Returns the first of as many new instance keys as there are sizes."""
    first, *_ = (
        launcher._collective_keys.get_instance_key(launcher._group_key, launcher._device)
        for _ in range(_NUM_SIZES)
    )
    return first
