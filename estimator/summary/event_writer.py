"""One event file writer per directory."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from estimator import _tf
from estimator.console import log

# TensorFlow's writer raises a RuntimeError if a file cannot be created or written, and an
# IndexError if it is too large.
_WRITE_ERRORS = (RuntimeError, IndexError, OSError, tf.errors.OpError)
_writers_with_graph: weakref.WeakSet[tf.compat.v1.summary.FileWriter] = weakref.WeakSet()


class EventWriter:
    """Writes scalars and serialized summaries to one directory's event file.

    The file is created with the first event. TensorFlow's hooks that write to the same directory
    share it. Events that cannot be written, as on a full disk, are lost, with a warning if a flush
    finds out; until the next one, no others are written.
    """

    def __init__(self, directory: str, graph: tf.Graph | None = None) -> None:
        """Creates no file yet.

        Args:
          directory: the directory of the event file.
          graph: written with the first event, for TensorBoard, unless the file already has one.
        """
        self._directory = directory
        self._graph = graph
        self._is_failing = False  # Until the next flush tries again.
        with contextlib.suppress(*_WRITE_ERRORS):  # The first event finds out, too, and warns.
            if _tf.is_file_writer_lost(directory):  # As after `rm -r`, between two trainings.
                close_event_files([directory])

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one event with these scalars."""
        summary = tf.compat.v1.Summary()
        for tag, value in values.items():
            summary.value.add(tag=tag, simple_value=float(value))
        self._write(lambda writer: writer.add_summary(summary, step))

    def write_summary(self, serialized: bytes, step: int) -> None:
        """Adds one event with a serialized tf.compat.v1.Summary."""
        self._write(lambda writer: writer.add_summary(serialized, step))

    def write_start(self, step: int) -> None:
        """Records that events from `step` on replace those of an earlier run."""
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._write(lambda writer: writer.add_session_log(start, step))

    def write_save(self, prefix: str, step: int) -> None:
        """Records that the checkpoint of `step` was saved, whose name begins with `prefix`."""
        path = os.path.join(self._directory, prefix)
        save = tf.compat.v1.SessionLog(
            status=tf.compat.v1.SessionLog.CHECKPOINT, checkpoint_path=path
        )
        self._write(lambda writer: writer.add_session_log(save, step))

    def write_metrics(
        self, metrics: Mapping[str, Any], step: int, checkpoint_path: str | None = None
    ) -> None:
        """Adds one event with an evaluation's metrics.

        Args:
          metrics: scalars are written as scalars; `bytes` that are serialized summaries (such as
            images) as their values under "name/0" and so on, and other `bytes` not at all; finite
            values of other arrays as histograms. Elements of a list or dict are written under
            "name/0" or "name/key".
          step: the global step that was evaluated.
          checkpoint_path: also written, as a text.
        """
        summary = tf.compat.v1.Summary()
        for tag, value in _parts(sorted(metrics.items())):
            if isinstance(value, bytes):
                for i, part in enumerate(_values_of(value)):
                    part.tag = f"{tag}/{i}"
                    summary.value.append(part)
            elif np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub":
                summary.value.add(tag=tag, simple_value=float(value))
            elif np.asarray(value).dtype.kind in "fiub":
                finite = np.asarray(value, float)[np.isfinite(value)]
                if finite.size:
                    summary.value.add(tag=tag, histo=_make_histogram(finite))
        if checkpoint_path is not None:
            text = tf.make_tensor_proto(checkpoint_path, tf.string)
            summary.value.add(tag="checkpoint_path", tensor=text)
        self._write(lambda writer: writer.add_summary(summary, step))
        self.flush()

    def flush(self) -> None:
        """Flushes all events to disk; after an error, tries to write again."""
        self._is_failing, was_failing = False, self._is_failing
        self._write(lambda writer: writer.flush(), is_silent=was_failing)

    def _write(
        self, write: Callable[[tf.compat.v1.summary.FileWriter], None], *, is_silent: bool = False
    ) -> None:
        """Calls a method of the directory's writer, whose error costs events, not the training."""
        if self._is_failing:
            return
        try:
            writer = _tf.file_writer(self._directory)
            if self._graph is not None and writer not in _writers_with_graph:
                _writers_with_graph.add(writer)
                writer.add_graph(self._graph)
            write(writer)
        except _WRITE_ERRORS as error:
            if not is_silent:
                log.warning("Events cannot be written in %s: %s", self._directory, error)
            self._is_failing = True
            close_event_files([self._directory])  # The next event begins another file.


def _parts(values: Iterable[tuple[Any, Any]], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each value with its tag, including values nested in lists and dicts."""
    for key, value in values:
        if isinstance(value, Mapping):
            yield from _parts(value.items(), f"{prefix}{key}/")
        elif isinstance(value, list | tuple):
            yield from _parts(enumerate(value), f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def close_event_files(directories: Iterable[str]) -> None:
    """Closes the event files of these directories, each of which uses a thread."""
    for directory in directories:
        try:
            _tf.close_file_writer(directory)
        except _WRITE_ERRORS as error:
            log.warning("The last events in %s are not written: %s", directory, error)


def close_collected_event_files(directories: Iterable[str]) -> None:
    """Closes the event files of an object that nothing refers to, from any place in any thread.

    Garbage is collected wherever objects are made: also in a thread that another one waits for with
    the lock of all writers, or in the thread of a writer. So a new thread closes the files. When
    the process ends, this is called by the main thread, and nothing else runs.
    """
    if threading.main_thread().is_alive():
        threading.Thread(target=close_event_files, args=[directories]).start()
    else:
        close_event_files(directories)


def _make_histogram(values: np.ndarray) -> Any:
    counts, edges = np.histogram(values, bins=30)
    return tf.compat.v1.HistogramProto(
        min=values.min(),
        max=values.max(),
        num=values.size,
        sum=values.sum(),
        sum_squares=np.square(values).sum(),
        bucket_limit=edges[1:],
        bucket=counts,
    )


def _values_of(serialized: bytes) -> Sequence[Any]:
    """Returns the values of a serialized summary; empty for any other text."""
    try:
        return tf.compat.v1.Summary.FromString(serialized).value
    except DecodeError:
        return []
