"""Tells the other workers that this one's training has failed, although its process may live on.

Workers that train together wait for each other in collectives. TensorFlow's servers go on after an
error, so others would wait for a process that caught the error as long as it lives.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from estimator.cluster.kv_store import SharedText
from estimator.cluster.server import task_name
from estimator.config.cluster import CHIEF, WORKER, Cluster

_POLL_SECS = 1.0
# How long a call may take: a worker may have ended, or slow Python functions may occupy its server.
_CALL_SECS = 5.0
# How long to wait after a failure until all have ended their calls: otherwise the collectives of a
# training that begins at once would meet those of the one that failed.
_PATIENCE_SECS = 10.0
_MAX_LENGTH = 300
_ENDED = "ended_training"


class FailureNotices:
    """A text for each other worker on this task's server, which that worker may write.

    A notice begins with the id of a training, as it may arrive when the next one has begun.
    """

    def __init__(self, cluster: Cluster, protocol: str | None) -> None:
        """Connects to no server yet.

        Args:
          cluster: the cluster, of which the chief and the workers train together.
          protocol: the protocol of the servers; None is gRPC.
        """
        self._addresses = {
            (role, index): f"{protocol or 'grpc'}://{address}"
            for role in (CHIEF, WORKER)
            for index, address in enumerate(cluster.cluster_spec.get(role, ()))
        }
        self._own = (str(cluster.task_type), cluster.task_id)
        self._others = [task for task in self._addresses if task != self._own]
        self._training = b""
        self._has_failed = False

    @contextlib.contextmanager
    def opened(self, on_failure: Callable[[str, str], None]) -> Iterator[None]:
        """Inside the block, after `begin`, calls `on_failure` if another worker fails.

        Args:
          on_failure: called in another thread, with the name of the worker and with its error.
        """
        device, is_over = _device_of(self._own), threading.Event()
        with tf.Graph().as_default() as graph:
            notices = {task: SharedText(_key_of(task), device) for task in self._others}
            ended = SharedText(_ENDED, device)
        with tf.compat.v1.Session(self._addresses[self._own], graph, _config(device)) as session:
            for notice in notices.values():
                notice.write(session, b"")
            tensors = {task: notice.tensor for task, notice in notices.items()}

            def watch() -> None:
                while not is_over.wait(_POLL_SECS):
                    with contextlib.suppress(tf.errors.DeadlineExceededError):
                        for task, text in session.run(tensors).items():
                            training, _, what = text.partition(b"\n")
                            if self._training and training == self._training:
                                self._has_failed = True
                                on_failure(task_name(*task), what.decode())
                                return

            with concurrent.futures.ThreadPoolExecutor(1, "failure_notices") as thread:
                watching = thread.submit(watch)
                try:
                    yield
                finally:
                    is_over.set()
                    # The others wait for it some seconds at most.
                    with contextlib.suppress(tf.errors.DeadlineExceededError):
                        ended.write(session, self._training)
                    if self._has_failed:
                        self._on_others(self._wait_until_ended)
            watching.result()

    def begin(self, training: bytes) -> None:
        """Sets the id of the training, which is that of no other."""
        self._training = training

    def tell(self, error: BaseException) -> None:
        """Tells the other workers that this one's training ends with an error."""
        self._has_failed = True
        line = (str(error).splitlines() or [""])[0][:_MAX_LENGTH]
        text = b"\n".join([self._training, f"{type(error).__name__}: {line}".encode()])

        def write(notice: SharedText, ended: SharedText, session: tf.compat.v1.Session) -> None:
            del ended
            notice.write(session, text)

        self._on_others(write)

    def _wait_until_ended(
        self, notice: SharedText, ended: SharedText, session: tf.compat.v1.Session
    ) -> None:
        """Waits for some seconds at most."""
        del notice
        end = time.monotonic() + _PATIENCE_SECS
        while ended.read(session) != self._training and time.monotonic() < end:
            time.sleep(_POLL_SECS / 5)

    def _on_others(
        self, call: Callable[[SharedText, SharedText, tf.compat.v1.Session], None]
    ) -> None:
        """Calls `call` for all other workers at once, with a session on each one's server."""

        def call_one(task: tuple[str, int]) -> None:
            device = _device_of(task)
            with tf.Graph().as_default() as graph:
                notice = SharedText(_key_of(self._own), device)
                ended = SharedText(_ENDED, device)
            # It may have ended itself.
            with (
                contextlib.suppress(tf.errors.OpError),
                tf.compat.v1.Session(self._addresses[task], graph, _config(device)) as session,
            ):
                call(notice, ended, session)

        with concurrent.futures.ThreadPoolExecutor(len(self._others)) as threads:
            list(threads.map(call_one, self._others))


def _device_of(task: tuple[str, int]) -> str:
    return "/job:{}/task:{}/cpu:0".format(*task)


def _key_of(task: tuple[str, int]) -> str:
    return "failure_of_{}_{}".format(*task)


def _config(device: str) -> tf.compat.v1.ConfigProto:
    """Returns the config of a session that reaches one task alone."""
    return tf.compat.v1.ConfigProto(
        device_filters=[device.rpartition("/")[0]], operation_timeout_in_ms=int(_CALL_SECS * 1000)
    )
