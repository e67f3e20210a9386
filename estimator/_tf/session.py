"""Sessions and Scaffolds."""

from __future__ import annotations

import concurrent.futures
import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config_pb2


def make_callable(
    session: tf.compat.v1.Session, fetches: Sequence[Any], feeds: Sequence[tf.Tensor]
) -> Callable[..., list]:
    """A function of arrays, of the dtypes of `feeds`, that runs `fetches` and returns a list.

    The public `Session.make_callable` goes through all of `Session.run` if anything is fed: 0.1 ms
    of Python a call. `_do_call` adds to an error where the program made the op. 2.16 to 2.21.
    """
    # A callable knows no composite tensors, and nothing that is fed as well.
    is_simple = all(isinstance(fetch, tf.Tensor | tf.Operation) for fetch in fetches)
    if not is_simple or not {id(feed) for feed in feeds}.isdisjoint(map(id, fetches)):
        return session.make_callable(list(fetches), feed_list=list(feeds))
    tensors = list(dict.fromkeys(f.name for f in fetches if isinstance(f, tf.Tensor)))
    options = _config_pb2.CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=tensors,
        target=[fetch.name for fetch in fetches if isinstance(fetch, tf.Operation)],
    )
    places = [tensors.index(f.name) if isinstance(f, tf.Tensor) else None for f in fetches]
    run = session._make_callable_from_options(options)

    def call(*values: Any) -> list:
        results = session._do_call(run, *values)
        return [None if place is None else results[place] for place in places]

    return call


class InterruptibleSession(tf.compat.v1.Session):
    """A session whose calls can be given up: one to a server that is gone never returns.

    `_do_call` is where all calls pass, also those of callables, which tell the server when they are
    garbage, unless `_closed` is set. 2.16 to 2.21.

    Attributes:
      wait: called with an event that is set when a call, which another thread makes, has returned;
        what it raises ends the waiting, and the use of the session. None makes plain calls.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: tf.compat.v1.ConfigProto,
        wait: Callable[[threading.Event], None] | None,
    ) -> None:
        """Opens it; the first call reaches the server."""
        super().__init__(target, graph=graph, config=config)
        self.wait = wait

    def give_up(self) -> None:
        """Tells nobody any more that it, or a callable of its, is not needed."""
        self._closed = True

    def close(self) -> None:
        """Closes it; that the server is gone, perhaps for another, does not matter."""
        if self._closed or sys.is_finalizing():  # Then no thread starts any more.
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            self._wait_for(super().close)

    def _do_call(self, fn: Callable, *args: Any) -> Any:
        return self._wait_for(super()._do_call, fn, *args)

    def _wait_for(self, function: Callable, *args: Any) -> Any:
        if self.wait is None:
            return function(*args)
        is_done, outcome = threading.Event(), concurrent.futures.Future[Any]()

        def call() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)
            is_done.set()

        # A thread of a pool would be waited for when the process ends.
        threading.Thread(target=call, daemon=True).start()
        try:
            self.wait(is_done)
        except BaseException:
            self.give_up()
            raise
        return outcome.result()


def open_session(
    target: str,
    graph: tf.Graph,
    config: tf.compat.v1.ConfigProto,
    wait: Callable[[threading.Event], None] | None,
) -> tf.compat.v1.Session:
    """A session on a graph; an `InterruptibleSession` if there is a way to wait for its calls."""
    if wait is None:
        return tf.compat.v1.Session(target, graph=graph, config=config)
    return InterruptibleSession(target, graph, config, wait)


def set_scaffold_parts(scaffold: tf.compat.v1.train.Scaffold, parts: dict[str, Any]) -> None:
    """Gives a Scaffold its parts, as finalizing it does, which finalizes the graph too (2.16)."""
    for name, part in parts.items():
        setattr(scaffold, f"_{name}", part)
