"""`metrics.jsonl`: how training and evaluation go, in lines of JSON for other programs."""

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

FILE_NAME = "metrics.jsonl"
# An array of more values than this says little in a line.
_MAX_VALUES = 1000
# A line that is older than this many bytes is not of the last checkpoint.
_TAIL_BYTES = 1 << 16


class MetricsLog:
    """One JSON object a line, and one line for each step that was told, or evaluated by a name.

    A training has lines of the `kind` "train" with `step`, `loss`, `steps_per_sec`; an evaluation
    has one of the `kind` "eval" with `name`, `step`, `loss` and the other `metrics` by their names.
    `wall_time` is in seconds since the epoch. A number that is not finite is null.

    Each line is one write. A run that was killed may leave half a line, and lines of steps that the
    next run takes again: both go, in a new file that takes the old one's place, before that run
    adds its first line.
    """

    def __init__(self, model_dir: str, clock: Callable[[], float] = time.time) -> None:
        """Touches nothing yet."""
        self._model_dir = model_dir
        self._path = os.path.join(model_dir, FILE_NAME)
        self._clock = clock

    def go_on_from(self, step: int) -> None:
        """Forgets what was told of the steps after `step`, which training goes on from."""
        if not tf.io.gfile.exists(self._path):
            return
        with _locked(self._model_dir):
            self._keep(lambda line: _step_of(line) <= step)

    def write_train(self, step: int, loss: float | None, steps_per_sec: float) -> None:
        """Adds the line of a step of a training."""
        line = {"kind": "train", "step": step, "loss": _plain(loss)}
        with _locked(self._model_dir):
            self._append({**line, "steps_per_sec": round(steps_per_sec, 3)})

    def write_eval(self, name: str | None, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds the line of an evaluation; one of that name and step that is there already goes.

        Args:
          name: of the evaluation, or None.
          step: that was evaluated.
          metrics: "loss" and others. Images and arrays of more than 1,000 values are left out.
        """
        values = {key: _plain(value) for key, value in metrics.items() if _has_plain(value)}
        loss = values.pop("loss", None)
        values.pop("global_step", None)
        key = {"kind": "eval", "name": name, "step": step}
        tf.io.gfile.makedirs(self._model_dir)
        with _locked(self._model_dir):
            tail = self._read_tail()
            is_there = any(_is_of(line, key) for line in tail.splitlines(keepends=True))
            if is_there or not tail.endswith(b"\n"):
                self._keep(lambda line: not _is_of(line, key))
            self._append({**key, "loss": loss, "metrics": values})

    def _append(self, values: dict[str, Any]) -> None:
        values["wall_time"] = round(self._clock(), 3)
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(values, allow_nan=False) + "\n")

    def _read_tail(self) -> bytes:
        """The last lines, the first of them perhaps not from its start; a new line if none."""
        if not tf.io.gfile.exists(self._path):
            return b"\n"
        with tf.io.gfile.GFile(self._path, "rb") as file:
            file.seek(max(0, file.size() - _TAIL_BYTES))
            return file.read() or b"\n"

    def _keep(self, is_wanted: Callable[[bytes], bool]) -> None:
        """Leaves the whole lines that are wanted, in their order."""
        with tf.io.gfile.GFile(self._path, "rb") as file:
            content = file.read()
        lines = content.splitlines(keepends=True)
        kept = [line for line in lines if _parse(line) is not None and is_wanted(line)]
        if len(kept) == len(lines):
            return
        new_path = f"{self._path}.{os.getpid()}.tmp"
        with tf.io.gfile.GFile(new_path, "wb") as file:
            file.write(b"".join(kept))
        tf.io.gfile.rename(new_path, self._path, overwrite=True)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Inside, no other process of this machine writes: an evaluator may, beside the trainer.

    The lock is the directory's, so that no file of its own is left there.
    """
    if "://" in directory or os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(directory, os.O_RDONLY)
    try:
        # Some network file systems have no such locks; there, a line is still one write.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse(line: bytes) -> dict[str, Any] | None:
    """What a whole line says; None for half of one, or what is no line of this file."""
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
    """A number, a string, or lists and objects of them, as JSON knows them."""
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


def metrics_in_words(metrics: Mapping[str, Any]) -> str:
    """The metrics that are numbers, with the step first: "global_step = 100, loss = 0.2"."""
    numbers = {
        name: value
        for name, value in metrics.items()
        if not tf.nest.is_nested(value)
        and np.ndim(value) == 0
        and np.asarray(value).dtype.kind in "fiub"
    }
    names = sorted(numbers, key=lambda name: (name != "global_step", name))
    return ", ".join(f"{name} = {numbers[name]:.6g}" for name in names)
