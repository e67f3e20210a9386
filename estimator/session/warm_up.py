"""Sets up TensorFlow for the first session of a process while Python builds the graph."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator

import tensorflow as tf

from estimator.session import preparation

_CALLS = itertools.count()


@contextlib.contextmanager
def warmed_up(target: str, session_config: tf.compat.v1.ConfigProto) -> Iterator[None]:
    """Runs a small session beside the block, if it is the first of the process.

    What a process sets up for its first local session serves all later ones: thread pools, the
    graph optimizer and, when matrices are multiplied, kernels that oneDNN compiles. If that fails,
    so does the session that follows, which raises the error. With one CPU, nothing is done: the two
    threads would wait for each other.

    Args:
      target: the target of the session that follows; nothing is done for one on a server.
      session_config: its config.
    """
    if target or _num_cpus() == 1 or next(_CALLS):
        yield
        return
    preparation.begin(_multiply, session_config)
    try:
        yield
    finally:
        preparation.finish()


def _num_cpus() -> int:
    """Returns how many CPUs the process may use."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _multiply(session_config: tf.compat.v1.ConfigProto) -> None:
    # The first session of a process decides on its thread pools, and the first one with a GPU how
    # much of its memory the process takes.
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=session_config.inter_op_parallelism_threads,
        intra_op_parallelism_threads=session_config.intra_op_parallelism_threads,
        device_count={"GPU": 0},
    )
    with tf.Graph().as_default() as graph:
        product = tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
        with tf.compat.v1.Session(graph=graph, config=config) as session:
            session.run(product)
