"""TFRecord files: which files a pattern names, and how to write them whole or not at all."""

import glob
import itertools
import os
from collections.abc import Iterable, Sequence

import tensorflow as tf


def find_files(file_pattern: str, writer: str) -> list[str]:
    """Returns the files that match a pattern, sorted; `writer` is a module that writes such files.

    Raises:
      ValueError: no file matches.
    """
    paths = sorted(glob.glob(os.path.expanduser(file_pattern)))
    if not paths:
        raise ValueError(
            f"`file_pattern` ({file_pattern!r}) must match at least one file. "
            f"`python -m {writer}` writes such files."
        )
    return paths


def write_files(records: Iterable[bytes], paths: Sequence[str]) -> None:
    """Writes records to the files, in turn; each file is whole or absent."""
    temporary_paths = [f"{path}.incomplete-{os.getpid()}" for path in paths]
    try:
        _write_records(records, temporary_paths)
        for temporary_path, path in zip(temporary_paths, paths, strict=True):
            os.replace(temporary_path, path)
    finally:
        for temporary_path in filter(os.path.exists, temporary_paths):
            os.remove(temporary_path)


def _write_records(records: Iterable[bytes], paths: Sequence[str]) -> None:
    writers = [tf.io.TFRecordWriter(path) for path in paths]
    try:
        for record, writer in zip(records, itertools.cycle(writers), strict=False):
            writer.write(record)
    finally:
        for writer in writers:
            writer.close()
