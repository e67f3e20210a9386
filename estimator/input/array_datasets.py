"""Keeps arrays that `input_fn` passes to a dataset out of the graph."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf

# Arrays of at least this size stay out of a training graph; a smaller one costs it little.
LARGE_BYTES = 2**16

_NUMBERS = "biufc"  # Kinds of dtypes: bool, int, unsigned int, float, complex.
# An array of more bytes is told apart from others by that many of them: by parts of this size.
_MAX_COMPARED, _PART_BYTES = 32 * 2**20, 4096
_MAX_STRINGS = 2**16
_PRIME = 1_000_003
# TensorFlow copies an array whose address is not a multiple of this.
_ALIGNMENT = 64
# The arrays that the datasets of a graph take, numbered.
_arrays: weakref.WeakKeyDictionary[tf.Graph, dict[int, np.ndarray]] = weakref.WeakKeyDictionary()


def arrays_outside_graph(min_bytes: float) -> contextlib.AbstractContextManager[None]:
    """Inside, large arrays of numbers that become datasets are not copied into the default graph.

    A constant of a graph is limited to 2 GB, and each new set of ops that a session runs copies all
    constants. Instead, a Python function passes a copy of the array to the dataset when its
    iterator is initialized, so such a graph runs in this process only.

    Args:
      min_bytes: the size of the smallest array that is kept out.
    """

    def replace(component: Any) -> Any:
        if tf.is_tensor(component) or not hasattr(component, "__array__"):
            return component
        array = np.asarray(component)
        is_number = array.dtype.kind in _NUMBERS and array.dtype.isnative
        if not is_number or array.nbytes < min_bytes:
            return component
        return _build_tensor(_aligned_copy(array))

    return _tf.components_replaced(replace)


def release_arrays(graph: tf.Graph) -> None:
    """Frees the arrays that were kept out of `graph`; its iterators cannot be initialized again.

    The graph itself is freed by Python's garbage collector, which may run much later.
    """
    _arrays.get(graph, {}).clear()


def samples_of_arrays(graph: tf.Graph) -> Iterator[bytes | memoryview]:
    """Yields what tells each array that was kept out of `graph` apart: its bytes, or parts of them.

    All of them, up to a size: of a buffer that a program fills again, only a few rows may differ.
    """
    for array in _arrays.get(graph, {}).values():
        yield f"{array.shape} {array.dtype}".encode()
        yield from _strings(array) if _has_strings(array) else _parts(array)


def _has_strings(array: np.ndarray) -> bool:
    return array.dtype.hasobject or array.dtype.kind == "T"  # NumPy's of variable length.


def _strings(array: np.ndarray) -> Iterator[bytes]:
    chosen = array.ravel()[:: -(-array.size // _MAX_STRINGS) or 1]
    half = _MAX_COMPARED // (2 * max(1, chosen.size))
    for value in chosen.tolist():
        string = value if isinstance(value, str | bytes) else repr(value)
        parts = (string[:half], string[-half:]) if len(string) > 2 * half else (string,)
        yield repr((len(string), *parts)).encode()


def _parts(array: np.ndarray) -> Iterator[memoryview]:
    if array.nbytes > _MAX_COMPARED and not array.flags.c_contiguous:
        array = array[:: -(-array.nbytes // _MAX_COMPARED)]  # Less to copy.
    content = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    if len(content) <= _MAX_COMPARED:
        yield content
        return
    step = -(-len(content) * _PART_BYTES // _MAX_COMPARED)
    for number, place in enumerate(range(0, len(content), step)):
        # Not always at the same place of a row, of which the beginning may be padding.
        start = place + number * _PRIME % (step - _PART_BYTES + 1)
        yield content[start : start + _PART_BYTES]


def note_arrays(arrays: Iterable[np.ndarray]) -> None:
    """Has `samples_of_arrays` of the default graph yield these arrays, too."""
    noted = _arrays.setdefault(tf.compat.v1.get_default_graph(), {})
    for array in arrays:
        noted[len(noted)] = array


def _build_tensor(array: np.ndarray) -> tf.Tensor:
    """Returns a tensor whose value is `array`, which must not change any more."""
    arrays = _arrays.setdefault(tf.compat.v1.get_default_graph(), {})
    number = len(arrays)
    arrays[number] = array
    dtype = tf.as_dtype(array.dtype)
    # A one-shot iterator takes no stateful ops, and TensorFlow would make a constant of a stateless
    # one, copying the array several times, if its inputs were constants. This one is not.
    not_constant = tf.raw_ops.FakeParam(dtype=tf.bool, shape=[])
    tensor = tf.numpy_function(
        lambda _: arrays[number], [not_constant], dtype, stateful=False, name="input/array"
    )
    tensor.set_shape(array.shape)
    return tensor


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    buffer = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    copy = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
