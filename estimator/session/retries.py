"""Tells errors of session calls that may pass from others, and tries again.

A file system or an input service that cannot be reached for a moment raises one, and TensorFlow
does if it gets a request twice. tf.estimator goes on after them, too.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

from estimator.checkpoint.errors import may_pass, restore_error
from estimator.console import log

ResultT = TypeVar("ResultT")

# How long to wait after each failure; the failure after the last wait is final.
WAITS_SECS = (1.0, 5.0, 25.0)

# Of several errors of a call, TensorFlow may raise that a part of it was cancelled. It lists them.
_LISTED = re.compile("^(?:ABORTED|UNAVAILABLE): (?:From .*:\n)?(.*)", re.MULTILINE)
_CAUSE_WIDTH = 160


def passing_cause(error: tf.errors.OpError) -> str | None:
    """Returns the cause, in words, of an error that may pass; None if it does not."""
    cause = restore_error(error) if may_pass(error) else None
    if isinstance(error, tf.errors.CancelledError) and (listed := _LISTED.search(error.message)):
        cause = listed.group(1)
    return None if cause is None else textwrap.shorten(cause, _CAUSE_WIDTH).rstrip(".")


def retried(call: Callable[[], ResultT], what: str) -> ResultT:
    """Makes a call, again after each error that may pass; returns its result.

    Args:
      call: may be called several times.
      what: names it in messages, such as "The evaluation".

    Raises:
      Exception: an error that does not pass, or one that may after the last wait.
    """
    for secs in WAITS_SECS:
        try:
            return call()
        except tf.errors.OpError as error:
            cause = passing_cause(error)
            if cause is None:
                raise
            log.warning("%s failed: %s. It is tried again in %g s.", what, cause, secs)
        time.sleep(secs)
    return call()
