"""Input pipelines: each replica gets its own batch, the same batch, or a part of one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.tpu_config import InputPipelineConfig
from estimator.input.input_calls import Input, Taken, take_in_turn


def build_pipeline(
    build: Callable[[int, int], Input],
    kind: int,
    num_replicas: int,
    batch_axis: Sequence[int] | None = None,
) -> Input:
    """Builds an input pipeline, calling `input_fn` as often as this kind requires.

    Args:
      build: calls `input_fn`, given the index of the call and the number of calls.
      kind: a value of `InputPipelineConfig`.
      num_replicas: the number of replicas in sync.
      batch_axis: for SLICED: for each tensor of (features, labels), flattened, the dimension along
        which it is split; None means the first.

    Raises:
      ValueError: the calls yield batches of different structures, or a batch cannot be split.
    """
    if kind == InputPipelineConfig.PER_SHARD_V1:
        return _with_shards([build(index, num_replicas) for index in range(num_replicas)])
    source = build(0, 1)
    if kind == InputPipelineConfig.BROADCAST:
        return _with_split_batches(source, lambda batch, n: [batch] * n)
    if kind == InputPipelineConfig.SLICED:
        axes = make_axes(source.element, batch_axis)
        if num_replicas > 1:
            _check_cuts(source.element, axes, num_replicas)
        return _with_split_batches(source, lambda batch, n: _build_slices(batch, axes, n))
    return source


def num_batches_a_step(kind: int, num_replicas: int) -> int:
    """Returns how many batches of each `input_fn` call a worker's replicas take in a step."""
    takes_one_each = (InputPipelineConfig.PER_HOST_V1, InputPipelineConfig.PER_HOST_V2)
    return num_replicas if kind in takes_one_each else 1


def _with_split_batches(source: Input, split: Callable[[Any, int], list[Any]]) -> Input:
    """Returns an input that splits each batch among all replicas."""

    def build_batches(num_replicas: int) -> Taken:
        (batch,), has_more = source.build_batches(1)
        return split(batch, num_replicas), has_more

    return dataclasses.replace(source, build_batches=build_batches, is_split=True)


def make_axes(element: Any, batch_axis: Sequence[int] | None) -> list[int]:
    """Returns, for each tensor of `element`, flattened, the dimension that counts its examples.

    Args:
      element: (features, labels), or features and None, as type specs.
      batch_axis: a dimension for each tensor of features and labels; None means the first.
    """
    specs = tf.nest.flatten(element)
    num_tensors = sum(spec is not None for spec in specs)
    if batch_axis is None:
        return [0] * num_tensors
    if len(batch_axis) < num_tensors:
        raise ValueError(
            f"`batch_axis` ({batch_axis!r}) must name a dimension for each of the {num_tensors} "
            f"tensors that `input_fn` yields: {element}."
        )
    return list(batch_axis)[:num_tensors]


def make_sliced_element(element: Any, axes: Sequence[int]) -> Any:
    """Returns the type specs of a part of a batch: `element` with the split dimensions unknown."""
    left = iter(axes)

    def relax(spec: Any) -> Any:
        if spec is None:
            return None
        axis = next(left)
        is_dense = isinstance(spec, tf.TensorSpec)
        if not is_dense or (spec.shape.rank is not None and spec.shape.rank <= axis):
            raise ValueError(
                f"`input_fn` yields {spec}, and InputPipelineConfig.SLICED splits dense tensors "
                f"along dimension {axis}. Use PER_HOST_V1, or yield one that has it."
            )
        shape = spec.shape.as_list()
        shape[axis] = None
        return tf.TensorSpec(shape, spec.dtype)

    return tf.nest.map_structure(relax, element)


def cut(batch: Sequence[np.ndarray], axes: Sequence[int], num_parts: int) -> list[list[np.ndarray]]:
    """Splits a batch into nonempty parts, in order; the first ones may be larger by one.

    Args:
      batch: the tensors of the batch, in the order of `make_axes`.
      axes: for each tensor, the dimension that counts the examples.
      num_parts: the maximum number of parts.
    """
    columns = [
        np.array_split(value, num_parts, axis) for value, axis in zip(batch, axes, strict=True)
    ]
    parts = [list(part) for part in zip(*columns, strict=True)]
    return [part for part in parts if all(v.shape[a] for v, a in zip(part, axes, strict=True))]


def _with_shards(shards: Sequence[Input]) -> Input:
    first = shards[0]
    for shard in shards:
        if tf.nest.map_structure(_kind, shard.element) != tf.nest.map_structure(
            _kind, first.element
        ):
            raise ValueError(
                "`input_fn` must yield the same structure for each replica "
                f"(InputPipelineConfig.PER_SHARD_V1), but yields {first.element} for one and "
                f"{shard.element} for another."
            )
    initializers = [shard.initializer for shard in shards if shard.initializer is not None]
    return dataclasses.replace(
        first,
        build_batches=lambda n: _build_batches_of_shards(shards),
        initializer=tf.group(initializers) if initializers else None,
        iterators=tuple(iterator for shard in shards for iterator in shard.iterators),
        is_split=True,
    )


def _build_batches_of_shards(shards: Sequence[Input]) -> Taken:
    """Takes a batch of each shard; says whether every shard has another, if they look ahead."""
    builds = [functools.partial(shard.build_batches, 1) for shard in shards]
    if not shards[0].looks_ahead:
        return [batch for (batch,), _ in take_in_turn(builds)], None
    # The first run has no batches that anything could wait for.
    taken = [build() for build in builds]
    has_more = tf.reduce_all(tf.stack([more for _, more in taken]))
    return [batch for (batch,), _ in taken], has_more


def _kind(spec: Any) -> Any:
    return None if spec is None else (type(spec), spec.dtype)


def _check_cuts(element: Any, axes: Sequence[int], num_parts: int) -> None:
    specs = [spec for spec in tf.nest.flatten(element) if spec is not None]
    for spec, axis in zip(specs, axes, strict=True):
        dims = getattr(spec, "shape", tf.TensorShape(None))
        size = None if dims.rank is None or dims.rank <= axis else dims.as_list()[axis]
        if not isinstance(spec, tf.TensorSpec) or size is None or size % num_parts:
            raise ValueError(
                f"`input_fn` yields {spec}, which cannot be split into {num_parts} parts along "
                f"dimension {axis} (InputPipelineConfig.SLICED). Yield dense tensors whose size "
                "there is known and divisible: `batch(size, drop_remainder=True)`."
            )


def _build_slices(batch: Any, axes: Sequence[int], num_parts: int) -> list[Any]:
    left = iter(axes)
    columns = [
        [None] * num_parts if tensor is None else tf.split(tensor, num_parts, next(left))
        for tensor in tf.nest.flatten(batch)
    ]
    return [tf.nest.pack_sequence_as(batch, part) for part in zip(*columns, strict=True)]
