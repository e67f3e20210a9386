"""Starts a TPU before a session uses it."""

from __future__ import annotations

import logging
import threading

import tensorflow as tf

from estimator import _tf
from estimator.config.tpu import tpu_resolver

_log = logging.getLogger("estimator")
_lock = threading.Lock()


def start_tpu(strategy: tf.distribute.Strategy) -> str | None:
    """Initializes the TPU of a strategy, once in a process; nothing without a TPU.

    Doing it again would take their variables from sessions that are open.

    Returns:
      The target of sessions that use it; None without a TPU.

    Raises:
      ValueError: it cannot be initialized.
    """
    resolver = tpu_resolver(strategy)
    if resolver is None:
        return None
    with _lock:
        if not _tf.is_initialized_tpu(resolver):
            _log.info("Initializing the TPU (%s).", resolver.master() or "of this machine")
            # In a graph it takes a session of its own, and leaves the eager context alone.
            try:
                with tf.Graph().as_default():
                    tf.tpu.experimental.initialize_tpu_system(resolver)
            except tf.errors.OpError as error:
                raise ValueError(
                    f"The TPU cannot be initialized: {error.message.strip().splitlines()[0]}. Is "
                    "this TensorFlow built for TPUs (the package tensorflow-tpu), and does no "
                    "other process use it?"
                ) from error
    return resolver.master()
