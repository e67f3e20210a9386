"""Tells the files that an input reads apart from files of the same names with other contents."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

# A constant with more strings is data; so is one of which the first ones are no files.
_MAX_NAMES, _NUM_TRIED = 10_000, 16
_MAX_NAME_BYTES = 4096
# Of more files, only the sizes are compared; of each, a few places.
_MAX_SAMPLED_FILES = 256
_NUM_PLACES, _PLACE_BYTES = 4, 4096


def samples_of_files(graph_def: Any) -> Iterator[bytes]:
    """Yields the size and some bytes of each local file that a constant of the graph names.

    Not the time at which it was written: a copy of the data is the same data. Patterns of names, as
    of `list_files`, stand for the files that they match now.
    """
    paths = sorted({path for strings in _string_constants(graph_def) for path in _files(strings)})
    for path in paths:
        try:
            size = os.path.getsize(path)
            yield f"{path} {size}".encode()
            if len(paths) <= _MAX_SAMPLED_FILES:
                yield from _sample(path, size)
        except OSError:  # It is gone, or may not be read, which the input will say.
            yield path.encode()


def _string_constants(graph_def: Any) -> Iterator[list[bytes]]:
    functions = (function.node_def for function in graph_def.library.function)
    for nodes in (graph_def.node, *functions):
        for node in nodes:
            if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
                strings = node.attr["value"].tensor.string_val
                if 0 < len(strings) <= _MAX_NAMES:
                    yield list(strings)


def _files(strings: list[bytes]) -> Iterable[str]:
    """Returns the files among the strings, and those that match the patterns among them."""
    if not any(map(_matches, strings[:_NUM_TRIED])):
        return ()
    return {path for string in strings for path in _matches(string)}


def _matches(string: bytes) -> list[str]:
    is_name = 0 < len(string) <= _MAX_NAME_BYTES and b"\0" not in string
    path = os.fsdecode(string) if is_name else ""
    if os.path.isfile(path):
        return [path]
    # A pattern begins with a folder: words with a star in them are data.
    if os.path.isdir(os.path.dirname(path)) and glob.has_magic(path):
        return [match for match in glob.glob(path) if os.path.isfile(match)]
    return []


def _sample(path: str, size: int) -> Iterator[bytes]:
    """Yields bytes from the beginning to the end of a file."""
    last = max(0, size - _PLACE_BYTES)
    with open(path, "rb") as file:
        for start in sorted({last * i // (_NUM_PLACES - 1) for i in range(_NUM_PLACES)}):
            file.seek(start)
            yield file.read(_PLACE_BYTES)
