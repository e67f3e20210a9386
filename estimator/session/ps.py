"""What a ps task does: it holds variables as long as the chief trains."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.config.run_config import RunConfig
from estimator.session.following import EndWatch
from estimator.session.peers import Peers
from estimator.session.server import start_server, task_addresses
from estimator.session.shared import SharedNumber

_RETURN_SECS = 30.0
_log = logging.getLogger("estimator")


def serve_parameters(config: RunConfig) -> int:
    """Serves until the chief's process has ended.

    A chief that ends without having said how its training ended, nor left word of a failure in
    `model_dir`, may come back: it is waited for for half a minute. Of one that fails before it
    comes at all, the word that it leaves is all there is.

    Args:
      config: of this ps task.

    Returns:
      The status to exit with: the chief's, or 1 if it did not say and did not come back.

    Raises:
      TimeoutError: the chief did not come at all.
      ValueError: this task's port is in use.
    """
    cluster = config.cluster
    session_config = tf.compat.v1.ConfigProto()
    if config.session_config is not None:
        session_config.CopyFrom(config.session_config)
    start_server(cluster, session_config, config.protocol)
    chief = task_addresses(cluster, "chief") or {
        "worker 0": task_addresses(cluster, "worker")["worker 0"]
    }
    own = f"/job:ps/task:{cluster.task_id}"
    watch = EndWatch(config.model_dir)
    with tf.Graph().as_default() as graph:
        result = SharedNumber("result", cluster.task_id)
        session_config.device_filters.append(own)
        with tf.compat.v1.Session(cluster.master, graph=graph, config=session_config) as session:
            try:
                return _follow_chief(
                    chief, lambda: result.read(session), watch, config.session_creation_timeout_secs
                )
            except _EndedError as ended:
                return ended.exit_status


class _EndedError(Exception):
    """Training has ended before the chief has come, or come back."""

    def __init__(self, exit_status: int) -> None:
        super().__init__()
        self.exit_status = exit_status


def _follow_chief(
    chief: dict[str, str], read_result: Callable[[], int], watch: EndWatch, timeout_secs: float
) -> int:
    """Waits for the end of the chief; returns the status to exit with."""

    def check() -> None:
        end = watch.read()
        if watch.is_new(end):
            raise _EndedError(_exit_status(end))

    _wait_until_gone(chief, timeout_secs, check)
    with contextlib.suppress(TimeoutError):
        while (told := read_result()) == 0:
            # It may have failed before it had a session, by which it would have said so.
            end = watch.read()
            if _exit_status(end):
                return _exit_status(end)
            _log.warning("The chief is gone, and has not said why: waiting for it.")
            _wait_until_gone(chief, min(timeout_secs, _RETURN_SECS), check)
        return told - 1
    _log.error("The chief did not come back.")
    return 1


def _exit_status(end: dict[str, Any] | None) -> int:
    return 0 if end is None else int(end.get("exit_status", 0))


def _wait_until_gone(chief: dict[str, str], timeout_secs: float, check: Callable[[], None]) -> None:
    peers = Peers(chief)
    with contextlib.closing(peers):
        peers.wait(timeout_secs, check)
        with peers.watched():
            peers.wait_until_lost()
