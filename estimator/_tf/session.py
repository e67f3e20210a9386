"""Sessions and Scaffolds."""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import sys
import threading
import weakref
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
        self._idle: list[_CallThread] = []

    def give_up(self) -> None:
        """Abandons the session: neither its end nor that of a callable is told to the server."""
        self._closed = True
        self._end_idle_threads()

    def close(self) -> None:
        """Closes it; that the server is gone, perhaps for another, does not matter."""
        if self._closed or sys.is_finalizing():  # Then no thread starts any more.
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            self._wait_for(super().close)
        self._end_idle_threads()

    def _do_call(self, fn: Callable, *args: Any) -> Any:
        return self._wait_for(super()._do_call, fn, *args)

    def _wait_for(self, function: Callable, *args: Any) -> Any:
        if self.wait is None:
            return function(*args)
        # Starting a thread for each call would cost more than handing the call to one that waits.
        thread = self._idle.pop() if self._idle else _CallThread()
        is_done, outcome = thread.start_call(function, args)
        try:
            self.wait(is_done)
        except BaseException:
            thread.end()
            self.give_up()
            raise
        self._idle.append(thread)
        return outcome.result()

    def _end_idle_threads(self) -> None:
        while self._idle:
            self._idle.pop().end()


class _CallThread:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A thread of a pool would be waited for when the process ends.
        threading.Thread(target=_make_calls, args=[self._calls], daemon=True).start()
        # Whoever forgets to close a session must not leave a thread.
        weakref.finalize(self, self._calls.put, None)

    def start_call(
        self, function: Callable, args: tuple
    ) -> tuple[threading.Event, concurrent.futures.Future]:
        """Starts it; returns what is set when it has returned, and what then has its outcome."""
        is_done, outcome = threading.Event(), concurrent.futures.Future[Any]()

        def call() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)
            is_done.set()

        self._calls.put(call)
        return is_done, outcome

    def end(self) -> None:
        """Ends the thread after the call that it is in."""
        self._calls.put(None)


def _make_calls(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        del call  # It would keep the session as long as the thread waits for another.


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
