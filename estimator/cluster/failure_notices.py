"""Tells the other workers that this one's training has failed, although its process may live on.

Workers that train together wait for each other in collectives. TensorFlow's servers go on after an
error, so others would wait for a process that caught the error as long as it lives.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, TypeAlias

import tensorflow as tf

from estimator.cluster.kv_store import SharedText, read_written
from estimator.cluster.server import session_target, task_name
from estimator.config.cluster import CHIEF, WORKER, Cluster

_POLL_SECS = 1.0
# While the others wait for what this worker hears or says.
_SHORT_POLL_SECS = 0.1
# How long a call may take: a worker may have ended, or slow Python functions may occupy its server.
_CALL_SECS = 5.0
# How long to wait after a failure for the others to end their calls.
_PATIENCE_SECS = 30.0
_MAX_LENGTH = 300
_ENDED = "ended_training"
_NUMBERED = b"training number "

OnFailure: TypeAlias = Callable[[str, str, Callable[[], None]], None]
_Task: TypeAlias = tuple[str, int]
_Call: TypeAlias = Callable[[SharedText, tf.compat.v1.Session], None]


class FailureNotices:
    """A text for each other worker on this task's server, which that worker may write.

    A notice begins with the id of a training, as it may arrive when the next one has begun. Until
    the workers have agreed on one, the number of trainings in this process stands for it, which is
    equal on all of them unless one was restarted alone.

    Attributes:
      number: the number of the training in this process.
    """

    _next_number: ClassVar[int] = 0
    # The notice of the last training that failed before this worker had joined the others, as some
    # of them may not have started by then.
    _undelivered: ClassVar[bytes] = b""

    def __init__(self, cluster: Cluster, protocol: str | None) -> None:
        """Connects to no server yet.

        Args:
          cluster: the cluster, of which the chief and the workers train together.
          protocol: the protocol of the servers; None is gRPC.
        """
        self._addresses = {
            (role, index): session_target(address, protocol)
            for role in (CHIEF, WORKER)
            for index, address in enumerate(cluster.cluster_spec.get(role, ()))
        }
        self._own = (str(cluster.task_type), cluster.task_id)
        self._others = [task for task in self._addresses if task != self._own]
        self.number = FailureNotices._next_number
        FailureNotices._next_number += 1
        self._training = self._numbered = b"%s%d" % (_NUMBERED, self.number)
        self._is_joining = self._has_begun = self._has_failed = False
        self._have_all_arrived = threading.Event()
        # The tasks to write to, with the key and the text.
        self._outbox: queue.SimpleQueue[tuple[_Task, str, bytes]] = queue.SimpleQueue()

    @contextlib.contextmanager
    def telling_before_joining(self) -> Iterator[None]:
        """Tells the others of an error in the block, unless it is raised after `join`.

        Some may not have started yet, and hear of it when this worker joins them the next time.
        """
        try:
            yield
        except BaseException as error:
            if not self._is_joining:
                self.tell(error)
                self._on(self._own, _ENDED, functools.partial(_write, self._training))
                FailureNotices._undelivered = self._notice_of(error)
            raise

    def join(self) -> None:
        """Ends `telling_before_joining`: this worker waits for the others now."""
        self._is_joining = True

    @contextlib.contextmanager
    def opened(self, on_failure: OnFailure) -> Iterator[None]:
        """Inside the block, calls `on_failure` if another worker fails.

        Args:
          on_failure: called in another thread, with the name of the worker, with its error, and
            with a function that returns when this worker should end its calls.
        """
        if self._undelivered:
            self._send_to_others(_key_of(self._own), self._undelivered)
            FailureNotices._undelivered = b""
        device, is_over = _device_of(self._own), threading.Event()
        with tf.Graph().as_default() as graph:
            failures = {task: SharedText(_key_of(task), device) for task in self._others}
            arrivals = {task: SharedText(_arrival_of(task), device) for task in self._others}
            ended = SharedText(_ENDED, device)
        with tf.compat.v1.Session(self._addresses[self._own], graph, _config(device)) as session:

            def watch() -> None:
                while not is_over.wait(self._poll_secs()):
                    self._deliver()
                    with contextlib.suppress(tf.errors.DeadlineExceededError):
                        lost = self._find_failed(read_written(failures, session))
                        if lost is None and not self._have_all_arrived.is_set():
                            lost = self._note_arrivals(read_written(arrivals, session))
                        if lost is not None:
                            self._has_failed = True
                            on_failure(*lost, self._wait_for_turn)
                            return

            with concurrent.futures.ThreadPoolExecutor(1, "failure_notices") as thread:
                watching = thread.submit(watch)
                try:
                    yield
                finally:
                    is_over.set()
                    # Else the others wait in vain, but not forever.
                    with contextlib.suppress(tf.errors.DeadlineExceededError):
                        ended.write(session, self._training)
                    if self._has_begun and self._has_failed:
                        self._on_others(_ENDED, self._wait_until_ended)
            watching.result()

    def _find_failed(self, failures: Mapping[_Task, bytes]) -> tuple[str, str] | None:
        """Returns the name of a worker whose training has failed, and its error; or None."""
        notices = {task: text.partition(b"\n") for task, text in failures.items()}
        # A notice that names this training counts before one of a later training.
        for is_it in (self._is_this, self._concerns_this):
            for task, (training, _, what) in notices.items():
                if is_it(training):
                    return task_name(*task), what.decode()
        return None

    def _note_arrivals(self, arrivals: Mapping[_Task, bytes]) -> tuple[str, str] | None:
        """Notes whether all have arrived; returns the name of one that will not, and why."""
        for task, training in arrivals.items():
            if self._is_later(training):
                # If this process was restarted alone, its next training is the one they wait in.
                FailureNotices._next_number = self._number_of(training)
                return task_name(*task), "it is in a later training, without this worker"
        if all(arrivals.get(task) == self._training for task in self._others):
            self._have_all_arrived.set()
        return None

    def meet(self, wait: Callable[[threading.Event], None]) -> None:
        """Waits until all workers have arrived here, which one that has failed before does not.

        In a collective, they could not wait for it: if such a call is cancelled before all have
        joined it, TensorFlow lets no collective of the process run again.

        Args:
          wait: waits until the event is set, or raises an error if a worker is lost.
        """
        self._send_to_others(_arrival_of(self._own), self._training)
        wait(self._have_all_arrived)

    def _poll_secs(self) -> float:
        is_waited_for = not self._has_begun or not self._outbox.empty()
        return _SHORT_POLL_SECS if is_waited_for else _POLL_SECS

    def _send_to_others(self, key: str, text: bytes) -> None:
        """Writes to all others, in the thread of `opened`, until each has it."""
        for task in self._others:
            self._outbox.put((task, key, text))

    def _deliver(self) -> None:
        """Writes what is in the outbox; what cannot be delivered yet stays there."""
        messages = [self._outbox.get() for _ in range(self._outbox.qsize())]
        if not messages:
            return

        def write(message: tuple[_Task, str, bytes]) -> bool:
            task, key, text = message
            return self._on(task, key, functools.partial(_write, text))

        with concurrent.futures.ThreadPoolExecutor(len(messages)) as threads:
            for message, is_delivered in zip(messages, threads.map(write, messages), strict=True):
                if not is_delivered:
                    self._outbox.put(message)

    def begin(self, training: bytes) -> None:
        """Sets the id of the training, on which all workers have agreed."""
        self._training, self._has_begun = training, True

    def tell(self, error: BaseException) -> None:
        """Tells the other workers that this one's training ends with an error."""
        self._has_failed = True
        write = functools.partial(_write, self._notice_of(error))
        self._on_others(_key_of(self._own), write)

    def _notice_of(self, error: BaseException) -> bytes:
        return b"\n".join([self._training, _in_one_line(error).encode()])

    def _concerns_this(self, training: bytes) -> bool:
        """Returns whether a worker that names `training` means this one, or has left it."""
        return self._is_this(training) or (not self._has_begun and self._is_later(training))

    def _is_this(self, training: bytes) -> bool:
        return training in (self._training, self._numbered)

    def _is_later(self, training: bytes) -> bool:
        return training.startswith(_NUMBERED) and self._number_of(training) > self.number

    def _number_of(self, training: bytes) -> int:
        return int(training.removeprefix(_NUMBERED))

    def _wait_for_turn(self) -> None:
        """Waits until the worker that comes next in the ring of collectives has ended its calls.

        That one receives from this one. If this one's call ended first, the other's would fail
        before it is cancelled, and then TensorFlow lets no collective of that process run again.
        """
        ring = sorted(self._addresses, key=_device_of)
        successor = ring[(ring.index(self._own) + 1) % len(ring)]
        self._on(successor, _ENDED, self._wait_until_ended)

    def _wait_until_ended(self, ended: SharedText, session: tf.compat.v1.Session) -> None:
        """Waits until a worker has ended its calls, or for `_PATIENCE_SECS`."""
        end = time.monotonic() + _PATIENCE_SECS
        while not self._concerns_this(ended.read(session)) and time.monotonic() < end:
            time.sleep(_POLL_SECS / 5)

    def _on_others(self, key: str, call: _Call) -> None:
        """Calls `call` with the text of that key on each other worker's server, all at once."""
        with concurrent.futures.ThreadPoolExecutor(len(self._others)) as threads:
            list(threads.map(lambda task: self._on(task, key, call), self._others))

    def _on(self, task: _Task, key: str, call: _Call) -> bool:
        """Calls `call` with a text on a worker's server; returns False if that does not answer."""
        device = _device_of(task)
        with tf.Graph().as_default() as graph:
            text = SharedText(key, device)
        with (
            contextlib.suppress(tf.errors.OpError),
            tf.compat.v1.Session(self._addresses[task], graph, _config(device)) as session,
        ):
            call(text, session)
            return True
        return False


def _write(value: bytes, text: SharedText, session: tf.compat.v1.Session) -> None:
    text.write(session, value)


def _in_one_line(error: BaseException) -> str:
    """Returns the type of an error and the first line of what happened."""
    # A session raises an error again, with the stack of the op before what happened.
    is_again = isinstance(error, tf.errors.OpError) and isinstance(error.__context__, type(error))
    lines = str(error.__context__ if is_again else error).splitlines()
    # A server adds its name.
    line = next((line for line in lines if not line.startswith("From /job:")), "")
    return f"{type(error).__name__}: {line[:_MAX_LENGTH]}"


def _device_of(task: _Task) -> str:
    return "/job:{}/task:{}/cpu:0".format(*task)


def _key_of(task: _Task) -> str:
    return "failure_of_{}_{}".format(*task)


def _arrival_of(task: _Task) -> str:
    return "arrival_of_{}_{}".format(*task)


def _config(device: str) -> tf.compat.v1.ConfigProto:
    """Returns the config of a session that reaches one task alone."""
    return tf.compat.v1.ConfigProto(
        device_filters=[device.rpartition("/")[0]], operation_timeout_in_ms=int(_CALL_SECS * 1000)
    )
