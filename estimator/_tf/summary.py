"""Event files, and the ops of v1 summaries."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_logging_ops

from estimator._tf.patches import patched

_file_writer_numbers = itertools.count()


def file_writer(directory: str) -> tf.compat.v1.summary.FileWriter:
    """The one that FileWriterCache has for `directory`, or a new one in a file of its own.

    The cache names a file after the second it is made in, and a later one of that second would
    take its place. 2.16 to 2.21.
    """
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock, tf.Graph().as_default():
        if directory not in cache._cache:
            cache._cache[directory] = tf.compat.v1.summary.FileWriter(
                directory, filename_suffix=f".{os.getpid()}.{next(_file_writer_numbers)}"
            )
        return cache._cache[directory]


def close_file_writer(directory: str) -> None:
    """Closes the event file that FileWriterCache has for `directory`, and forgets it.

    In public the cache can only be cleared as a whole, with the writers of others. 2.16 to 2.21.
    """
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock:
        writer = cache._cache.pop(directory, None)
    if writer is not None:
        writer.close()


_SUMMARY_OPS = (
    "audio_summary_v2",
    "histogram_summary",
    "image_summary",
    "merge_summary",
    "scalar_summary",
    "tensor_summary_v2",
)


@contextlib.contextmanager
def summary_ops_replaced(make: Callable[..., Any]) -> Iterator[None]:
    """Inside, a call of a function that makes a v1 summary's op is one of `make`.

    `tf.compat.v1.summary` calls them, and looks at nothing of what they return. `make` is given the
    function and its arguments. Builds hold a lock. gen_logging_ops 2.16 to 2.21.
    """
    with contextlib.ExitStack() as stack:
        for name in _SUMMARY_OPS:
            replace = functools.partial(functools.partial, make)
            stack.enter_context(patched(gen_logging_ops, name, replace))
        yield
