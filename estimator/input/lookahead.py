"""Datasets that say with each step's batches whether more follow.

Workers that train together must stop together, before a step for which one of them has no batches.
Asking each other before every step would make it longer. So each worker learns with its batches
whether there are more for the next step, and passes that on while the step runs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.input.packed_batches import pack_batch


def with_lookahead(dataset: tf.data.Dataset, num_replicas: int) -> tf.data.Dataset:
    """Returns a dataset of the batches of one step each, and whether another step's follow.

    The first element has no batches, only the flag. The last elements of `dataset` are dropped if
    they are too few for a step.

    Each group of batches is doubled, and the doubles are then batched in pairs, so that every group
    is next to its successor. `scan` would do this in one line, but starts its function on another
    thread: with a tiny model, workers spent a tenth of a step on that.

    Returns:
      Elements (group, has_more): a variant of shape [num_replicas], and a bool.
    """

    def wrap(*element: Any) -> tf.Tensor:
        flat = tf.nest.flatten(element, expand_composites=True)
        return tf.raw_ops.OptionalFromValue(components=[t for t in flat if t is not None])

    def tell_of_next(pair: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        last_of_next = pair[1, num_replicas - 1]
        return pair[0], tf.raw_ops.OptionalHasValue(optional=last_of_next)

    nothing = tf.data.Dataset.from_tensors(tf.raw_ops.OptionalNone()).repeat(num_replicas)
    # The group at the end holds at least one empty optional, and it is the last one.
    wrapped = _tf.map_in_line(dataset, wrap).concatenate(nothing)
    groups = wrapped.batch(num_replicas, drop_remainder=True)
    doubled = _tf.map_in_line(groups, lambda group: tf.stack([group, group])).unbatch()
    pairs = nothing.batch(num_replicas).concatenate(doubled).batch(2, drop_remainder=True)
    # Prefetching makes the lookahead run during the previous step.
    return _tf.map_in_line(pairs, tell_of_next).prefetch(1)


def build_unwrapped(group: tf.Tensor, element_spec: Any, num_replicas: int) -> list[Any]:
    """Unwraps the batches of one step, one for each replica.

    Args:
      group: the variant of a step, from `with_lookahead`.
      element_spec: that of the dataset without a lookahead.
      num_replicas: the number of batches.
    """
    specs = tf.nest.flatten(element_spec, expand_composites=True)
    batches = []
    for replica in range(num_replicas):
        flat = tf.raw_ops.OptionalGetValue(
            optional=tf.gather(group, replica),
            output_types=[spec.dtype for spec in specs],
            output_shapes=[spec.shape for spec in specs],
        )
        batches.append(pack_batch(element_spec, flat))
    return batches
