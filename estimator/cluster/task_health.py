"""The other tasks of a cluster: waits for them, and notices when one of them is gone.

TensorFlow's servers answer who asks how they are; a connection to each is kept while training.
Without it a collective waits for ever for a worker that died before it had joined.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from estimator.cluster.heartbeat import Heartbeat

if TYPE_CHECKING:
    import grpc

_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # A connection that is idle for long must not look like a task that is gone.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_OF_TRAINING = (
    "training cannot go on. Its own log says why. Start all tasks again: training goes on from the "
    "newest checkpoint."
)
_ANSWER_SECS = 5.0
_POLL_SECS = 0.5
# How long a call that fails because a task is gone may take to say so by itself.
_GRACE_SECS = 2.0

# What a call may fail with because another task failed.
_OF_OTHERS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
    tf.errors.UnknownError,
)


def _never() -> None:
    """Ends no waiting."""


class TaskHealth:
    """The other tasks, by their names, and a connection to each."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        timeout_secs: float,
        consequence: str = _OF_TRAINING,
    ) -> None:
        """Connects to nobody yet.

        Args:
          addresses: "host:port" of each, by its name.
          timeout_secs: one that does not answer any more is taken for lost within this time.
          consequence: what comes of it if one is gone, and the way out.
        """
        self._consequence = consequence
        self._timeout_secs = timeout_secs
        self._addresses = dict(addresses)
        self._channels = {name: _connect(address) for name, address in self._addresses.items()}
        self._first_status: dict[str, bytes] = {}
        self._lost: list[str] = []
        self._guarded: list[tf.compat.v1.Session] = []
        self._is_lost = threading.Event()
        self._is_watched = False
        self._changes: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._heartbeat = Heartbeat(self._channels, timeout_secs, self._changes.put)

    def __bool__(self) -> bool:
        """Whether there is anybody."""
        return bool(self._channels)

    def wait(self, timeout_secs: float, check: Callable[[], None] = _never) -> None:
        """Waits until every task is there.

        Args:
          timeout_secs: how long.
          check: called again and again; what it raises ends the waiting.

        Raises:
          TimeoutError: names those that are not, after so many seconds.
        """
        end = time.monotonic() + timeout_secs
        missing = []
        for name, channel in self._channels.items():
            status = self._ask_until(end, channel, check)
            if status is None:
                missing.append(self._full_name(name) + _resolution(self._addresses[name]))
            else:
                self._first_status[name] = status
        if missing:
            raise TimeoutError(
                f"{_join(missing)} did not come within `session_creation_timeout_secs` "
                f"({timeout_secs:g}). Check that all servers and tasks of TF_CONFIG are running, "
                "that their addresses resolve, and that no firewall is between them."
            )
        self.start_checks()

    def start_checks(self) -> None:
        """From now on notices, too, when one of them does not answer any more."""
        self._heartbeat.start()

    def hurry(self) -> None:
        """This task is to end soon: one that has not answered for some seconds is lost."""
        self._heartbeat.hurry()

    def wait_for(self, is_done: threading.Event, check: Callable[[], None] = _never) -> None:
        """Waits for the end of a call that another thread makes.

        Args:
          is_done: set when the call has returned.
          check: called again and again; what it raises ends the waiting.

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
        """Inside, an error of TensorFlow's that came of a lost task says which one it is.

        Raises:
          tf.errors.UnavailableError: a task is gone.
        """
        if not self._channels:
            yield
            return
        watcher = threading.Thread(target=self._watch, daemon=True)
        callbacks = {}
        for name, channel in self._channels.items():
            callbacks[name] = self._make_callback(name)
            channel.subscribe(callbacks[name])
        watcher.start()
        self._is_watched = True
        try:
            yield
        except tf.errors.OpError as error:
            # The error may be here before the news that a connection has closed.
            if isinstance(error, _OF_OTHERS) and (
                self._is_lost.wait(_ANSWER_SECS) or self._heartbeat.quiet()
            ):
                raise self._make_error() from error
            raise
        finally:
            for name, channel in self._channels.items():
                channel.unsubscribe(callbacks[name])
            self.release()
            watcher.join()

    def guard(self, session: tf.compat.v1.Session) -> None:
        """Lets no call of the session wait for a task that is gone, as long as they are watched."""
        self._guarded.append(session)

    def is_gone(self, name: str) -> bool:
        """Whether nobody listens there now, or has not answered for long, or it is not known."""
        if name not in self._channels or self._heartbeat.is_silent(name):
            return True
        try:
            self._channels[name].unary_unary(_GET_STATUS)(b"", timeout=_ANSWER_SECS)
        except _rpc_error() as error:
            return _is_of_nobody(error)
        return False

    def is_any_away(self) -> bool:
        """Whether one of them is gone now, or another than it was when it was waited for."""
        return any(map(self._is_away, self._channels))

    def wait_until_lost(self, check: Callable[[], None] = _never) -> None:
        """Waits, while they are watched, until one of them is gone.

        Args:
          check: called again and again; what it raises ends the waiting.
        """
        while not self._is_lost.wait(_POLL_SECS):
            check()

    def silence(self) -> tf.errors.UnavailableError | None:
        """The error that names those that do not answer any more; None without one."""
        is_any = any(map(self._heartbeat.is_silent, self._channels))
        return self._make_error() if is_any else None

    def release(self) -> None:
        """From now on tasks may end."""
        self._is_watched = False
        self._changes.put(None)

    def close(self) -> None:
        """Closes the connections."""
        self._heartbeat.close()
        for channel in self._channels.values():
            channel.close()

    def _make_callback(self, name: str) -> Callable[[grpc.ChannelConnectivity], None]:
        def note(state: grpc.ChannelConnectivity) -> None:
            if state.name != "READY":
                self._changes.put(name)

        return note

    def _watch(self) -> None:
        while (name := self._changes.get()) is not None:
            if name in self._lost or not self._is_away(name):
                continue
            self._lost.append(name)
            if not self._is_lost.is_set():
                self._is_lost.set()
                threading.Thread(target=self._end_calls, daemon=True).start()

    def _end_calls(self) -> None:
        time.sleep(_GRACE_SECS)
        for session in self._guarded:
            session.close()

    def _ask_until(
        self, end: float, channel: grpc.Channel, check: Callable[[], None]
    ) -> bytes | None:
        """What the task says as soon as it is there; None if it is not by then."""
        while True:
            check()
            left = end - time.monotonic()
            # The answer takes its time, however little was left to wait for the task.
            status = self._ask(channel, max(0.05, min(left, _POLL_SECS)), wait_for_ready=True)
            if status is not None or left <= 0:
                return status

    def _is_away(self, name: str) -> bool:
        """Whether nobody listens, or another than before, or has not answered for long.

        One that has been started again is not the one that took part.
        """
        if self._heartbeat.is_silent(name):
            return True
        try:
            get_status = self._channels[name].unary_unary(_GET_STATUS)
            return bool(get_status(b"", timeout=_ANSWER_SECS) != self._first_status.get(name))
        except _rpc_error() as error:
            return _is_of_nobody(error)

    def _ask(
        self, channel: grpc.Channel, timeout_secs: float, wait_for_ready: bool
    ) -> bytes | None:
        """What the task says of its devices, which it names anew when it is started again."""
        get_status = channel.unary_unary(_GET_STATUS)
        try:
            return get_status(b"", timeout=timeout_secs, wait_for_ready=wait_for_ready)
        except _rpc_error():
            return None

    def _make_error(self) -> tf.errors.UnavailableError:
        # Where one does not answer, others that are gone may have ended because of it.
        quiet = self._heartbeat.quiet()
        gone = [name for name in self._lost if name not in quiet]
        clauses = []
        if quiet:
            names = ", ".join(map(self._full_name, quiet))
            verb = "does" if len(quiet) == 1 else "do"
            rule = f"`peer_timeout_secs` ({self._timeout_secs:g})"
            clauses.append(f"{names} {verb} not answer any more, within {rule}")
        if gone:
            names = ", ".join(map(self._full_name, gone))
            clauses.append(f"{names} {'is' if len(gone) == 1 else 'are'} gone")
        message = f"{' and '.join(clauses)}, so {self._consequence}"
        return tf.errors.UnavailableError(None, None, message[:1].upper() + message[1:])

    def _full_name(self, name: str) -> str:
        return f"{name} ({self._addresses[name]})"


@contextlib.contextmanager
def closed_on_error(health: TaskHealth) -> Iterator[None]:
    """Closes the connections if the block raises."""
    try:
        yield
    except BaseException:
        health.close()
        raise


def _connect(address: str) -> grpc.Channel:
    import grpc  # It takes a while, and one process has no use for it.

    return grpc.insecure_channel(address, options=_OPTIONS)


def _rpc_error() -> type[Exception]:
    import grpc

    return grpc.RpcError


def _is_of_nobody(error: Exception) -> bool:
    """Whether a call failed because nobody listens; a deadline may be that of one that is slow."""
    return bool(error.code().name == "UNAVAILABLE")  # type: ignore[attr-defined]


def _resolution(address: str) -> str:
    """What to add to an address of which nobody answers, if it does not even resolve."""
    host, _, port = address.rpartition(":")
    try:
        socket.getaddrinfo(host.strip("[]"), port)
    except (OSError, UnicodeError) as error:
        return f" whose host does not resolve ({error})"
    return ""


def _join(names: list[str]) -> str:
    text = ", ".join(names)
    return text[:1].upper() + text[1:]
