"""What the tasks print, each line whole and with the name of its task."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from io import RawIOBase
from typing import IO

# Of the launcher's own lines.
_NAME = "launch"
# Of a terminal; red is left to errors.
_COLORS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
# A line that is longer comes in pieces, so that one without an end does not fill the memory.
MAX_LINE_BYTES = 1 << 16


class Output:
    """Writes lines with a prefix, in colour where the stream is a terminal. Safe in threads."""

    def __init__(self, names: Sequence[str], stdout: RawIOBase, stderr: RawIOBase) -> None:
        """`names` are those of the tasks that will print; the streams have no buffer."""
        self.stdout, self.stderr = stdout, stderr
        width = max(map(len, [_NAME, *names])) + 2
        plain = {name: f"[{name}]".ljust(width) for name in [*names, _NAME]}
        colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(names)}
        colored = {
            **plain,
            **{name: f"\033[{c}m{plain[name]}\033[0m" for name, c in colors.items()},
        }
        self._prefixes: Mapping[RawIOBase, Mapping[str, str]] = {
            stream: colored if stream.isatty() else plain for stream in (stdout, stderr)
        }
        # One for both streams, which are often one terminal or file.
        self._lock = threading.Lock()

    def copy_lines(self, name: str, pipe: IO[bytes], stream: RawIOBase) -> None:
        """Writes each line that comes out of the pipe, until its end.

        Raises:
          OSError: the stream cannot be written.
        """
        while line := pipe.readline(MAX_LINE_BYTES):
            self._write(name, line, stream)

    def say(self, text: str) -> None:
        """Writes a line of the launcher's own, to stderr; if nobody reads it, that is all right."""
        with contextlib.suppress(OSError):
            self._write(_NAME, text.encode(), self.stderr)

    def _write(self, name: str, line: bytes, stream: RawIOBase) -> None:
        # Of what a line overwrites, a terminal shows the last: so do we, behind the prefix.
        shown = line.rstrip(b"\r\n").rpartition(b"\r")[2]
        left = self._prefixes[stream][name].encode() + b" " + shown + b"\n"
        with self._lock:
            while left:
                left = left[stream.write(left) :]
