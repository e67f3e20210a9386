"""`tf.contrib.data`: what became tf.data.experimental, and what became methods of a Dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_experimental = tf.compat.v1.data.experimental

# Those that are in this TensorFlow, of tf.data.experimental.
_NAMES = """
AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset Optional RandomDataset SqlDataset
bucket_by_sequence_length choose_from_datasets copy_to_device dense_to_sparse_batch
enumerate_dataset get_single_element group_by_reducer group_by_window ignore_errors
make_batched_features_dataset make_csv_dataset make_saveable_from_iterator map_and_batch
parallel_interleave parse_example_dataset prefetch_to_device sample_from_datasets scan
shuffle_and_repeat unbatch unique
"""
globals().update(
    {name: getattr(_experimental, name) for name in _NAMES.split() if hasattr(_experimental, name)}
)


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


__all__ = [
    "batch_and_drop_remainder",
    "padded_batch_and_drop_remainder",
    *(name for name in _NAMES.split() if name in globals()),
]
