"""Initializes a TPU before a session uses it, and again after it has failed."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.console import note
from estimator.runtime.tpu_strategy import tpu_resolver

_lock = threading.Lock()
# By TPU name: its failures in this process, and its failures before the last initialization.
_num_failures: collections.Counter[str] = collections.Counter()
_num_failures_before: collections.Counter[str] = collections.Counter()


def start_tpu(strategy: tf.distribute.Strategy) -> str | None:
    """Initializes a strategy's TPU, once per process and again after a failure.

    Open sessions lose their variables when that happens: see `num_failures`. Does nothing without a
    TPU.

    Returns:
      The target for sessions on the TPU; None without a TPU.

    Raises:
      ValueError: the TPU cannot be initialized.
    """
    resolver = tpu_resolver(strategy)
    if resolver is None:
        return None
    name = _tf.tpu_name(resolver)
    with _lock:
        has_failed = _num_failures[name] != _num_failures_before[name]
        if has_failed or not _tf.is_initialized_tpu(resolver):
            note("Initializing the TPU (%s).", resolver.master() or "of this machine")
            try:
                _initialize(resolver)
            except tf.errors.OpError as error:
                raise ValueError(
                    f"The TPU cannot be initialized: {_first_line(error)}. Is "
                    "this TensorFlow built for TPUs (the package tensorflow-tpu), and does no "
                    "other process use it?"
                ) from error
            _num_failures_before[name] = _num_failures[name]
    return resolver.master()


def num_failures(strategy: tf.distribute.Strategy) -> int:
    """Returns how often a strategy's TPU has failed; a change invalidates open sessions."""
    resolver = tpu_resolver(strategy)
    return 0 if resolver is None else _num_failures[_tf.tpu_name(resolver)]


@contextlib.contextmanager
def restarting_after_failure(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Makes a failed operation inside the block reinitialize the TPU before its next session.

    A program that fails to compile leaves a TPU usable if `start_tpu` initialized it. A TPU that
    was preempted, or initialized by another program, may be in any state.
    """
    try:
        yield
    except Exception as error:
        resolver = tpu_resolver(strategy)
        if resolver is not None and _is_of_an_operation(error):
            _num_failures[_tf.tpu_name(resolver)] += 1
        raise


def _is_of_an_operation(error: BaseException | None) -> bool:
    """Returns whether an error, or one of its causes, comes from a failed operation."""
    while error is not None:
        if isinstance(error, tf.errors.OpError):
            return not isinstance(error, tf.errors.OutOfRangeError)
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: tf.errors.OpError) -> str:
    """Returns the error's message without the traceback of the operation."""
    lines = error.message.strip().splitlines()
    node = next((place for place, line in enumerate(lines) if line.startswith("Node: ")), -1)
    return "".join(lines[node + 1 : node + 2]).strip()


def _initialize(resolver: Any) -> None:
    """Runs the initialization in its own graph and session.

    With `tf.tpu.experimental.initialize_tpu_system`, a program that fails to compile would close
    the chips, and every later program of the process would fail.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    cluster = resolver.cluster_spec()
    if cluster:
        config.cluster_def.CopyFrom(cluster.as_cluster_def())
    with tf.Graph().as_default() as graph:
        topology = tf.compat.v1.tpu.initialize_system(
            compilation_failure_closes_chips=False, tpu_cancellation_closes_chips=False
        )
        with tf.compat.v1.Session(resolver.master(), graph, config) as session:
            _tf.note_initialized_tpu(resolver, session.run(topology))
