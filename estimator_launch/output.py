"""Prints the output of all tasks line by line, each line prefixed with its task's name."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from io import RawIOBase
from typing import IO

# The prefix of the launcher's own lines.
_NAME = "launch"
# ANSI color codes; red is reserved for errors.
_COLORS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
# Longer lines are split, so that output without a line end does not fill the memory.
MAX_LINE_BYTES = 1 << 16


class Output:
    """Writes lines with a prefix, colored if the stream is a terminal. Thread-safe."""

    def __init__(self, names: Sequence[str], stdout: RawIOBase, stderr: RawIOBase) -> None:
        """Chooses a prefix for each of the tasks `names`; both streams must be unbuffered."""
        self.stdout, self.stderr = stdout, stderr
        width = max(map(len, [_NAME, *names])) + 2
        plain = {name: f"[{name}]".ljust(width) for name in [*names, _NAME]}
        colored = dict(plain)
        for name, color in zip(names, itertools.cycle(_COLORS)):
            colored[name] = f"\033[{color}m{plain[name]}\033[0m"
        self._prefixes: Mapping[RawIOBase, Mapping[str, str]] = {
            stream: colored if stream.isatty() else plain for stream in (stdout, stderr)
        }
        # One lock for both streams, which are often the same terminal or file.
        self._lock = threading.Lock()

    def copy_lines(self, name: str, pipe: IO[bytes], stream: RawIOBase) -> None:
        """Copies lines from the pipe to the stream until the pipe is closed.

        Raises:
          OSError: the stream cannot be written.
        """
        while line := pipe.readline(MAX_LINE_BYTES):
            self._write(name, line, stream)

    def say(self, text: str) -> None:
        """Writes a line of the launcher's own to stderr; ignores an error of that stream."""
        with contextlib.suppress(OSError):
            self._write(_NAME, text.encode(), self.stderr)

    def _write(self, name: str, line: bytes, stream: RawIOBase) -> None:
        # After a carriage return, a terminal overwrites the line; only the last version is shown.
        shown = line.rstrip(b"\r\n").rpartition(b"\r")[2]
        left = self._prefixes[stream][name].encode() + b" " + shown + b"\n"
        with self._lock:
            while left:
                left = left[stream.write(left) :]
