"""What tasks that do not train know of the end of training: the files that the chief leaves."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files
from estimator.cluster.server import task_name
from estimator.cluster.task_health import TaskHealth
from estimator.config.run_config import RunConfig

_NAME = "training-ended.json"
_IMPORTED_AT = time.monotonic()


class ChiefWatch:
    """How long an evaluator has heard nothing of the chief; one that comes back is waited for."""

    def __init__(self, config: RunConfig, clock: Callable[[], float]) -> None:
        """Watches nobody if the chief trains alone: it has no server that would answer.

        Nor if its port is not known here.

        Args:
          config: of the evaluator.
          clock: seconds from any fixed moment.
        """
        tasks = config.cluster.addresses
        role = "chief" if "chief" in tasks else "worker"
        is_alone = sum(len(tasks.get(name, ())) for name in ("chief", "worker", "ps")) < 2
        is_alone = is_alone or tasks[role][0].endswith(":0")
        self._name = task_name(role, 0)
        self._address = "" if is_alone else tasks[role][0]
        chief = {} if is_alone else {self._name: self._address}
        self._health = TaskHealth(chief, config.peer_timeout_secs)
        self._health.start_checks()
        self._model_dir = config.model_dir
        self._timeout_secs = config.session_creation_timeout_secs
        self._clock = clock
        self._heard_at = clock()
        self._news: Any = None

    def check(self, news: Any) -> None:
        """Raises if nothing was heard for long.

        Args:
          news: what training has left so far; another than before is a sign of life.

        Raises:
          TimeoutError: names the chief.
        """
        if not self._health:
            return
        if news != self._news or not self._health.is_gone(self._name):
            self._news, self._heard_at = news, self._clock()
        elif self._clock() - self._heard_at >= self._timeout_secs:
            name = self._name[:1].upper() + self._name[1:]
            raise TimeoutError(
                f"{name} ({self._address}) has not been there for `session_creation_timeout_secs` "
                f"({self._timeout_secs:g}), and left neither a new checkpoint nor word of the end "
                f"of training in `model_dir` ({self._model_dir}). Its own log says why. Start it "
                "again, and this evaluator, which goes on where it stood."
            )

    def close(self) -> None:
        """Closes the connection."""
        self._health.close()


class CompletionWatch:
    """Tells the end of this training from that of an earlier one in the same directory."""

    def __init__(self, model_dir: str | None) -> None:
        """Takes an end that is older than this process for that of an earlier training.

        By the clock of the file system alone: those of two machines may differ. All tasks are
        started together, more or less, so what is written later is of this training; of what is
        older one cannot know: the chief may have ended, or not come yet.

        Args:
          model_dir: where the chief leaves word; None if that is not known.
        """
        self._model_dir = model_dir
        end = self.read()
        self._old = end if end is not None and _is_older_than_process(str(model_dir)) else None

    def read(self) -> dict[str, Any] | None:
        """What the chief said last; None if training goes on."""
        return None if self._model_dir is None else read_end(self._model_dir)

    def is_new(self, end: dict[str, Any] | None) -> bool:
        """Whether what `read` returned is not of an earlier training, as far as one can tell."""
        if end != self._old:
            self._old = None
        return end is not None and self._old is None


def _is_older_than_process(model_dir: str) -> bool:
    """Whether the end of training was written before this process was started."""
    written_at = _written_at(os.path.join(model_dir, _NAME))
    now = _now_of(model_dir)
    return written_at is not None and now - written_at > _age_secs()


def _now_of(model_dir: str) -> float:
    """The time by the clock that dates the files there; this machine's if it may not write."""
    path = os.path.join(model_dir, f".{_NAME}.{uuid.uuid4().hex}")
    now = None
    with contextlib.suppress(tf.errors.OpError):
        with tf.io.gfile.GFile(path, "w") as file:
            file.write("")
        now = _written_at(path)
        tf.io.gfile.remove(path)
    return time.time() if now is None else now


def _written_at(path: str) -> float | None:
    """When a file was written, in seconds since the epoch; None without it."""
    try:
        return float(tf.io.gfile.stat(path).mtime_nsec) / 1e9
    except tf.errors.OpError:
        return None


def _age_secs() -> float:
    """How long this process has run, as far as one can tell."""
    try:
        with open("/proc/self/stat") as file:
            ticks = float(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):  # Not on Linux.
        return time.monotonic() - _IMPORTED_AT


def clear_end(model_dir: str) -> None:
    """Training begins: it has not ended yet."""
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(os.path.join(model_dir, _NAME))


def write_end(model_dir: str, **facts: Any) -> None:
    """Says that training has ended, and how; the file appears whole.

    No two ends are equal, so that one which reads the file rarely does not take a new one for old.
    """
    tf.io.gfile.makedirs(model_dir)
    path = os.path.join(model_dir, _NAME)
    with tf.io.gfile.GFile(path + ".tmp", "w") as file:
        file.write(json.dumps({"at": time.time(), "id": uuid.uuid4().hex, **facts}))
    tf.io.gfile.rename(path + ".tmp", path, overwrite=True)


def read_end(model_dir: str) -> dict[str, Any] | None:
    """What `write_end` said last; None if training goes on."""
    try:
        with tf.io.gfile.GFile(os.path.join(model_dir, _NAME)) as file:
            return json.loads(file.read())
    except tf.errors.NotFoundError:
        return None


def checkpoints_oldest_first(model_dir: str) -> list[tuple[int, str]]:
    """The checkpoints that are there, with their steps, ascending."""
    found = [
        (step, path)
        for path in files.checkpoints_newest_first(model_dir)
        if (step := files.checkpoint_step(path)) is not None
    ]
    return sorted(found)
