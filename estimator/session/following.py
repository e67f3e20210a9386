"""What an evaluator, outside of the training cluster, knows of training: the files it leaves."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files

_NAME = "training-ended.json"


def clear_end(model_dir: str) -> None:
    """Training begins: it has not ended yet."""
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(os.path.join(model_dir, _NAME))


def write_end(model_dir: str, **facts: Any) -> None:
    """Says that training has ended, and how; the file appears whole."""
    tf.io.gfile.makedirs(model_dir)
    path = os.path.join(model_dir, _NAME)
    with tf.io.gfile.GFile(path + ".tmp", "w") as file:
        file.write(json.dumps(facts))
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
