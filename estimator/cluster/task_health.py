"""Watches the other tasks of a cluster: waits for them to start, and detects when one is lost.

TensorFlow's servers answer a status request; a connection to each is kept open while training.
Without it, a collective waits forever for a worker that died before joining.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from estimator import _tf
from estimator.cluster.heartbeat import Heartbeat

if TYPE_CHECKING:
    import grpc

_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # An idle connection must not look like a lost task.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_OF_TRAINING = (
    "training cannot continue. Its own log says why. Start all tasks again: training resumes from "
    "the newest checkpoint."
)
# TensorFlow's words, in the call that fails and in all later ones.
_COLLECTIVES_ENDED = "Collective ops is aborted"
_NO_COLLECTIVES = (
    "TensorFlow has ended all collectives of this process, because a call failed while another "
    "worker waited for it, in this training or in an earlier one. Start all tasks again: training "
    "resumes from the newest checkpoint."
)
_ANSWER_SECS = 5.0
_POLL_SECS = 0.5
# A little longer than gRPC needs to notice that nobody wants to hear of a channel's state.
_LAST_REPORT_SECS = 0.25
# How long a call that fails because a task is gone may take to raise its own error.
_GRACE_SECS = 2.0

# The errors with which a call may fail because another task failed.
_OF_OTHERS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


def _do_nothing() -> None:
    """Does nothing: a check that never ends a wait, and a wait that ends at once."""


class StartTimeoutError(TimeoutError):
    """Raised if tasks do not answer in the time that they have to start."""


class TaskHealth:
    """The health of the other tasks, with a connection to each.

    Attributes:
      heartbeat: detects tasks that stop answering, once it is started.
    """

    def __init__(
        self, addresses: Mapping[str, str], timeout_secs: float, consequence: str = _OF_TRAINING
    ) -> None:
        """Creates the channels; they connect when they are first used.

        Args:
          addresses: "host:port" of each task, by its name.
          timeout_secs: a task that stops answering counts as lost within this time.
          consequence: for messages: what follows when a task is gone, and the way out.
        """
        self._consequence = consequence
        self._timeout_secs = timeout_secs
        self._addresses = dict(addresses)
        self._channels = {name: _connect(address) for name, address in self._addresses.items()}
        self._first_status: dict[str, bytes] = {}
        self._lost: list[str] = []
        self._failures: dict[str, str] = {}
        self._guarded: list[tf.compat.v1.Session] = []
        self._is_lost = threading.Event()
        self._is_watched = False
        self._changes: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.heartbeat = Heartbeat(self._channels, timeout_secs, self._changes.put)

    def __bool__(self) -> bool:
        """Whether there are any other tasks."""
        return bool(self._channels)

    def wait(self, timeout_secs: float, check: Callable[[], None] = _do_nothing) -> None:
        """Waits until every task answers.

        Args:
          timeout_secs: how long to wait.
          check: called repeatedly; an exception from it ends the wait.

        Raises:
          StartTimeoutError: some tasks, which the message names, did not answer in time.
        """
        missing = self.find_missing(timeout_secs, check)
        if missing:
            names = _capitalized(", ".join(missing))
            raise StartTimeoutError(
                f"{names} did not answer within `session_creation_timeout_secs` "
                f"({timeout_secs:g}). Check that all servers and tasks of TF_CONFIG are running, "
                "that their addresses resolve, and that no firewall is between them."
            )

    def find_missing(
        self, timeout_secs: float, check: Callable[[], None] = _do_nothing
    ) -> list[str]:
        """Waits until every task answers; returns those that did not in time, with addresses.

        All are checked periodically from then on.

        Args:
          timeout_secs: how long to wait.
          check: called repeatedly; an exception from it ends the wait.
        """
        end = time.monotonic() + timeout_secs
        missing = []
        for name, channel in self._channels.items():
            status = self._ask_until(end, channel, check)
            if status is None:
                missing.append(self._full_name(name) + _resolution(self._addresses[name]))
            else:
                self._first_status[name] = status
        self.heartbeat.start()
        return missing

    def wait_for(self, is_done: threading.Event, check: Callable[[], None] = _do_nothing) -> None:
        """Waits for a session call that another thread makes.

        Args:
          is_done: set when the call has returned.
          check: called repeatedly; an exception from it ends the wait.

        Raises:
          tf.errors.UnavailableError: a task is gone, and the call does not return.
        """
        while not is_done.wait(_POLL_SECS):
            check()
            gone = self._lost if self._is_watched else [*filter(self._is_away, self._channels)]
            if gone and not is_done.wait(_GRACE_SECS):
                self._lost += [name for name in gone if name not in self._lost]
                self._is_lost.set()
                raise self._make_error()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Makes TensorFlow errors inside the block name the lost task that caused them.

        Raises:
          tf.errors.UnavailableError: a task is gone, or collectives cannot run any more.
        """
        if not self._channels:
            yield
            return
        watcher = threading.Thread(target=self._watch, daemon=True)
        callbacks = {}
        for name, channel in self._channels.items():
            callbacks[name] = functools.partial(self._note_state, name)
            channel.subscribe(callbacks[name])
        watcher.start()
        self._is_watched = True
        try:
            yield
        except tf.errors.OpError as error:
            if isinstance(error, _OF_OTHERS) and self._find_lost():
                self._is_lost.set()
                raise self._make_error() from error
            if _COLLECTIVES_ENDED in str(error):
                raise tf.errors.UnavailableError(None, None, _NO_COLLECTIVES) from error
            raise
        finally:
            for name, channel in self._channels.items():
                channel.unsubscribe(callbacks[name])
            self.release()
            watcher.join()
            # gRPC's thread that reports states would print an error if the channel were closed now.
            time.sleep(_LAST_REPORT_SECS)

    def guard(self, session: tf.compat.v1.Session) -> None:
        """Closes the session when a task is lost while watched, so that none of its calls hangs."""
        self._guarded.append(session)

    def note_failure(self, name: str, what: str, wait: Callable[[], None]) -> None:
        """Counts a task as lost that has said with what error its training ended.

        Args:
          name: the task.
          what: the error.
          wait: returns when the calls of guarded sessions may be ended.
        """
        self._failures[name] = what
        self._lose(name, wait)

    @property
    def is_any_lost(self) -> bool:
        """Whether a task is lost, so that what fails in this one follows from that."""
        return self._is_lost.is_set()

    def is_whole(self) -> bool:
        """Returns whether all tasks are watched, and none is lost, when a call has failed."""
        return not self._channels or (self._is_watched and not self._find_lost())

    def is_gone(self, name: str) -> bool:
        """Returns whether the task is unknown, does not listen, or has stopped answering."""
        return name not in self._channels or self._is_away(name, counts_restart=False)

    def is_any_away(self) -> bool:
        """Returns whether any task is gone, or was restarted since it was waited for."""
        return any(map(self._is_away, self._channels))

    def wait_until_lost(self, check: Callable[[], None] = _do_nothing) -> None:
        """Waits until a task is lost; used inside `watched`.

        Args:
          check: called repeatedly; an exception from it ends the wait.
        """
        while not self._is_lost.wait(_POLL_SECS):
            check()

    def silence(self) -> tf.errors.UnavailableError | None:
        """Returns the error that names the tasks that stopped answering; None if there are none."""
        is_any = any(map(self.heartbeat.is_silent, self._channels))
        return self._make_error() if is_any else None

    def release(self) -> None:
        """Stops watching: tasks may end from now on."""
        self._is_watched = False
        self._changes.put(None)

    def close(self) -> None:
        """Closes the connections."""
        self.heartbeat.close()
        for channel in self._channels.values():
            channel.close()

    def _find_lost(self) -> bool:
        """Returns whether a task is lost, when a call has failed."""
        # The error may arrive before the notification that a connection has closed.
        return self._is_lost.wait(_ANSWER_SECS) or bool(self.heartbeat.quiet())

    def _note_state(self, name: str, state: grpc.ChannelConnectivity) -> None:
        if state.name != "READY":
            self._changes.put(name)

    def _watch(self) -> None:
        while (name := self._changes.get()) is not None:
            if name not in self._lost and self._is_away(name):
                self._lose(name)

    def _lose(self, name: str, wait: Callable[[], None] = _do_nothing) -> None:
        self._lost.append(name)
        if not self._is_lost.is_set():
            self._is_lost.set()
            threading.Thread(target=self._end_calls, args=[wait], daemon=True).start()

    def _end_calls(self, wait: Callable[[], None]) -> None:
        time.sleep(_GRACE_SECS)
        wait()
        with _tf.stopped_at_exit():
            for session in self._guarded:
                session.close()

    def _ask_until(
        self, end: float, channel: grpc.Channel, check: Callable[[], None]
    ) -> bytes | None:
        """Returns the task's status as soon as it answers; None if it does not before `end`."""
        get_status = channel.unary_unary(_GET_STATUS)
        while True:
            check()
            left = end - time.monotonic()
            # Always leave some time for the answer, however little time is left.
            seconds = max(0.05, min(left, _POLL_SECS))
            with contextlib.suppress(_rpc_error()):
                return get_status(b"", timeout=seconds, wait_for_ready=True)
            if left <= 0:
                return None

    def _is_away(self, name: str, counts_restart: bool = True) -> bool:
        """Returns whether the task is gone, was restarted, or has stopped answering.

        A restarted task has lost its state, so it counts as gone. Its status describes its devices,
        whose ids change then.
        """
        if self.heartbeat.is_silent(name):
            return True
        get_status = self._channels[name].unary_unary(_GET_STATUS)
        try:
            status = get_status(b"", timeout=_ANSWER_SECS)
        except _rpc_error() as error:
            # Nothing listens; a slow task exceeds its deadline instead.
            return bool(error.code().name == "UNAVAILABLE")  # type: ignore[attr-defined]
        return counts_restart and bool(status != self._first_status.get(name))

    def _make_error(self) -> tf.errors.UnavailableError:
        # If one task does not answer, others may have ended because of it.
        quiet = self.heartbeat.quiet()
        gone = [name for name in self._lost if name not in quiet and name not in self._failures]
        clauses = [
            f"{self._full_name(name)} has failed ({what})" for name, what in self._failures.items()
        ]
        if quiet:
            names = ", ".join(map(self._full_name, quiet))
            clauses.append(
                f"{names} stopped answering (`peer_timeout_secs` {self._timeout_secs:g})"
            )
        if gone:
            names = ", ".join(map(self._full_name, gone))
            clauses.append(f"{names} {'is' if len(gone) == 1 else 'are'} gone")
        message = f"{' and '.join(clauses)}, so {self._consequence}"
        return tf.errors.UnavailableError(None, None, _capitalized(message))

    def _full_name(self, name: str) -> str:
        return f"{name} ({self._addresses[name]})"


def _connect(address: str) -> grpc.Channel:
    import grpc  # Importing grpc is slow, and a single process does not need it.

    return grpc.insecure_channel(address, options=_OPTIONS)


def _rpc_error() -> type[Exception]:
    import grpc

    return grpc.RpcError


def _resolution(address: str) -> str:
    """Returns what to add to the address of a task that does not answer and does not resolve."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), port)
    except (OSError, UnicodeError) as error:
        return f" whose host does not resolve ({error})"
    return ""


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
