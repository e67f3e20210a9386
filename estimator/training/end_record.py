"""The file in which the chief records that training has ended, and what it says to other tasks."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from typing import Any

import tensorflow as tf

from estimator.checkpoint import files
from estimator.config.run_config import RunConfig
from estimator.console import log
from estimator.summary.whole_file import write_file

NAME = "training-ended.json"
# How long a worker or a ps waits for the chief when training seems to be over.
CHIEF_ANSWERS_SECS = 30.0


class NothingLeftError(TimeoutError):
    """Raised if a task waits for others or loses them: they have ended, and so has training."""


def clear_end(model_dir: str) -> None:
    """Removes the record of an earlier end, because training begins."""
    with contextlib.suppress(tf.errors.NotFoundError):
        tf.io.gfile.remove(os.path.join(model_dir, NAME))


def write_end(model_dir: str, **facts: Any) -> None:
    """Records atomically that training has ended, and how.

    Every record is unique, so that a task that reads the file rarely does not mistake a new one for
    an old one.
    """
    tf.io.gfile.makedirs(model_dir)
    end = {"at": time.time(), "id": uuid.uuid4().hex, **facts}
    write_file(os.path.join(model_dir, NAME), json.dumps(end).encode())


def read_end(model_dir: str) -> dict[str, Any] | None:
    """Returns what `write_end` wrote last; None if training has not ended.

    A damaged record still says that training has ended, but not how.
    """
    try:
        with tf.io.gfile.GFile(os.path.join(model_dir, NAME), "rb") as file:
            end = json.loads(file.read())
    except tf.errors.NotFoundError:
        return None
    except ValueError:
        return {}
    return end if isinstance(end, dict) else {}


def is_training_over(config: RunConfig, max_steps: int | None) -> bool:
    """Returns whether nothing is left to train.

    Args:
      config: this task's config; in a worker or a ps, the chief must have recorded in its
        `model_dir` that training has ended.
      max_steps: the step at which training ends, or None.
    """
    newest = files.latest_checkpoint(str(config.model_dir))
    step = files.checkpoint_step(newest) if newest else None
    if max_steps is None or step is None or step < max_steps:
        return False
    end = {} if config.is_chief else read_end(str(config.model_dir))
    return end is not None and not end.get("exit_status")


def warn_of_absent_tasks(names: str) -> None:
    """Warns that this task ends because nothing is left to train."""
    log.warning(
        "Nothing is left to train: the newest checkpoint has reached `max_steps`. Of %s, some do "
        "not answer: this task ends without them.",
        names,
    )
