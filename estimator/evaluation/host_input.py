"""The input of an evaluation or a prediction: a graph and a session of its own.

The model's program outlives the input: it is fed, so it neither grows nor is built again when the
next call comes with another dataset.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.input.input_calls import Input, batch_tensors
from estimator.input.pipelines import cut, make_axes, make_sliced_element

# An input's graph is a few ops around a dataset, and runs once: optimizing it costs more than it
# brings. (tf.data optimizes the dataset by itself.)
_CONFIG = tf.compat.v1.ConfigProto()
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True


@dataclasses.dataclass(frozen=True)
class OpenInput:
    """An input that is read.

    Attributes:
      session: on the input's graph; its tables are filled.
      batches: the component tensors of each batch, as arrays.
    """

    session: tf.compat.v1.Session
    batches: Iterator[list[np.ndarray]]


class SessionOfBoth:
    """The model's session to hooks, which runs what is of the input's graph in the input's session.

    An `input_fn` that returns tensors leaves it to a hook to run its `iterator.initializer`.
    """

    def __init__(self, model: tf.compat.v1.Session, source: tf.compat.v1.Session) -> None:
        """Takes both; whatever it does not have itself, the model's session has."""
        self._model = model
        self._source = source

    def run(self, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        """`Session.run` of the session whose graph holds the first of the fetches."""
        return self._session_of(fetches).run(fetches, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """The model's session's."""
        return getattr(self._model, name)

    def _session_of(self, fetches: Any) -> tf.compat.v1.Session:
        first = next(iter(tf.nest.flatten(fetches)), None)
        if isinstance(first, str):
            in_source = _has(self._source.graph, first) and not _has(self._model.graph, first)
        else:
            in_source = getattr(first, "graph", None) is self._source.graph
        return self._source if in_source else self._model


class HostInput:
    """Batches of one call of `input_fn`, as lists of NumPy arrays.

    Attributes:
      element: (features, labels) as type specs; what a program is built for.
      batches_per_step: how many are one global batch.
    """

    def __init__(
        self,
        build: Callable[[], Input],
        seed: int | None,
        has_labels: bool,
        batches_per_step: int = 1,
        num_slices: int = 1,
        batch_axis: Sequence[int] | None = None,
        max_batches: int | None = None,
    ) -> None:
        """Calls `input_fn` in a graph of its own.

        Args:
          build: builds the input in the default graph.
          seed: of the graph.
          has_labels: whether the labels are wanted; if not, they are never computed.
          batches_per_step: how many are one global batch: one for each replica that is asked for.
          num_slices: how many parts each batch is cut into, which then are the batches.
          batch_axis: along which dimension of each tensor; None is the first.
          max_batches: it ends after so many, at the latest.
        """
        self.batches_per_step = batches_per_step
        self._max_batches = max_batches
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.compat.v1.set_random_seed(seed)
            source = build()
            features, labels = source.build_batch()
            batch = (features, labels if has_labels else None)
            v1 = tf.compat.v1
            self._tensors = batch_tensors(batch)
            self._initializers = _initializers()
            self._start = source.initializer
            self._build_cardinality = source.build_cardinality
            self._has_queues = bool(v1.get_collection(v1.GraphKeys.QUEUE_RUNNERS))
            self.element = tf.nest.map_structure(_type_spec, batch)
            self._num_slices = num_slices
            if num_slices > 1:
                self._axes = make_axes(self.element, batch_axis)
                self.element = make_sliced_element(self.element, self._axes)

    @property
    def key(self) -> tuple:
        """Equal for inputs that one program can be fed with."""
        flat = tf.nest.flatten(self.element, expand_composites=True)
        shapes = tuple(None if spec is None else (spec.dtype, str(spec.shape)) for spec in flat)
        return str(tf.nest.map_structure(_kind, self.element)), shapes

    @contextlib.contextmanager
    def opened(self, must_end: bool = False) -> Iterator[OpenInput]:
        """Opens a session on the input, closed when the block ends.

        Args:
          must_end: raise ValueError if there is no last batch.
        """
        with contextlib.ExitStack() as stack:
            # Not entered: it would stay the caller's default session between two batches.
            session = tf.compat.v1.Session(graph=self._graph, config=_CONFIG)
            stack.callback(session.close)
            if self._initializers:
                session.run(self._initializers)
            if must_end and self._max_batches is None:
                self._check_end(session)
            yield OpenInput(session, self._batches(session, stack))

    def _batches(
        self, session: tf.compat.v1.Session, stack: contextlib.ExitStack
    ) -> Iterator[list[np.ndarray]]:
        """Starts the input with the first batch, after what hooks do with the session."""
        if self._start is not None:
            session.run(self._start)
        if self._has_queues:
            coordinator = tf.train.Coordinator()
            with self._graph.as_default():
                threads = tf.compat.v1.train.start_queue_runners(session, coordinator)
            stack.callback(coordinator.join, threads, stop_grace_period_secs=5)
            stack.callback(coordinator.request_stop)
        yield from self._dealt(_taken(_tf.make_callable(session, self._tensors, [])))

    def _dealt(self, batches: Iterator[list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
        """The parts that the batches are cut into, as many as are wanted."""
        if self._num_slices > 1:
            batches = (part for b in batches for part in cut(b, self._axes, self._num_slices))
        return itertools.islice(batches, self._max_batches)

    def _check_end(self, session: tf.compat.v1.Session) -> None:
        if self._build_cardinality is None:
            return
        with self._graph.as_default():
            cardinality = self._build_cardinality()
        if session.run(cardinality) == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                "The dataset of `input_fn` never ends, so `evaluate` would not either. Pass "
                "`steps`, or leave out `repeat()`."
            )


def _has(graph: tf.Graph, name: str) -> bool:
    try:
        graph.as_graph_element(name)
    except (KeyError, ValueError):
        return False
    return True


def _taken(take: Callable[[], list[np.ndarray]]) -> Iterator[list[np.ndarray]]:
    """Batches to the input's end."""
    with contextlib.suppress(tf.errors.OutOfRangeError):
        while True:
            yield take()


def _initializers() -> list[tf.Operation]:
    """Of the variables and tables in the default graph; each first run of an op costs time."""
    v1 = tf.compat.v1
    variables = [*v1.global_variables(), *v1.local_variables()]
    tables = v1.get_collection(v1.GraphKeys.TABLE_INITIALIZERS)
    return [*(variable.initializer for variable in variables), *tables]


def _type_spec(value: Any) -> Any:
    return None if value is None else tf.type_spec_from_value(value)


def _kind(spec: Any) -> str:
    return type(spec).__name__
