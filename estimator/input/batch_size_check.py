"""Compares the batches of an `input_fn` with the batch size that was asked of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import tensorflow as tf

from estimator.input.input_calls import Input, input_arguments

_log = logging.getLogger("estimator")

# By the ops of datasets that batch: which of their inputs is the size.
_SIZE_INPUTS = {
    "BatchDataset": 1,
    "BatchDatasetV2": 1,
    "ParallelBatchDataset": 1,
    "PaddedBatchDataset": 1,
    "PaddedBatchDatasetV2": 1,
    "MapAndBatchDataset": -3,
}
# Those that leave their elements as they are.
_KEEP_ELEMENTS = {
    "CacheDataset",
    "CacheDatasetV2",
    "OptionsDataset",
    "PrefetchDataset",
    "RepeatDataset",
    "ShuffleDataset",
    "ShuffleDatasetV3",
    "SkipDataset",
    "TakeDataset",
}


def check_batch_size(
    input_fn: Callable,
    source: Input,
    batch_size: int,
    meaning: str,
    batch_axis: Sequence[int] | None = None,
) -> None:
    """Raises if batches of `input_fn`, which takes `params`, are not of the size it was told.

    Their size is that of static shapes, or of the `batch` that a dataset ends with. Where neither
    tells it, batches are taken as they come. So they are as long as one of the tensors can be
    right, unless `batch_axis` says which dimensions count the examples. An `input_fn` that takes
    no `params` was told nothing: that is only logged.

    Args:
      input_fn: what yields the batches.
      source: what it built.
      batch_size: what `params["batch_size"]` says.
      meaning: what that is, such as "a replica's part of `train_batch_size` (128)".
      batch_axis: of each tensor of (features, labels), flattened, the dimension that counts the
        examples; the first if None.

    Raises:
      ValueError: they have another size.
    """
    sizes = _wrong_sizes(source, batch_size, batch_axis)
    if not sizes:
        return
    found = f"batches of {', '.join(map(str, sorted(sizes)))} examples"
    if "params" not in input_arguments(input_fn):
        _log.warning(
            "`input_fn` takes no `params` and yields %s, not of %d, %s. Take `params`, and batch "
            'by params["batch_size"].',
            found,
            batch_size,
            meaning,
        )
        return
    raise ValueError(
        f'`input_fn` yields {found}, but params["batch_size"] is {batch_size}, {meaning}. Batch by '
        'params["batch_size"]; if the examples are not along the first dimension, say so with '
        "`batch_axis`."
    )


def _wrong_sizes(source: Input, batch_size: int, batch_axis: Sequence[int] | None) -> set[int]:
    """Sizes that are not `batch_size`; none, if only guesses say so and others say it is right."""
    specs = [spec for spec in tf.nest.flatten(source.element) if spec is not None]
    batched = _size_of_last_batch_op(source.iterators)
    axes = list(batch_axis or ())[: len(specs)]
    axes += [0] * (len(specs) - len(axes))
    sizes, is_perhaps_right = set(), False
    for spec, axis in zip(specs, axes, strict=True):
        shape = getattr(spec, "shape", tf.TensorShape(None))
        dims = [] if shape.rank is None else shape.as_list()
        size = dims[axis] if axis < len(dims) else None
        if size is None and axis == 0:
            size = batched
        if size is None or size == batch_size or (batch_axis is None and batch_size in dims):
            is_perhaps_right = True
        else:
            sizes.add(size)
    return set() if is_perhaps_right and batch_axis is None else sizes


def _size_of_last_batch_op(iterators: Sequence[tf.compat.v1.data.Iterator]) -> int | None:
    """How a dataset batches its elements, if that is the last thing that changes them."""
    if not iterators:
        return None
    op = iterators[0].initializer.inputs[0].op
    while op.type in _KEEP_ELEMENTS:
        op = op.inputs[0].op
    if op.type not in _SIZE_INPUTS:
        return None
    size = tf.get_static_value(op.inputs[_SIZE_INPUTS[op.type]])
    return None if size is None else int(size)
