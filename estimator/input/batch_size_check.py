"""Checks the batches of an `input_fn` against the batch size that it was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from estimator.console import log
from estimator.input.input_calls import UserInput, input_arguments

# For each dataset op that batches: the index of its batch size input.
_SIZE_INPUTS = {
    "BatchDatasetV2": 1,
    "ParallelBatchDataset": 1,
    "PaddedBatchDatasetV2": 1,
    "MapAndBatchDataset": -3,
}
# Dataset ops that do not change their elements.
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
    source: UserInput,
    batch_size: int,
    meaning: str,
    batch_axis: Sequence[int] | None = None,
    *,
    matters: bool = True,
) -> None:
    """Raises an error if an `input_fn` with `params` yields batches of another size than told.

    The size is taken from static shapes, or from the final `batch` of a dataset. Where neither
    determines it, batches are accepted, as they are if any tensor could have the right size, unless
    `batch_axis` says which dimensions count the examples. For an `input_fn` that takes no `params`,
    which was not told a size, the mismatch is only logged, as it is if no result depends on it.

    Args:
      input_fn: the function that yields the batches.
      source: what it returned.
      batch_size: the value of `params["batch_size"]`.
      meaning: what that value is, for messages, such as "a replica's part of `train_batch_size`
        (128)".
      batch_axis: for each tensor of (features, labels), flattened, the dimension that counts the
        examples; the first if None.
      matters: whether the result depends on the size of the batches.

    Raises:
      ValueError: the batches have another size.
    """
    sizes = _wrong_sizes(source, batch_size, batch_axis)
    if not sizes:
        return
    found = f"batches of {', '.join(map(str, sorted(sizes)))} examples"
    takes_params = "params" in input_arguments(input_fn)
    if not (takes_params and matters):
        log.warning(
            '`input_fn` %s %s, not of %d, %s. %s by params["batch_size"].',
            "yields" if takes_params else "takes no `params` and yields",
            found,
            batch_size,
            meaning,
            "Batch" if takes_params else "Take `params`, and batch",
        )
        return
    raise ValueError(
        f'`input_fn` yields {found}, but params["batch_size"] is {batch_size}, {meaning}. Batch by '
        'params["batch_size"]; if the examples are not along the first dimension, say so with '
        "`batch_axis`."
    )


def _wrong_sizes(source: UserInput, batch_size: int, batch_axis: Sequence[int] | None) -> set[int]:
    """Returns the wrong sizes; none if they are only guesses and another guess is right."""
    specs = [spec for spec in tf.nest.flatten(source.element) if spec is not None]
    batched = None if source.dataset is None else _size_of_last_batch_op(source.dataset)
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


def _size_of_last_batch_op(dataset: tf.data.Dataset) -> int | None:
    """Returns a dataset's batch size if nothing changes the elements after it is batched."""
    op = tf.data.experimental.to_variant(dataset).op
    while op.type in _KEEP_ELEMENTS:
        op = op.inputs[0].op
    if op.type not in _SIZE_INPUTS:
        return None
    size = tf.get_static_value(op.inputs[_SIZE_INPUTS[op.type]])
    return None if size is None else int(size)
