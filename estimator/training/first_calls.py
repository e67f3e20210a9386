"""What a session does in a second thread while training starts.

Each first call of a session copies and optimizes the whole graph on one CPU, and then often runs on
one: the input starts, and the first loop is prepared, beside the calls that give variables values.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence

import tensorflow as tf

from estimator import _tf
from estimator.program.train_program import TrainProgram
from estimator.rewrite.graph_walk import ops_behind
from estimator.session.hooked_session import HookedSession
from estimator.training.request import TrainRequest


class FirstCalls:
    """Starts the input and prepares the first loop, in the order that takes least time.

    A session prepares one call at a time. So the preparation of the loop, which takes longest,
    waits until the call that initializes or restores the variables is prepared. Sessions on a
    server make their first calls one after the other.
    """

    def __init__(self, program: TrainProgram, request: TrainRequest, hooked: HookedSession) -> None:
        """Makes no call yet.

        Args:
          program: the program to train.
          request: what `train` was asked to do.
          hooked: makes the calls of the loops.
        """
        self._program, self._request, self._hooked = program, request, hooked
        self._is_local = not request.connection.target
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "first_calls")
        self._input: concurrent.futures.Future | None = None
        initializer = program.input.initializer
        self._inputs = [] if initializer is None else [initializer]

    def finish(self) -> None:
        """Waits until the thread no longer uses the session."""
        self._thread.shutdown()

    def begin(self, session: tf.compat.v1.Session) -> None:
        """Begins to start the input in a new session, unless it needs variables or tables.

        The call is prepared here: in the thread, it would wait for the variables' to be prepared.
        """
        if self._is_local and not _needs_values(self._inputs):
            self._input = self._thread.submit(_tf.make_callable(session, self._start_ops(), []))

    def prepare_loop(self, session: tf.compat.v1.Session, is_restoring: bool) -> None:
        """Begins to prepare the first loop; a new training's records summaries."""
        if not self._is_local:
            return
        is_recording = not is_restoring and self._request.config.save_summary_steps is not None
        feeds, _ = self._program.feeds.of_call(0, None, is_recording)
        fetches = self._program.fetches.of_call(is_recording)
        self._hooked.prepare(session, fetches, feeds, self._thread)

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
