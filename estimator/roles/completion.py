"""How tasks that do not train learn of the end of training, from the file that the chief writes."""

from __future__ import annotations

import collections
import contextlib
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files
from estimator.cluster.server import task_name
from estimator.cluster.task_health import StartTimeoutError, TaskHealth
from estimator.config.run_config import RunConfig
from estimator.console import log
from estimator.training.end_record import NAME, read_end

_IMPORTED_AT = time.monotonic()
# By how much a file's time may be ahead of the clock: file systems round, and machines differ.
_CLOCK_ERROR_SECS = 1.0

# By `model_dir`: how many calls of `train_and_evaluate` this process has completed.
_completed: collections.Counter[str] = collections.Counter()


class ChiefWatch:
    """Tracks how long an evaluator has not heard from the chief, which may be restarted."""

    def __init__(self, config: RunConfig, clock: Callable[[], float]) -> None:
        """Watches nothing if the chief trains alone, without a server, or if its port is unknown.

        Args:
          config: the evaluator's config.
          clock: returns seconds since an arbitrary fixed time.
        """
        tasks = config.cluster.addresses
        role = "chief" if "chief" in tasks else "worker"
        is_alone = sum(len(tasks.get(name, ())) for name in ("chief", "worker", "ps")) < 2
        is_alone = is_alone or tasks[role][0].endswith(":0")
        self._name = task_name(role, 0)
        self._address = "" if is_alone else tasks[role][0]
        chief = {} if is_alone else {self._name: self._address}
        self._health = TaskHealth(chief, config.peer_timeout_secs)
        self._health.heartbeat.start()
        self._model_dir = config.model_dir
        self._timeout_secs = config.session_creation_timeout_secs
        self._clock = clock
        self._heard_at = clock()
        self._news: Any = None

    def check(self, news: Any) -> None:
        """Raises an error if the chief has not been heard from for too long.

        Args:
          news: the state of training so far; a change is a sign of life.

        Raises:
          TimeoutError: the chief, named in the message, has been silent for too long.
        """
        if not self._health:
            return
        if news != self._news or not self._health.is_gone(self._name):
            self._news, self._heard_at = news, self._clock()
        elif self._clock() - self._heard_at >= self._timeout_secs:
            name = self._name[:1].upper() + self._name[1:]
            raise TimeoutError(
                f"{name} ({self._address}) has not been reachable for "
                f"`session_creation_timeout_secs` ({self._timeout_secs:g}), and has written "
                "neither a new checkpoint nor the end of training to `model_dir` "
                f"({self._model_dir}). Its own log says why. Start it again, and this evaluator, "
                "which resumes where it stopped."
            )

    def close(self) -> None:
        """Closes the connection."""
        self._health.close()


class CompletionWatch:
    """Distinguishes the end of this training from that of an earlier one in the same directory."""

    def __init__(self, model_dir: str | None) -> None:
        """Considers an end older than this process to belong to an earlier training.

        Compares times by the file system's clock only, because the clocks of two machines may
        differ. All tasks are started at about the same time, so a file written later belongs to
        this training; an older file is ambiguous: the chief may have ended already, or not started
        yet.

        A program may call `train_and_evaluate` several times, in all tasks, and the chief may be
        ahead or behind: an end of a call that this process has completed is old, too.

        Args:
          model_dir: the directory that the chief writes to; None if unknown.
        """
        self._model_dir = model_dir
        end = self.read()
        self._old = end if end is not None and _is_older_than_process(str(model_dir)) else None

    def read(self) -> dict[str, Any] | None:
        """Returns what the chief wrote last; None if training has not ended."""
        return None if self._model_dir is None else read_end(self._model_dir)

    def is_new(self, end: dict[str, Any] | None) -> bool:
        """Returns whether `end`, from `read`, belongs to this training, as far as is known."""
        if end != self._old:
            self._old = None
        return end is not None and self._old is None and _is_ahead(end, str(self._model_dir))


def check_ended_early(config: RunConfig, absence: StartTimeoutError) -> None:
    """Raises an error unless training ended well before `max_steps`; warns if it did.

    A new training may be about to begin, so call this only when others have been waited for as long
    as ever. An end at `max_steps` does not count: either that was raised, or `left_alone.py` knows.

    Args:
      config: this task's config; the chief must have recorded the end in its `model_dir`.
      absence: the error to raise, which names the tasks that do not answer.
    """
    model_dir = str(config.model_dir)
    end = (not config.is_chief and read_end(model_dir)) or {}
    is_early = end.get("exit_status") == 0 and end.get("reason", "max_steps") != "max_steps"
    if not is_early or not _is_ahead(end, model_dir):
        raise absence
    log.warning(
        "Training has ended (%s), according to %s in `model_dir`: this task ends, too. %s",
        end["reason"],
        NAME,
        absence,
    )


def _is_ahead(end: dict[str, Any], model_dir: str) -> bool:
    """Returns whether an end is not of a call that this process has completed."""
    call = end.get("call")
    return not isinstance(call, int) or call > completed_calls(model_dir)


def completed_calls(model_dir: str) -> int:
    """Returns how many calls of `train_and_evaluate` this process has completed there."""
    return _completed[model_dir]


def complete_call(model_dir: str) -> None:
    """Notes that a call of `train_and_evaluate` returns."""
    _completed[model_dir] += 1


def _is_older_than_process(model_dir: str) -> bool:
    """Returns whether the end of training was written before this process started.

    A time in the future is that of a copy, or from before a clock was set back.
    """
    written_at = _written_at(os.path.join(model_dir, NAME))
    if written_at is None:
        return False
    age_secs = _now_of(model_dir) - written_at
    return age_secs > _age_secs() or age_secs < -_CLOCK_ERROR_SECS


def _now_of(model_dir: str) -> float:
    """Returns the time of the directory's file system; this machine's if it is not writable."""
    path = os.path.join(model_dir, f".{NAME}.{uuid.uuid4().hex}")
    now = None
    with contextlib.suppress(tf.errors.OpError):
        with tf.io.gfile.GFile(path, "w") as file:
            file.write("")
        now = _written_at(path)
        tf.io.gfile.remove(path)
    return time.time() if now is None else now


def _written_at(path: str) -> float | None:
    """Returns when a file was written, in seconds since the epoch; None if it does not exist."""
    try:
        return float(tf.io.gfile.stat(path).mtime_nsec) / 1e9
    except tf.errors.OpError:
        return None


def _age_secs() -> float:
    """Returns how long this process has run, as far as can be determined."""
    try:
        with open("/proc/self/stat") as file:
            ticks = float(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):  # Other systems than Linux.
        return time.monotonic() - _IMPORTED_AT


def checkpoints_oldest_first(model_dir: str) -> list[tuple[int, str]]:
    """Returns the existing checkpoints with their steps, in ascending order.

    Leaves out those newer than the one that the file `checkpoint` names: they are still being
    saved, or were when the chief was killed, which saves them again.
    """
    paths = files.checkpoints_newest_first(model_dir)
    newest = files.checkpoint_step(paths[0]) if paths else None
    found = [(step, path) for path in paths if (step := files.checkpoint_step(path)) is not None]
    return sorted((step, path) for step, path in found if newest is None or step <= newest)
