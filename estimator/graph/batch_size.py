"""Compares the batches of an `input_fn` with the batch size that was asked of it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_log = logging.getLogger("estimator")


def check_batch_size(
    input_fn: Callable,
    element: tuple[Any, Any],
    batch_size: int,
    argument: str,
    batch_axis: Sequence[int] | None = None,
) -> None:
    """Raises if batches of `input_fn`, which takes `params`, never have the size it was told.

    Sizes that the shapes do not tell are taken as they come, since the last batch may be smaller.
    Nor is anything raised as long as some tensor can be right: without `batch_axis` nobody knows
    which dimension counts the examples. An `input_fn` that takes no `params` was told nothing: that
    is only logged.

    Args:
      input_fn: what yields the batches.
      element: (features, labels) as type specs.
      batch_size: what `params["batch_size"]` says.
      argument: what it was computed from, such as "`train_batch_size` (128)".
      batch_axis: of each tensor of (features, labels), flattened, the dimension that counts the
        examples; the first if None.

    Raises:
      ValueError: no tensor has as many examples.
    """
    sizes = _wrong_sizes(element, batch_size, batch_axis)
    if not sizes:
        return
    found = f"batches of {', '.join(map(str, sorted(sizes)))} examples"
    if "params" not in inspect.signature(input_fn).parameters:
        _log.warning(
            "`input_fn` takes no `params` and yields %s; %s asks for %d a replica. Take `params`, "
            'and batch by params["batch_size"].',
            found,
            argument,
            batch_size,
        )
        return
    raise ValueError(
        f'`input_fn` yields {found}, but params["batch_size"] is {batch_size}: {argument}, divided '
        'by the number of replicas, each of which takes a batch. Batch by params["batch_size"]; if '
        "the examples are not along the first dimension, say so with `batch_axis`."
    )


def _wrong_sizes(
    element: tuple[Any, Any], batch_size: int, batch_axis: Sequence[int] | None
) -> set[int]:
    """The sizes of the batches, if none of the tensors can have `batch_size` examples."""
    specs = [spec for spec in tf.nest.flatten(element) if spec is not None]
    axes = list(batch_axis or ())[: len(specs)]
    axes += [0] * (len(specs) - len(axes))
    sizes = set()
    for spec, axis in zip(specs, axes, strict=True):
        shape = getattr(spec, "shape", tf.TensorShape(None))
        dims = [] if shape.rank is None else shape.as_list()
        size = dims[axis] if axis < len(dims) else None
        if size is None or size == batch_size or (batch_axis is None and batch_size in dims):
            return set()
        sizes.add(size)
    return sizes
