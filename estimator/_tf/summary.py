"""Private parts of event file writers, and of the ops of v1 summaries."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_logging_ops

from estimator._tf.patches import Patch, patched, together

_file_writer_numbers = itertools.count()


def file_writer(directory: str) -> tf.compat.v1.summary.FileWriter:
    """Returns FileWriterCache's writer for `directory`; a new one gets a unique file name.

    By default the file name only has the current second, so a second writer within the same second
    would replace the file. 2.16 to 2.21.
    """
    with tf.Graph().as_default():
        return _cached_writer(directory)


def unique_event_files() -> Patch:
    """Inside, new writers of FileWriterCache, which TensorFlow's hooks ask, get such names, too."""

    def get(logdir: str) -> tf.compat.v1.summary.FileWriter:
        return _cached_writer(logdir, tf.compat.v1.get_default_graph())

    cache = tf.compat.v1.summary.FileWriterCache
    return patched(cache, "get", lambda original: staticmethod(get))


def _cached_writer(
    directory: str, graph: tf.Graph | None = None
) -> tf.compat.v1.summary.FileWriter:
    """Returns FileWriterCache's writer for `directory`; the file of a new one holds `graph`."""
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock:
        if directory not in cache._cache:
            suffix = f".{os.getpid()}.{next(_file_writer_numbers)}"
            cache._cache[directory] = tf.compat.v1.summary.FileWriter(
                directory, graph, filename_suffix=suffix
            )
        return cache._cache[directory]


def close_file_writer(directory: str) -> None:
    """Closes FileWriterCache's writer for `directory`, and removes it from the cache.

    The public API can only clear the whole cache, with the writers of others. 2.16 to 2.21.
    """
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock:
        writer = cache._cache.pop(directory, None)
    if writer is not None:
        writer.close()


def is_file_writer_lost(directory: str) -> bool:
    """Returns whether FileWriterCache's writer for `directory` writes to a file that was removed.

    `EventFileWriter._ev_writer`, 2.16 to 2.21.
    """
    writer = tf.compat.v1.summary.FileWriterCache._cache.get(directory)
    if writer is None:
        return False
    return not tf.io.gfile.exists(writer.event_writer._ev_writer.FileName())


def writer_initializers(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops that open the file writers of a graph's `tf.summary` ops.

    The first input of each is its writer. A collection of `summary_ops_v2`, 2.16 to 2.21.
    """
    return graph.get_collection("_SUMMARY_WRITER_V2")


def build_flush_of_writers(graph: tf.Graph) -> tf.Operation | None:
    """Builds the op that flushes the file writers of a graph's `tf.summary` ops; None if none."""
    initializers = writer_initializers(graph)
    if not initializers:
        return None
    with graph.as_default():
        return tf.group(*[tf.raw_ops.FlushSummaryWriter(writer=i.inputs[0]) for i in initializers])


_SUMMARY_OPS = (
    "audio_summary_v2",
    "histogram_summary",
    "image_summary",
    "merge_summary",
    "scalar_summary",
    "tensor_summary_v2",
)


def summary_ops_replaced(make: Callable[..., Any]) -> Patch:
    """Inside, calls of the functions that make the ops of v1 summaries call `make` instead.

    `tf.compat.v1.summary` calls these functions and returns their results unchanged. Builds hold a
    lock. gen_logging_ops 2.16 to 2.21.

    Args:
      make: is called with the function and its arguments.
    """
    replace = functools.partial(functools.partial, make)
    return together(patched(gen_logging_ops, name, replace) for name in _SUMMARY_OPS)
