"""Runs a ps task, which holds variables as long as the chief trains."""

from __future__ import annotations

import contextlib
import copy
import threading
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.kv_store import SharedNumber, encode_stop, on_ps
from estimator.cluster.server import chief_address, say_waiting, start_server, task_name
from estimator.cluster.task_health import StartTimeoutError, TaskHealth
from estimator.config.run_config import RunConfig
from estimator.console import log, say
from estimator.roles.completion import CompletionWatch, check_ended_early
from estimator.session.signals import StopSignal, stop_signals

_RETURN_SECS = 30.0
_CALL_SECS = 10.0


def serve_parameters(config: RunConfig) -> int:
    """Serves variables until the chief's process has ended.

    A chief that ends without reporting how training ended, and without recording it in `model_dir`,
    may come back: this task waits for it for half a minute. A chief that ends before it connects
    can only report that through `model_dir`.

    SIGTERM and SIGINT stop the training, after which the chief saves the variables held here. This
    task then ends after the chief; it ends at once if there is no chief, or if the signal is
    received again.

    Args:
      config: this ps task's config.

    Returns:
      The exit status: the chief's, or 1 if it did not report one and did not come back.

    Raises:
      TimeoutError: the chief never connected.
      tf.errors.UnavailableError: the chief has stopped answering.
      ValueError: this task's port is in use.
      KeyboardInterrupt, SystemExit: a signal was received; see `stop_signals`.
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
    """A running ps task, which watches the chief and handles signals."""

    def __init__(self, config: RunConfig, stop: StopSignal) -> None:
        """Starts the server."""
        self._config, self._cluster, self._stop = config, config.cluster, stop
        # Before the server, so that the failure of a chief that starts meanwhile counts as new.
        self._ending = CompletionWatch(config.model_dir)
        given = config.session_config
        self._session_config = copy.deepcopy(given) or tf.compat.v1.ConfigProto()
        start_server(self._cluster, self._session_config, config.protocol)
        self._chief = chief_address(self._cluster)
        say_waiting(self._cluster, self._chief)
        self._timeout_secs = config.session_creation_timeout_secs
        self._peer_timeout_secs = config.peer_timeout_secs
        self._has_told = False

    def run(self) -> int:
        """Waits until the chief has ended; returns the exit status."""
        try:
            silence = self._wait_until_gone(self._timeout_secs)
        except StartTimeoutError as error:
            check_ended_early(self._config, error)
            return 0
        with contextlib.suppress(TimeoutError):
            while (told := self._read_result()) == 0:
                # It may have ended before it had a session through which to report that.
                end = self._ending.read()
                if self._ending.is_new(end) or _exit_status(end):
                    return _exit_status(end)
                if silence is not None:
                    raise silence  # The task has already waited for it.
                log.warning(
                    "The chief has ended without reporting why: waiting for it to come back."
                )
                silence = self._wait_until_gone(min(self._timeout_secs, _RETURN_SECS))
            return told - 1
        log.error("The chief did not come back.")
        return 1

    def _wait_until_gone(self, timeout_secs: float) -> tf.errors.UnavailableError | None:
        """Waits until the chief is gone; returns an error if it just stopped answering."""
        health = TaskHealth(self._chief, self._peer_timeout_secs)
        with contextlib.closing(health):
            health.wait(timeout_secs, self._check_absent)
            say("The chief has started: serving variables until it ends")
            with health.watched():
                health.wait_until_lost(self._check_present)
                return health.silence()

    def _check_absent(self) -> None:
        """Ends the wait for a chief, on a signal or when training has ended."""
        self._stop.end_process()
        end = self._ending.read()
        if self._ending.is_new(end):
            raise _EndedError(_exit_status(end))

    def _check_present(self) -> None:
        """Forwards a signal that this task received to the chief, once it trains."""
        if self._stop.received is None or self._has_told:
            return
        with tf.Graph().as_default() as graph:
            ready, stop = SharedNumber("ready", on_ps(0)), SharedNumber("stop", on_ps(0))
        # If the first ps task does not answer, this task keeps watching the chief.
        with (
            contextlib.suppress(TimeoutError, tf.errors.UnavailableError),
            self._open(graph, "/job:ps/task:0") as session,
        ):
            if count := ready.read(session):
                stop.write(session, encode_stop(count, self._stop.received.name))
                self._has_told = True

    def _read_result(self) -> int:
        """Returns how training ended: 1 plus the exit status; 0 if the chief did not report it."""
        # A session places its whole graph: an op on the first ps task, which may be gone, would
        # make this call fail.
        with tf.Graph().as_default() as graph:
            result = SharedNumber("result", on_ps(self._cluster.task_id))
        with self._open(graph) as session:
            return result.read(session)

    def _open(self, graph: tf.Graph, *devices: str) -> tf.compat.v1.Session:
        config = copy.deepcopy(self._session_config)
        config.device_filters[:] = [f"/job:ps/task:{self._cluster.task_id}", *devices]
        return _tf.open_session(self._cluster.master, graph, config, _wait_briefly)


def _wait_briefly(is_done: threading.Event) -> None:
    if not is_done.wait(_CALL_SECS):
        raise TimeoutError


class _EndedError(Exception):
    """Raised when training has ended before the chief connected, or came back."""

    def __init__(self, exit_status: int) -> None:
        super().__init__()
        self.exit_status = exit_status


def _exit_status(end: dict[str, Any] | None) -> int:
    return 0 if end is None else int(end.get("exit_status", 0))
