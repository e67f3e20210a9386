"""Private parts of sessions and Scaffolds: fast calls, and calls that can be abandoned."""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import ctypes
import functools
import queue
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config_pb2
from tensorflow.python.client import session as _session
from tensorflow.python.eager import context as _context

from estimator._tf.distribute import variables_by_name

_CopiesFor: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Callable[[Any], Any] | None]
_COMPOSITE = (tf.SparseTensor, tf.IndexedSlices, tf.RaggedTensor)


def make_callable(
    session: tf.compat.v1.Session, fetches: Sequence[Any], feeds: Sequence[tf.Tensor]
) -> Callable[..., list]:
    """Returns a function that takes arrays for `feeds`, runs `fetches`, and returns a list.

    With feeds, the public `Session.make_callable` runs all of `Session.run`: 0.1 ms of Python per
    call. `_do_call` adds to errors where the program made the op. 2.16 to 2.21.

    Args:
      session: runs the fetches.
      fetches: tensors and operations.
      feeds: what to feed; the arrays must have their dtypes.
    """
    # Such callables support neither composite tensors, nor fetches that are also fed, nor feeds of
    # a quantized type, whose arrays `Session.run` gives that type.
    is_simple = all(isinstance(fetch, tf.Tensor | tf.Operation) for fetch in fetches)
    is_simple = is_simple and not any(feed.dtype.is_quantized for feed in feeds)
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


def settings_of_tf_config() -> tf.compat.v1.ConfigProto:
    """Returns what the process has set with `tf.config`, as the config of a session.

    A session that gets no config uses these settings; public functions return them one by one, and
    not all. The eager context is not initialized. 2.16 to 2.21.
    """
    settings = _context.context().config
    gpu_options = settings.gpu_options
    if not any(gpu.memory_limit_mb for gpu in gpu_options.experimental.virtual_devices):
        # With a split CPU, TensorFlow lists whole GPUs as split, too, and forgets that they grow.
        gpu_options.experimental.ClearField("virtual_devices")
        for gpu in tf.config.get_visible_devices("GPU"):
            gpu_options.allow_growth |= bool(tf.config.experimental.get_memory_growth(gpu))
    return tf.compat.v1.ConfigProto(
        device_count=settings.device_count,
        gpu_options=gpu_options,
        graph_options=settings.graph_options,
        inter_op_parallelism_threads=settings.inter_op_parallelism_threads,
        intra_op_parallelism_threads=settings.intra_op_parallelism_threads,
        log_device_placement=settings.log_device_placement,
    )


class FunctionSession(_session.SessionInterface):
    """A session whose calls a function makes.

    `Saver.save` and `Saver.restore` accept only a SessionInterface. 2.16 to 2.21.
    """

    def __init__(
        self, graph: tf.Graph, function: Callable[[Any, dict[tf.Tensor, np.ndarray]], Any]
    ) -> None:
        """Makes no call.

        Args:
          graph: the session's graph.
          function: takes what to fetch, a tensor or an operation, and what to feed; returns its
            value.
        """
        self._graph, self._function = graph, function

    @property
    def graph(self) -> tf.Graph:
        """The session's graph."""
        return self._graph

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Runs one tensor or operation, which may be given by name, as a Saver's are."""
        find = self.graph.as_graph_element
        feeds = {find(key): value for key, value in (feed_dict or {}).items()}
        arrays = {t: np.asarray(value, t.dtype.as_numpy_dtype) for t, value in feeds.items()}
        return self._function(find(fetches), arrays)


def map_fetches(function: Callable[[Any], Any], fetches: Any) -> Any:
    """Applies `function` to each fetch of a structure.

    Follows a session's rules for structures: unlike in tf.nest, the keys of a dict, such as the
    tensors of `LoggingTensorHook([tensor, another])`, need not be sortable.
    """
    if isinstance(fetches, Mapping):
        by_key = {key: map_fetches(function, value) for key, value in fetches.items()}
        make: Callable[[dict], Any] = type(fetches)
        if isinstance(fetches, collections.defaultdict):
            make = functools.partial(collections.defaultdict, fetches.default_factory)
        return make(by_key)
    if isinstance(fetches, list | tuple):
        mapped = [map_fetches(function, value) for value in fetches]
        return type(fetches)(*mapped) if hasattr(fetches, "_fields") else type(fetches)(mapped)
    return tf.nest.map_structure(function, fetches)


class MappedSession(tf.compat.v1.Session):
    """A session whose `run` may run and feed copies of what it is asked for. 2.16 to 2.21.

    A variable takes the place of its handle, which is of no use outside of the graph: a program of
    TensorFlow 1 finds the value under the handle's name.

    Attributes:
      copies_for: called with the tensors, operations and results of an `assign` that a call
        fetches, and with the tensors that it feeds; returns a function from such a one to what to
        fetch or feed instead, or None if that is the same. None if `run` does as it is asked.
    """

    copies_for: _CopiesFor | None = None
    # The version of the graph for which `_variables` were found.
    _version = -1
    _variables: Mapping[str, tf.Variable] = types.MappingProxyType({})

    def run(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Runs as `Session.run` does."""
        if _may_have_handles(fetches):
            self._find_variables()
            fetches = map_fetches(self._variable_of, fetches)
        if self.copies_for is not None:
            fetched = [one for leaf in _leaves(fetches) for one in self._elements(leaf)]
            keys = tf.nest.flatten([*(feed_dict or ())])  # A key may be a nested tuple.
            fed = [one for key in keys for one in self._elements(key)]
            # `Session.run` says what is wrong with an operation that is fed.
            find_copy = self.copies_for(fetched, [t for t in fed if isinstance(t, tf.Tensor)])
            if find_copy is not None:
                find = functools.partial(self._copy, find_copy)
                fetches = map_fetches(find, fetches)
                feed_dict = {
                    tf.nest.map_structure(find, key): value
                    for key, value in (feed_dict or {}).items()
                }
        return super().run(fetches, feed_dict, *args, **kwargs)

    def _elements(self, value: Any) -> list[Any]:
        """Returns the tensors, operations and results of an `assign` in what is fetched or fed."""
        if isinstance(value, str):
            try:
                return [self.graph.as_graph_element(value)]
            except (KeyError, ValueError):  # `Session.run` raises it.
                return []
        if isinstance(value, _COMPOSITE):
            return tf.nest.flatten(value, expand_composites=True)
        if isinstance(value, tf.Variable):
            element = value._as_graph_element()
            return [value if element is None else element]  # Of an `assign` in a loop, None.
        return [value] if isinstance(value, tf.Tensor | tf.Operation) else []

    def _copy(self, find_copy: Callable[[Any], Any], value: Any) -> Any:
        """Returns what to fetch or feed instead of `value`; itself if that is the same."""
        if isinstance(value, _COMPOSITE):
            return tf.nest.map_structure(find_copy, value, expand_composites=True)
        for element in self._elements(value):
            copy = find_copy(element)
            return value if copy is element else copy
        return value

    def _find_variables(self) -> None:
        """Finds the variables by the names of their handles, again if the graph has grown."""
        if self._version != self.graph.version:
            self._version, self._variables = self.graph.version, variables_by_name(self.graph)

    def _variable_of(self, fetch: Any) -> Any:
        """Returns the variable to run in place of its handle or a name; otherwise the fetch."""
        if isinstance(fetch, str):
            return self._variables.get(fetch, fetch)
        is_own = _is_resource(fetch) and getattr(fetch, "graph", None) is self.graph
        return self._variables.get(fetch.name, fetch) if is_own else fetch


def _may_have_handles(fetches: Any) -> bool:
    """Returns whether a structure has names or resources; much faster than `map_fetches`."""
    if isinstance(fetches, Mapping):
        return any(map(_may_have_handles, fetches.values()))
    if isinstance(fetches, list | tuple):
        return any(map(_may_have_handles, fetches))
    return isinstance(fetches, str) or _is_resource(fetches)


def _is_resource(fetch: Any) -> bool:
    """Returns whether a fetch is a tensor that holds a resource, as a variable's handle does."""
    return getattr(fetch, "dtype", None) == tf.resource


def _leaves(fetches: Any) -> Iterator[Any]:
    """Yields the fetches of a structure; much faster than `map_fetches`."""
    if isinstance(fetches, Mapping | list | tuple):
        for part in fetches.values() if isinstance(fetches, Mapping) else fetches:
            yield from _leaves(part)
    else:  # A class of attrs is a structure, too.
        yield from tf.nest.flatten(fetches) if hasattr(fetches, "__attrs_attrs__") else (fetches,)


class InterruptibleSession(MappedSession):
    """A session whose calls can be abandoned: a call to a server that is gone never returns.

    All calls pass through `_do_call`, but for those that make a callable, which contact the server,
    too. A callable that is garbage-collected notifies the server, unless `_closed` is set. 2.16 to
    2.21.

    Attributes:
      wait: waits for a call that another thread makes: it is called with an event that is set when
        the call has returned. If it raises, the session is abandoned. None makes direct calls.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: tf.compat.v1.ConfigProto,
        wait: Callable[[threading.Event], None] | None,
    ) -> None:
        """Opens the session; only the first call contacts the server."""
        super().__init__(target, graph=graph, config=config)
        self.wait = wait
        self._idle: list[_CallThread] = []

    def give_up(self) -> None:
        """Abandons the session without notifying the server, also of callables that are freed."""
        self._closed = True
        self._end_idle_threads()

    def close(self) -> None:
        """Closes the session; ignores that the server is gone or was restarted."""
        if self._closed or sys.is_finalizing():  # No thread can start during finalization.
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            self._wait_for(super().close)
        self._end_idle_threads()

    def _make_callable_from_options(self, callable_options: Any) -> Any:
        return self._wait_for(super()._make_callable_from_options, callable_options)

    def _do_call(self, fn: Callable, *args: Any) -> Any:
        return self._wait_for(super()._do_call, fn, *args)

    def _wait_for(self, function: Callable, *args: Any) -> Any:
        if self.wait is None:
            return function(*args)
        # Reusing an idle thread costs less than starting one for each call.
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
    """A daemon thread that makes one call at a time."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Not a thread pool: the process would wait for its threads at exit.
        threading.Thread(target=_make_calls, args=[self._calls], daemon=True).start()
        # Ends the thread of a session that is dropped without being closed.
        weakref.finalize(self, self._calls.put, None)

    def start_call(
        self, function: Callable, args: tuple
    ) -> tuple[threading.Event, concurrent.futures.Future]:
        """Starts a call; returns an event that is set when it has returned, and its future."""
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
        """Ends the thread after its current call."""
        self._calls.put(None)


def _make_calls(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        with stopped_at_exit():
            call()
        del call  # Otherwise it keeps the session alive while the thread waits for the next call.


_threads_to_stop: set[threading.Thread] = set()


@contextlib.contextmanager
def stopped_at_exit() -> Iterator[None]:
    """Stops this thread for good if it is still inside the block when Python exits.

    A daemon thread needs it for a call of a session. One that returned to a Python that is ending
    would abort the process or crash it, so that its exit status is not the program's: pybind11's
    `gil_scoped_release`, around what makes a callable or closes a session, cannot end a thread.
    Python 3.10 to 3.13, 2.16 to 2.21.
    """
    thread = threading.current_thread()
    _threads_to_stop.add(thread)
    try:
        yield
    finally:
        _threads_to_stop.discard(thread)


@atexit.register
def _stop_threads() -> None:
    """Sends threads a signal whose handler does not return."""
    if sys.platform != "linux":  # Only Linux has signals that nobody else uses.
        return
    libc = ctypes.CDLL(None)
    for thread in [*_threads_to_stop]:
        if thread.is_alive() and thread.ident is not None:  # A fork has only its own thread.
            libc.signal(signal.SIGRTMAX, libc.pause)
            signal.pthread_kill(thread.ident, signal.SIGRTMAX)


def open_session(
    target: str,
    graph: tf.Graph,
    config: tf.compat.v1.ConfigProto,
    wait: Callable[[threading.Event], None] | None,
    copies_for: _CopiesFor | None = None,
) -> tf.compat.v1.Session:
    """Opens a session on a graph, an `InterruptibleSession` if `wait` is given."""
    if wait is None:
        session = MappedSession(target, graph=graph, config=config)
    else:
        session = InterruptibleSession(target, graph, config, wait)
    session.copies_for = copies_for
    return session


def set_scaffold_parts(scaffold: tf.compat.v1.train.Scaffold, parts: dict[str, Any]) -> None:
    """Sets parts of a Scaffold, as its `finalize` does, which also finalizes the graph (2.16)."""
    for name, part in parts.items():
        setattr(scaffold, f"_{name}", part)
