"""What a session does in other threads while training starts.

Each first call of a session copies and optimizes the whole graph on one CPU, and then often runs on
one: the input starts, and the next call is prepared, beside the one that runs.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.writer import CheckpointWriter
from estimator.rewrite.graph_walk import ops_behind
from estimator.session import preparation
from estimator.training.open_training import OpenTraining
from estimator.training.start_save import StartSave


class FirstCalls:
    """Starts the input, saves step 0 and prepares the first loop, in the order that is fastest.

    A session prepares one call at a time, and none can begin meanwhile. So each is prepared as soon
    as the one before it has begun: the call that gives the variables values, the one that saves
    step 0, and the loop, which takes longest. Sessions on a server, which may not answer, make
    their first calls one after the other, and in this thread.
    """

    def __init__(self, training: OpenTraining, start_save: StartSave | None) -> None:
        """Makes no call yet.

        Args:
          training: the training run that starts.
          start_save: saves step 0; None if that takes several calls, or if it is not saved.
        """
        self._training, self._program = training, training.program
        self._is_local = not training.request.connection.target
        self._start_save = start_save
        self._saving: concurrent.futures.Future | None = None
        self._input: concurrent.futures.Future | None = None
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "first_calls")
        initializer = self._program.input.initializer
        self._inputs = [] if initializer is None else [initializer]

    def finish(self) -> None:
        """Waits until no other thread uses the session."""
        self._thread.shutdown()
        if self._is_local:
            preparation.finish()

    def begin(self, session: tf.compat.v1.Session) -> None:
        """Begins to start the input in a new session, unless it needs variables or tables."""
        if self._is_local and not _needs_values(self._inputs):
            call = preparation.begin(_tf.make_callable, session, self._start_ops(), [])
            self._input = self._thread.submit(call.result())

    def prepare(
        self,
        session: tf.compat.v1.Session,
        is_restoring: bool,
        fetches: list[Any],
        feeds: list[tf.Tensor],
    ) -> Callable[..., list]:
        """Prepares the call that gives the variables values, and begins to prepare the next one."""
        if not self._is_local:
            return _tf.make_callable(session, fetches, feeds)
        call = preparation.begin(_tf.make_callable, session, fetches, feeds).result()
        if self._start_save is None or is_restoring:
            self._prepare_loop(session, is_restoring)
        else:
            self._saving = preparation.begin(self._start_save.prepare, session)
        return call

    def _prepare_loop(self, session: tf.compat.v1.Session, is_restoring: bool) -> None:
        """Begins to prepare the first loop; a new training's records summaries."""
        if not self._is_local:
            return
        is_recording = not is_restoring and self._training.config.save_summary_steps is not None
        feeds, _ = self._program.feeds.of_call(0, None, is_recording)
        fetches = self._program.fetches.of_call(is_recording)
        self._training.session.prepare(session, fetches, feeds)

    def save_start(
        self, session: tf.compat.v1.Session, checkpoints: CheckpointWriter
    ) -> int | None:
        """Saves step 0 in one call and returns 0; returns None if that takes several calls.

        Raises:
          BadWeightsError, OtherStepError: see `StartSave.run`.
        """
        save, saving = self._start_save, self._saving
        if save is None:
            return None

        def call(*values: Any) -> list:
            prepared = save.prepare(session) if saving is None else saving.result()
            # No call can begin while another one is prepared, so the save begins right now.
            self._prepare_loop(session, is_restoring=False)
            return prepared(*values)

        return save.run(session, call, checkpoints)

    def start_input(self, session: tf.compat.v1.Session) -> None:
        """Starts the input at its beginning, or waits until it has started."""
        if self._input is not None:
            self._input.result()
        else:
            session.run(self._start_ops())

    def _start_ops(self) -> list[tf.Operation]:
        """Returns what starts the input and what a loop reports: one call, as each costs time."""
        return [*self._program.state.initializers, *self._inputs]


def _needs_values(ops: Sequence[tf.Operation]) -> bool:
    """Returns whether a dataset that `ops` start takes variables, tables or other resources."""
    return any(
        op.type != "IteratorV2" and (tensor.dtype == tf.resource or _tf.is_ref(tensor))
        for op in ops_behind(ops)
        for tensor in op.outputs
    )
