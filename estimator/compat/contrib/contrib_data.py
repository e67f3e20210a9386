"""`tf.contrib.data`: what became methods of a Dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def batch_and_drop_remainder(batch_size: Any) -> Callable[[Any], Any]:
    """Returns a function for `Dataset.apply` that makes full batches only."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Callable[[Any], Any]:
    """Returns a function for `Dataset.apply` that makes full, padded batches only."""
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )
