"""Puts the component tensors of a batch together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def pack_batch(structure: Any, components: Iterable[tf.Tensor | None]) -> Any:
    """Returns a batch that is made of its component tensors.

    Args:
      structure: the batch's type specs, or a batch like it.
      components: its tensors in order, those of sparse and ragged tensors one by one.

    Returns:
      The batch. What is known of a sparse tensor's shape is in its `dense_shape`, too, as in what a
      dataset's iterator yields: ops such as `tf.sparse.to_dense` read it there.
    """
    batch = tf.nest.pack_sequence_as(structure, list(components), expand_composites=True)
    return tf.nest.map_structure(_with_known_shape, batch)


def _with_known_shape(value: Any) -> Any:
    if not isinstance(value, tf.SparseTensor) or not value.shape.rank:
        return value
    sizes = value.shape.as_list()
    if all(size is None for size in sizes):
        return value
    given = tf.unstack(value.dense_shape, len(sizes))
    known = [
        taken if size is None else tf.constant(size, tf.int64)
        for taken, size in zip(given, sizes, strict=True)
    ]
    return tf.SparseTensor(value.indices, value.values, tf.stack(known))
