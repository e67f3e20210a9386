"""Writes a checkpoint in a thread, from values that were copied to memory.

A saver's graph ends in SaveV2 ops. Fetching their inputs copies the values of one step, and feeding
these copies has the same ops write the same bytes later, while training changes the variables.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.saver_ops import has_stock_methods, saved_tensors

# TensorFlow's pool of threads may be as small as the number of cores: a write in the calling thread
# takes none away from the steps.
IN_THIS_THREAD = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)


# Below this, a copy takes less time than one more op.
_MANY_ELEMENTS = 100_000
_DEEP_COPIED = (tf.float32, tf.float64, tf.half, tf.bfloat16, tf.int32, tf.int64)


def call_in_thread(function: Callable[[], None]) -> concurrent.futures.Future[None]:
    """Calls a function in a thread of its own, which the process waits for before it exits.

    An executor would take no call once the main thread has ended, but another may still train.
    From Python 3.12 on, no thread can be started then: the call is made in this one.
    """
    call: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run() -> None:
        try:
            function()
        except BaseException as error:
            call.set_exception(error)
        else:
            call.set_result(None)

    try:
        threading.Thread(target=run, name="checkpoint").start()
    except RuntimeError:
        run()
    return call


@dataclasses.dataclass(frozen=True)
class PendingSave:
    """A checkpoint that is being written.

    Attributes:
      step: its step.
      call: writes it.
    """

    step: int
    call: concurrent.futures.Future[None]


class CheckpointCopy:
    """Copies what a saver writes to memory."""

    def __init__(self, graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> None:
        """Adds the ops that copy large tensors to the graph.

        A session copies what it returns only if something else holds the buffer, as a variable
        does: into memory that is new to the process, in Python's lock. DeepCopy does it in
        TensorFlow's own memory and threads, and the session returns that as it is.
        """
        self._saver = saver
        with graph.as_default(), tf.name_scope("copy_checkpoint"):
            self._copies = {t.name: _build_copy(t) for t in saved_tensors(graph, saver)}

    def take(self, session: tf.compat.v1.Session) -> _tf.FunctionSession:
        """Copies the present values.

        Returns:
          A session from which the saver writes these values, in any thread.
        """
        copies = session.run(self._copies)
        return _tf.FunctionSession(
            session.graph,
            lambda fetch, feeds: session.run(fetch, {**copies, **feeds}, IN_THIS_THREAD),
        )


def _build_copy(tensor: tf.Tensor) -> tf.Tensor:
    size = tensor.shape.num_elements()
    if size is None or size < _MANY_ELEMENTS or tensor.dtype.base_dtype not in _DEEP_COPIED:
        return tensor
    with tf.device(tensor.device or "/device:CPU:0"):
        return tf.raw_ops.DeepCopy(x=tensor)


def check_can_copy(graph: tf.Graph, saver: Any) -> None:
    """Raises ValueError if what `saver` writes cannot be copied to memory."""
    way_out = (
        "Leave `async_checkpoints` out, or have the Scaffold name a tf.compat.v1.train.Saver or a "
        "tf.train.Checkpoint of variables."
    )
    if not has_stock_methods(saver):
        raise ValueError(
            "`async_checkpoints` (True) needs a saver that saves as TensorFlow's does, and the "
            f"Scaffold's ({saver!r}) has a `save` or an `export_meta_graph` of its own. {way_out}"
        )
    if saver.saver_def.version != tf.compat.v1.train.SaverDef.V2:
        raise ValueError(
            "`async_checkpoints` (True) needs a saver of TensorFlow's present format, and the "
            f"Scaffold's writes version {saver.saver_def.version}. Leave out its `write_version`."
        )
    for tensor in saved_tensors(graph, saver):
        if tensor.dtype.base_dtype in (tf.variant, tf.resource):
            raise ValueError(
                f"`async_checkpoints` (True) copies what is saved, and {tensor.name} is a "
                f"{tensor.dtype.base_dtype.name}, which cannot be copied. {way_out}"
            )
