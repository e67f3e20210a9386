"""`metrics.jsonl`: the progress of training and evaluation, as JSON lines for other programs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.console import log
from estimator.summary.whole_file import write_file

FILE_NAME = "metrics.jsonl"
# Larger arrays are left out of the lines.
_MAX_VALUES = 1000
# How much of the end is read to find a line that an evaluation of the last steps repeats.
_TAIL_BYTES = 1 << 16
# How long to wait for another process, which holds the lock for a line.
_LOCK_PATIENCE_SECS = 5.0
_LOCK_POLL_SECS = 0.01
# Directories that somebody else has locked for longer than that.
_kept_locked: set[str] = set()


class MetricsLog:
    """Writes one JSON object per line: a line for each reported step and each evaluation.

    Training lines have the `kind` "train" with `step`, `loss` and `steps_per_sec`. Evaluation lines
    have the `kind` "eval" with `name`, `step`, `loss` and the other `metrics` by name. `wall_time`
    is in seconds since the epoch. Numbers that are not finite are null.

    Each line is a single write. A killed run may leave an incomplete line, and lines of steps that
    the next run repeats: that run removes both, by replacing the file, before it adds its first
    line.
    """

    def __init__(self, model_dir: str, clock: Callable[[], float] = time.time) -> None:
        """Creates no file: the first line written does."""
        self._model_dir = model_dir
        self._path = os.path.join(model_dir, FILE_NAME)
        self._clock = clock
        self._has_made_dir = False
        self._has_failed = False

    def resume_from(self, step: int) -> None:
        """Removes the lines after `step`, from which training resumes."""
        if not tf.io.gfile.exists(self._path):
            return
        self._write(lambda: self._keep(lambda line: _step_of(line) <= step))

    def write_train(self, step: int, loss: float | None, steps_per_sec: float) -> None:
        """Adds a line for a training step."""
        line = {"kind": "train", "step": step, "loss": _plain(loss)}
        line["steps_per_sec"] = round(steps_per_sec, 3)
        self._write(lambda: self._append(line))

    def write_eval(self, name: str | None, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds a line for an evaluation, replacing any line of the same name and step.

        Args:
          name: the name of the evaluation, or None.
          step: the step that was evaluated.
          metrics: "loss" and others. Images and arrays of more than 1,000 values are omitted.
        """
        values = {key: _plain(value) for key, value in metrics.items() if _has_plain(value)}
        loss = values.pop("loss", None)
        values.pop("global_step", None)
        key = {"kind": "eval", "name": name, "step": step}
        self._write(lambda: self._replace(key, {"loss": loss, "metrics": values}))

    def _replace(self, key: dict[str, Any], values: dict[str, Any]) -> None:
        """Adds an evaluation's line, and removes one of the same key."""
        tail, step = self._read_tail(), key["step"]
        lines = tail.splitlines(keepends=True)
        is_there = any(_is_of(line, key) for line in lines)
        # Its line may be before the tail.
        is_old = len(tail) == _TAIL_BYTES and step < max(map(_step_of, lines))
        if is_there or is_old or not tail.endswith(b"\n"):
            self._keep(lambda line: not _is_of(line, key))
        self._append({**key, **values})

    def _write(self, write: Callable[[], None]) -> None:
        """Calls a function with the file locked; its error costs a line, not the training."""
        try:
            if not self._has_made_dir:  # One that was removed later is not wanted.
                tf.io.gfile.makedirs(self._model_dir)
                self._has_made_dir = True
            with _locked(self._model_dir):
                if self._has_failed and tf.io.gfile.exists(self._path):
                    self._keep(lambda line: True)  # Without the line that is incomplete.
                write()
            self._has_failed = False
        except (OSError, tf.errors.OpError) as error:
            if not self._has_failed:
                log.warning("%s cannot be written: %s", self._path, error)
            self._has_failed = True

    def _append(self, values: dict[str, Any]) -> None:
        values["wall_time"] = round(self._clock(), 3)
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(values, allow_nan=False) + "\n")

    def _read_tail(self) -> bytes:
        """Returns the end of the file, perhaps from inside a line; a newline if it is empty."""
        if not tf.io.gfile.exists(self._path):
            return b"\n"
        with tf.io.gfile.GFile(self._path, "rb") as file:
            file.seek(max(0, file.size() - _TAIL_BYTES))
            return file.read() or b"\n"

    def _keep(self, is_wanted: Callable[[bytes], bool]) -> None:
        """Keeps only complete lines that are wanted, in order."""
        with tf.io.gfile.GFile(self._path, "rb") as file:
            content = file.read()
        lines = content.splitlines(keepends=True)
        kept = [line for line in lines if _parse(line) is not None and is_wanted(line)]
        if len(kept) == len(lines):
            return
        write_file(self._path, b"".join(kept), f".{os.getpid()}.tmp")


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Locks the file against other processes on this machine, such as an evaluator.

    Locks the directory, so that no lock file is left there. It goes on without the lock on network
    file systems that have none, and if the whole program runs under a lock of the directory, as by
    `flock DIR COMMAND`: a line is still a single write then.
    """
    if "://" in directory or os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            _lock(descriptor, directory)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # gevent closes later.
        os.close(descriptor)


def _lock(descriptor: int, directory: str) -> None:
    """Locks a directory; gives up, now and the next time, if somebody else keeps it locked."""
    import fcntl

    deadline = time.monotonic() + (0 if directory in _kept_locked else _LOCK_PATIENCE_SECS)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                _kept_locked.add(directory)
                raise
            time.sleep(_LOCK_POLL_SECS)
        else:
            _kept_locked.discard(directory)
            return


def _parse(line: bytes) -> dict[str, Any] | None:
    """Parses a complete line; None for an incomplete one, or one not written by this class."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def _step_of(line: bytes) -> float:
    step = (_parse(line) or {}).get("step")
    return step if isinstance(step, int) else -math.inf


def _is_of(line: bytes, key: Mapping[str, Any]) -> bool:
    values = _parse(line) or {}
    return all(name in values and values[name] == value for name, value in key.items())


def _has_plain(value: Any) -> bool:
    return all(
        np.asarray(part).dtype.kind in "fiubU" and np.size(part) <= _MAX_VALUES
        for part in tf.nest.flatten(value)
    )


def _plain(value: Any) -> Any:
    """Converts a value to numbers, strings, lists and objects, as in JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if value is None or isinstance(value, str):
        return value
    listed = np.asarray(value).tolist()
    if isinstance(listed, list):
        return _plain(listed)
    return None if isinstance(listed, float) and not math.isfinite(listed) else listed


def scalars_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics that are single numbers."""
    single = {name: value for name, value in metrics.items() if not tf.nest.is_nested(value)}
    return {
        name: float(value)
        for name, value in single.items()
        if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiub"
    }


def metrics_in_words(metrics: Mapping[str, Any]) -> str:
    """Formats the scalar metrics, step first: "global_step = 100, loss = 0.2"."""
    numbers = scalars_of(metrics)
    names = sorted(numbers, key=lambda name: (name != "global_step", name))
    return ", ".join(f"{name} = {numbers[name]:.6g}" for name in names)
