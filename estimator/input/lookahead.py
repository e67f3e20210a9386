"""Datasets that say with each step's batches whether more follow.

Workers that train together must stop together, before a step for which one of them has no batches.
Asking each other before every step would make it longer. So each worker learns with its batches
whether there are more for the next step, and passes that on while the step runs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator import _tf


class Lookahead:
    """A dataset of the batches of one step each, and whether another step's follow.

    The first element has no batches, only the flag.

    Each group of batches is doubled, and the doubles are then batched in pairs, so that every group
    is next to its successor. `scan` would do this in one line, but starts its function on another
    thread: with a tiny model, workers spent a tenth of a step on that.

    Attributes:
      dataset: elements (group, has_more): a variant of shape [number of replicas], and a bool.
    """

    def __init__(self, dataset: tf.data.Dataset, num_replicas: int) -> None:
        """Wraps a dataset; drops the last elements if they are too few for a step."""
        self._spec = dataset.element_spec
        self._num_replicas = num_replicas
        self._types: list[tf.DType] = []
        self._shapes: list[tf.TensorShape] = []
        nothing = tf.data.Dataset.from_tensors(tf.raw_ops.OptionalNone()).repeat(num_replicas)
        # The group at the end holds at least one empty optional, and it is the last one.
        wrapped = _tf.map_in_line(dataset, self._wrap).concatenate(nothing)
        groups = wrapped.batch(num_replicas, drop_remainder=True)
        doubled = _tf.map_in_line(groups, lambda group: tf.stack([group, group])).unbatch()
        pairs = nothing.batch(num_replicas).concatenate(doubled).batch(2, drop_remainder=True)
        # Prefetching makes the lookahead run during the previous step.
        self.dataset = _tf.map_in_line(pairs, self._tell_of_next).prefetch(1)

    def _wrap(self, *element: Any) -> tf.Tensor:
        flat = [t for t in tf.nest.flatten(element, expand_composites=True) if t is not None]
        self._types = [tensor.dtype for tensor in flat]
        self._shapes = [tensor.shape for tensor in flat]
        return tf.raw_ops.OptionalFromValue(components=flat)

    def _tell_of_next(self, pair: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        last_of_next = pair[1, self._num_replicas - 1]
        return pair[0], tf.raw_ops.OptionalHasValue(optional=last_of_next)

    def build_batches(self, group: tf.Tensor) -> list[Any]:
        """Unwraps the batches of one step, one for each replica."""
        batches = []
        for replica in range(self._num_replicas):
            flat = tf.raw_ops.OptionalGetValue(
                optional=tf.gather(group, replica),
                output_types=self._types,
                output_shapes=self._shapes,
            )
            batches.append(tf.nest.pack_sequence_as(self._spec, flat, expand_composites=True))
        return batches
