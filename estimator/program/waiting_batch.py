"""Keeps a batch from the step that takes it to the next one, which trains on it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.program.loop_output import LoopOutput, build_loop_output

# Strings and resources are on the host, and an int32 mostly is.
_COPIED_TYPES = (tf.float16, tf.bfloat16, tf.float32, tf.uint8, tf.int8)
_MIN_COPIED_BYTES = 2**18  # Copied in 40 us or so: as long as the ops take that copy in advance.


@dataclasses.dataclass(frozen=True)
class WaitingBatch:
    """The batch that one op takes in a step, and the next step reads.

    The batch waits in a resource on the host. As a loop variable it would be copied to the loop's
    device, which some types do not allow. A copy to a GPU starts after all that the GPU has been
    given to do, and is waited for by all that it is given later. So what is large is copied by the
    step that takes it, while the GPU is busy with this step, and waits on the GPU.

    Attributes:
      get: the op, in the graph around the loop, that takes a batch from an iterator.
      gpu: the device that large components are copied to, "" if TensorFlow chooses it; None if
        they all wait on the host.
    """

    get: tf.Operation
    gpu: str | None
    _optional: LoopOutput
    _on_gpu: Mapping[int, LoopOutput]

    @property
    def num_copied(self) -> int:
        """How many components are copied to the GPU."""
        return len(self._on_gpu)

    def build_taken(self) -> tf.Tensor:
        """Takes the next batch: an optional, without a value at the end of the input."""
        return tf.raw_ops.IteratorGetNextAsOptional(iterator=self.get.inputs[0], **self._types())

    def build_write(self, optional: tf.Tensor) -> tf.Operation:
        """Replaces the batch, except what is copied to the GPU."""
        return self._optional.build_write(optional)

    def build_values(self, optional: tf.Tensor, has_value: tf.Tensor) -> list[tf.Tensor]:
        """Returns the components to copy to the GPU; empty tensors if there is no batch."""
        if not self._on_gpu:
            return []
        return _tf.cond(
            has_value,
            lambda: self.to_copy(tf.raw_ops.OptionalGetValue(optional=optional, **self._types())),
            self.build_no_values,
            name="values_to_copy",
        )

    def to_copy(self, components: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns those of a batch's components that are copied to the GPU."""
        return [components[index] for index in self._on_gpu]

    def build_no_values(self) -> list[tf.Tensor]:
        """Returns what stands for the components to copy if there is no batch."""
        return [tf.zeros([0], place.dtype) for place in self._on_gpu.values()]

    def build_copies(self, values: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """Copies components to the GPU, where they replace those of the batch."""
        with tf.device(self.gpu or None):
            pairs = zip(self._on_gpu.values(), values, strict=True)
            return [place.build_write(tf.identity(value)) for place, value in pairs]

    def build_read(self, name: str) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Reads the batch.

        Args:
          name: the name of the op that gives the components on the host.

        Returns:
          Its components, and those of them that are on the GPU.
        """
        on_gpu: dict[int, tf.Tensor] = {}
        for index, place in self._on_gpu.items():
            with tf.device(self.gpu or None):
                on_gpu[index] = place.build_read()
        components = tf.raw_ops.OptionalGetValue(
            optional=self._optional.build_read(), **self._types(), name=name
        )
        components = [on_gpu.get(i, tensor) for i, tensor in enumerate(components)]
        for taken, component in zip(self.get.outputs, components, strict=True):
            component.set_shape(taken.shape)  # The program may have set it.
        return components, [*on_gpu.values()]

    def _types(self) -> dict[str, Any]:
        return {name: self.get.get_attr(name) for name in ("output_types", "output_shapes")}


def build_waiting_batch(get: tf.Operation, gpu: str | None) -> WaitingBatch:
    """Builds where the batches of `get` wait; `gpu` is as for `WaitingBatch`.

    A component from which the input computes something is not copied: that is done on the host.
    """
    optional = build_loop_output(tf.variant, "batch", tf.raw_ops.OptionalNone())
    on_gpu: dict[int, LoopOutput] = {}
    if gpu is not None:
        for index, tensor in enumerate(get.outputs):
            if _is_large(tensor) and not tensor.consumers():
                on_gpu[index] = build_loop_output(tensor.dtype, "batch_on_gpu", device=gpu or None)
    return WaitingBatch(get, gpu, optional, on_gpu)


def _is_large(tensor: tf.Tensor) -> bool:
    if tensor.dtype not in _COPIED_TYPES or tensor.shape.rank is None:
        return False
    sizes = [size or 1 for size in tensor.shape.as_list()]  # At least one of what is unknown.
    return math.prod(sizes) * tensor.dtype.size >= _MIN_COPIED_BYTES
