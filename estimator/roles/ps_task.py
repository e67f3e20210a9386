"""What a ps task does: it holds variables as long as the chief trains."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.kv_store import PsTaskStore
from estimator.cluster.server import say_waiting, start_server, task_addresses, task_name
from estimator.cluster.task_health import TaskHealth
from estimator.config.run_config import RunConfig
from estimator.console import say
from estimator.roles.completion import CompletionWatch
from estimator.session.signals import StopSignal, stop_signals

_RETURN_SECS = 30.0
_CALL_SECS = 10.0
_log = logging.getLogger("estimator")


def serve_parameters(config: RunConfig) -> int:
    """Serves until the chief's process has ended.

    A chief that ends without having said how its training ended, nor left word of a failure in
    `model_dir`, may come back: it is waited for for half a minute. Of one that fails before it
    comes at all, the word that it leaves is all there is.

    SIGTERM and SIGINT stop the training, whose chief then saves what is here; this task ends after
    it, and at once if there is no chief or the signal comes again.

    Args:
      config: of this ps task.

    Returns:
      The status to exit with: the chief's, or 1 if it did not say and did not come back.

    Raises:
      TimeoutError: the chief did not come at all.
      tf.errors.UnavailableError: the chief does not answer any more.
      ValueError: this task's port is in use.
      KeyboardInterrupt, SystemExit: the signal; see `stop_signals`.
    """
    with stop_signals() as stop:
        try:
            status = _Service(config, stop).run()
        except _EndedError as ended:
            status = ended.exit_status
    own = task_name(str(config.cluster.task_type), config.cluster.task_id).capitalize()
    say("%s ends, as the chief has: exit status %d", own, status)
    return status


class _Service:
    """What a ps task does while it serves: it watches the chief, and for signals."""

    def __init__(self, config: RunConfig, stop: StopSignal) -> None:
        """Starts the server."""
        self._cluster, self._stop = config.cluster, stop
        self._session_config = tf.compat.v1.ConfigProto()
        if config.session_config is not None:
            self._session_config.CopyFrom(config.session_config)
        start_server(self._cluster, self._session_config, config.protocol)
        self._chief = task_addresses(self._cluster, "chief") or {
            "worker 0": task_addresses(self._cluster, "worker")["worker 0"]
        }
        say_waiting(self._cluster, self._chief)
        self._store = PsTaskStore(self._cluster.task_id)
        self._ending = CompletionWatch(config.model_dir)
        self._timeout_secs = config.session_creation_timeout_secs
        self._peer_timeout_secs = config.peer_timeout_secs
        self._has_told = False

    def run(self) -> int:
        """Waits for the end of the chief; returns the status to exit with."""
        silence = self._wait_until_gone(self._timeout_secs)
        with contextlib.suppress(TimeoutError):
            while (told := self._read_result()) == 0:
                # It may have failed before it had a session, by which it would have said so.
                end = self._ending.read()
                if _exit_status(end):
                    return _exit_status(end)
                if silence is not None:
                    raise silence  # It has been waited for already.
                _log.warning("The chief is gone, and has not said why: waiting for it.")
                silence = self._wait_until_gone(min(self._timeout_secs, _RETURN_SECS))
            return told - 1
        _log.error("The chief did not come back.")
        return 1

    def _wait_until_gone(self, timeout_secs: float) -> tf.errors.UnavailableError | None:
        """Returns the error that says so if it does not answer any more, but closed nothing."""
        health = TaskHealth(self._chief, self._peer_timeout_secs)
        with contextlib.closing(health):
            health.wait(timeout_secs, self._check_absent)
            say("The chief is there: serving variables until it ends")
            with health.watched():
                health.wait_until_lost(self._check_present)
                return health.silence()

    def _check_absent(self) -> None:
        """Ends the waiting for a chief that does not come: by a signal, or by word of it."""
        self._stop.end_process()
        end = self._ending.read()
        if self._ending.is_new(end):
            raise _EndedError(_exit_status(end))

    def _check_present(self) -> None:
        """Tells the chief, once it trains, of a signal that came to this task."""
        if self._stop.received is not None and not self._has_told:
            # If the first ps does not answer, this task goes on watching the chief.
            with (
                contextlib.suppress(TimeoutError, tf.errors.UnavailableError),
                self._open(self._store.first_graph, "/job:ps/task:0") as session,
            ):
                self._has_told = self._store.say_stop(session, self._stop.received.name)

    def _read_result(self) -> int:
        with self._open(self._store.own_graph) as session:
            return self._store.result.read(session)

    def _open(self, graph: tf.Graph, *devices: str) -> tf.compat.v1.Session:
        config = tf.compat.v1.ConfigProto()
        config.CopyFrom(self._session_config)
        config.device_filters[:] = [f"/job:ps/task:{self._cluster.task_id}", *devices]
        return _tf.open_session(self._cluster.master, graph, config, _wait_briefly)


def _wait_briefly(is_done: threading.Event) -> None:
    if not is_done.wait(_CALL_SECS):
        raise TimeoutError


class _EndedError(Exception):
    """Training has ended before the chief has come, or come back."""

    def __init__(self, exit_status: int) -> None:
        super().__init__()
        self.exit_status = exit_status


def _exit_status(end: dict[str, Any] | None) -> int:
    return 0 if end is None else int(end.get("exit_status", 0))
