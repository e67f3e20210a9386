"""Ends a job's tasks when the launcher itself is killed, which leaves it no time to do so.

The launcher starts this file as a program of its own and holds one end of a socket, which the
kernel closes with the launcher, however that ends. The program imports little, so that it starts in
milliseconds and takes little memory.
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
# A process group to watch; or, negative, one to forget.
_MESSAGE = struct.Struct("q")


class Watchdog:
    """The launcher's side: says which process groups are to end with it. Safe in threads."""

    def __init__(self, grace_secs: float) -> None:
        """Starts the process; `grace_secs` are from SIGTERM to SIGKILL."""
        self._socket, other_end = socket.socketpair()
        with other_end:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(grace_secs)],
                stdin=other_end.fileno(),
                # What kills the launcher's process group must not kill this one with it.
                start_new_session=True,
            )

    def watch(self, group: int, outputs: Sequence[int]) -> None:
        """Has a process group end with the launcher.

        Args:
          group: its number.
          outputs: the pipes that its stdout and stderr go to. Without a reader, a program that
            prints would fail before it has saved its state.
        """
        with contextlib.suppress(OSError):  # Somebody has killed the watchdog.
            socket.send_fds(self._socket, [_MESSAGE.pack(group)], outputs)

    def forget(self, group: int) -> None:
        """Leaves a process group alone that is gone: its number may soon be another's."""
        with contextlib.suppress(OSError):
            self._socket.sendall(_MESSAGE.pack(-group))

    def close(self) -> None:
        """Ends the process, and with it what is still watched."""
        self._socket.close()
        self._process.wait()


def main(grace_secs: float) -> None:
    """Reads which groups there are until the launcher is gone, and then ends them."""
    # Signals are the launcher's business.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = {
        group: outputs
        for group, outputs in _read_groups().items()
        if _send_signal(group, signal.SIGTERM)
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
        groups = {group: pipes for group, pipes in groups.items() if _send_signal(group, 0)}
    for group in groups:
        _send_signal(group, signal.SIGKILL)


def _read_groups() -> dict[int, Sequence[int]]:
    """The groups that are left when the launcher ends, and the pipes of their output."""
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
    """Copies what a task still prints; if nobody reads that, it is lost, and the task goes on."""
    while data := os.read(pipe, 1 << 16):
        with contextlib.suppress(OSError):
            os.write(stream, data)


def _send_signal(group: int, number: int) -> bool:
    """Sends a signal to a process group; returns whether there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # The latter on macOS, for the dead.
        return False
    return True


if __name__ == "__main__":
    main(float(sys.argv[1]))
