"""What a session does in other threads while training starts.

Each first call of a session copies and optimizes the whole graph on one CPU, and then often runs on
one: the input starts, and the next call is prepared, beside the one that runs.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.checkpoint.saver_ops import has_stock_methods
from estimator.checkpoint.writer import CheckpointWriter
from estimator.hooks.stock_hooks_in_loops import saver_hooks
from estimator.rewrite.graph_walk import ops_behind
from estimator.session import preparation
from estimator.training.nan_guard import BadWeightsError
from estimator.training.open_training import OpenTraining
from estimator.training.saving import saves_start


class _OtherStepError(Exception):
    """Training does not start at step 0."""


class FirstCalls:
    """Starts the input, saves step 0 and prepares the first loop, in the order that is fastest.

    A session prepares one call at a time, and none can begin meanwhile. So each is prepared as soon
    as the one before it has begun: the call that gives the variables values, the one that saves
    step 0, and the loop, which takes longest. Sessions on a server, which may not answer, make
    their first calls one after the other, and in this thread.
    """

    def __init__(self, training: OpenTraining, saver: tf.compat.v1.train.Saver) -> None:
        """Makes no call yet.

        Args:
          training: the training run that starts.
          saver: saves the variables; its ops may be built later.
        """
        self._training, self._program = training, training.program
        self._is_local = not training.request.connection.target
        self._saver, self._weights = saver, training.weights
        self._saves_in_one_call = _saves_in_one_call(training, saver)
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
            self._input = preparation.submit(self._thread, call.result())

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
        if is_restoring or not self._saves_in_one_call:
            self._prepare_loop(session, is_restoring)
        else:
            self._saving = preparation.begin(self._prepare_save, session)
        return call

    def _prepare_save(self, session: tf.compat.v1.Session) -> Callable[..., list]:
        """Prepares the call that saves step 0 and checks the weights, for a checkpoint's path."""
        saver_def, find = self._saver.saver_def, session.graph.as_graph_element
        fetches = [find(saver_def.save_tensor_name), *self._weights.fetches]
        return _tf.make_callable(session, fetches, [find(saver_def.filename_tensor_name)])

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
        """Saves the initial state; returns the global step, or None if a weight is not finite."""
        try:
            if self._saves_in_one_call:
                with contextlib.suppress(_OtherStepError):
                    return self._save_step_0(session, checkpoints)
            step = self._weights.read(session.run(self._weights.fetches))
        except BadWeightsError:
            return None
        checkpoints.save_start(session, step)
        return step

    def _save_step_0(self, session: tf.compat.v1.Session, checkpoints: CheckpointWriter) -> int:
        """Saves step 0 in the same call that checks the weights, and returns 0.

        Raises:
          BadWeightsError: some weights are not finite; no file is left.
          _OtherStepError: training does not start at step 0; no file is left.
        """

        def checked(fetch: Any, feeds: dict[tf.Tensor, np.ndarray]) -> Any:
            saving = self._saving
            save = self._prepare_save(session) if saving is None else saving.result()
            # No call can begin while another one is prepared, so the save begins right now.
            self._prepare_loop(session, is_restoring=False)
            saved, *found = save(*feeds.values())
            if self._weights.read(found) != 0:
                raise _OtherStepError
            return saved

        try:
            checkpoints.save_start(_tf.FunctionSession(session.graph, checked), 0)
        except (BadWeightsError, _OtherStepError):
            checkpoints.remove(0)
            raise
        return 0

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


def _saves_in_one_call(training: OpenTraining, saver: tf.compat.v1.train.Saver) -> bool:
    """Returns whether the start is saved, and no other call or listener belongs to the save."""
    request, config = training.request, training.config
    is_one_call = training.worker_group.decides_alone and not config.async_checkpoints
    is_plain = has_stock_methods(saver) and not request.listeners and not saver_hooks(request.hooks)
    return is_one_call and is_plain and saves_start(training)
