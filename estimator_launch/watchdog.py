"""Ends a job's tasks when the launcher is killed and cannot do so itself.

The launcher runs this file as a separate process and holds one end of a socket, which the kernel
closes when the launcher ends, however that happens. The file imports little, so that the process
starts in milliseconds and needs little memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

_POLL_SECS = 0.1
# The id of a process group to watch; negative: to forget.
_MESSAGE = struct.Struct("q")


class Watchdog:
    """The launcher's side: registers the process groups to end with the launcher. Thread-safe."""

    def __init__(self, grace_secs: float) -> None:
        """Starts the watchdog process; `grace_secs` is the time from SIGTERM to SIGKILL."""
        self._socket, other_end = socket.socketpair()
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(grace_secs)],
                stdin=other_end.fileno(),
                # A signal to the launcher's process group must not reach the watchdog.
                start_new_session=True,
            )

    def watch(self, group: int, outputs: Sequence[int]) -> None:
        """Registers a process group that is to end with the launcher.

        Args:
          group: the id of the process group.
          outputs: the read ends of the pipes of its stdout and stderr. The watchdog reads them, as
            a task that prints to a broken pipe would fail before it saves its state.
        """
        with contextlib.suppress(OSError):  # The watchdog may have been killed.
            socket.send_fds(self._socket, [_MESSAGE.pack(group)], outputs)

    def forget(self, group: int) -> None:
        """Unregisters a process group that has ended, as its id may be reused."""
        with contextlib.suppress(OSError):
            self._socket.sendall(_MESSAGE.pack(-group))

    def close(self) -> None:
        """Ends the watchdog process, which first ends the groups that are still registered."""
        self._socket.close()
        self._process.wait()


def main(grace_secs: float) -> None:
    """Reads the process groups until the launcher is gone, and then ends them."""
    # The launcher handles these signals.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = {
        group: outputs
        for group, outputs in _read_groups().items()
        if signal_group(group, signal.SIGTERM)
    }
    if not groups:
        return
    with contextlib.suppress(OSError):
        print("[launch] the launcher is gone: ending all tasks", file=sys.stderr, flush=True)
    for outputs in groups.values():
        for pipe, stream in zip(outputs, (1, 2), strict=True):
            threading.Thread(target=_copy, args=(pipe, stream), daemon=True).start()
    deadline = time.monotonic() + grace_secs
    while groups and time.monotonic() < deadline:
        time.sleep(_POLL_SECS)
        groups = {group: pipes for group, pipes in groups.items() if signal_group(group, 0)}
    for group in groups:
        signal_group(group, signal.SIGKILL)


def _read_groups() -> dict[int, Sequence[int]]:
    """Waits until the launcher ends; returns the remaining groups and the pipes of their output."""
    groups: dict[int, Sequence[int]] = {}
    with socket.socket(fileno=sys.stdin.fileno()) as launcher:
        while True:
            message, pipes, *_ = socket.recv_fds(launcher, _MESSAGE.size, maxfds=2)
            if not message:
                return groups
            (group,) = _MESSAGE.unpack(message)
            if group > 0:
                groups[group] = pipes
            else:
                for pipe in groups.pop(-group, ()):
                    os.close(pipe)


def _copy(pipe: int, stream: int) -> None:
    """Copies what a task still prints; drops it if the stream cannot be written."""
    while data := os.read(pipe, 1 << 16):
        with contextlib.suppress(OSError):
            os.write(stream, data)


def signal_group(group: int, number: int) -> bool:
    """Sends a signal to a process group; returns whether the group exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # The latter on macOS, for zombies.
        return False
    return True


if __name__ == "__main__":
    main(float(sys.argv[1]))
