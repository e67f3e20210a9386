"""Batches that tell whether more follow.

Workers that train together must stop together: before a step that one of them has no batches for.
Asking each other ahead of every step would make it longer. So each takes its batches along with the
news whether there are any for the step after, and passes that on while the step runs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Lookahead:
    """A dataset whose elements are those of one step, and whether another step's follow.

    Its first element has no batches, only the news.

    Attributes:
      dataset: of (group, has_more): scalars, variant and bool.
    """

    def __init__(self, dataset: tf.data.Dataset, num_replicas: int) -> None:
        """Wraps a dataset; the last elements that are too few for a step are left out."""
        self._spec = dataset.element_spec
        self._num_replicas = num_replicas
        self._types: list[tf.DType] = []
        self._shapes: list[tf.TensorShape] = []
        groups = dataset.map(self._wrap).batch(num_replicas, drop_remainder=True).map(_wrap_group)
        nothing = tf.raw_ops.OptionalNone()
        ended = groups.concatenate(tf.data.Dataset.from_tensors(nothing))
        # Looking ahead is done while the step before runs.
        self.dataset = ended.scan(nothing, _tell_of_next).prefetch(1)

    def _wrap(self, *element: Any) -> tf.Tensor:
        flat = [t for t in tf.nest.flatten(element, expand_composites=True) if t is not None]
        self._types = [tensor.dtype for tensor in flat]
        self._shapes = [tensor.shape for tensor in flat]
        return tf.raw_ops.OptionalFromValue(components=flat)

    def build_batches(self, group: tf.Tensor) -> list[Any]:
        """Unwraps the elements of one step, one a replica."""
        (optionals,) = tf.raw_ops.OptionalGetValue(
            optional=group, output_types=[tf.variant], output_shapes=[[self._num_replicas]]
        )
        batches = []
        for replica in range(self._num_replicas):
            flat = tf.raw_ops.OptionalGetValue(
                optional=tf.gather(optionals, replica),
                output_types=self._types,
                output_shapes=self._shapes,
            )
            batches.append(tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True))
        return batches


def _wrap_group(optionals: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.OptionalFromValue(components=[optionals])


def _tell_of_next(before: tf.Tensor, group: tf.Tensor) -> tuple[tf.Tensor, Any]:
    return group, (before, tf.raw_ops.OptionalHasValue(optional=group))
