"""Runs the input of an evaluation or prediction in its own graph and session.

The model's program outlives the input: it is fed, so it neither grows nor is rebuilt when the next
call uses another dataset.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.evaluation.input_sessions import InputGraph, InputSession, InputSessions
from estimator.input.input_calls import UserInput
from estimator.input.pipelines import cut, make_axes, make_sliced_element
from estimator.session.hooked_session import coordinated


class SessionOfBoth:
    """Presents the model's session to hooks, but runs the input's ops in the input's session.

    An `input_fn` that returns tensors relies on a hook to run its `iterator.initializer`. What a
    hook runs of the model, as in its `end`, is of the batch of the last call.
    """

    def __init__(self, model: tf.compat.v1.Session, source: tf.compat.v1.Session) -> None:
        """Wraps both sessions; other attributes are those of the model's session."""
        self._model = model
        self._source = source
        self._batch: dict[str, Any] = {}

    def note_feeds(self, feeds: Mapping[tf.Tensor, Any]) -> None:
        """Keeps the batch that a call feeds, in place of the one before it."""
        self._batch = {tensor.name: value for tensor, value in feeds.items()}

    def run(self, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Calls `run` of the session whose graph holds the first fetch."""
        first = next(iter(tf.nest.flatten(fetches)), None)
        if isinstance(first, str):
            in_source = _has(self._source.graph, first) and not _has(self._model.graph, first)
        else:
            in_source = getattr(first, "graph", None) is self._source.graph
        if in_source:
            return self._source.run(fetches, feed_dict, *args, **kwargs)
        own = {getattr(key, "name", key) for key in feed_dict or {}}
        batch = {name: value for name, value in self._batch.items() if name not in own}
        return self._model.run(fetches, {**batch, **(feed_dict or {})}, *args, **kwargs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the model's session, for `isinstance`: `Saver.save` asks for a session."""
        return type(self._model)

    def __getattr__(self, name: str) -> Any:
        """Returns the attribute of the model's session."""
        return getattr(self._model, name)


class HostInput:
    """The batches of one `input_fn` call, as lists of NumPy arrays.

    Attributes:
      element: (features, labels) as type specs, for which a program is built.
      batches_per_step: the number of batches in a global batch.
    """

    def __init__(
        self,
        call: Callable[[], UserInput],
        sessions: InputSessions,
        seed: int | None,
        has_labels: bool,
        batches_per_step: int = 1,
        num_slices: int = 1,
        batch_axis: Sequence[int] | None = None,
        max_batches: int | None = None,
    ) -> None:
        """Calls `input_fn` in a separate graph.

        Args:
          call: calls `input_fn` in the default graph.
          sessions: keeps its session for a later call with an equal input.
          seed: the graph's seed.
          has_labels: whether labels are needed; if not, they are never computed.
          batches_per_step: the number of batches in a global batch, one for each replica.
          num_slices: the number of parts that each batch is split into, which then count as
            batches.
          batch_axis: the dimension along which to split each tensor; None means the first.
          max_batches: the maximum number of batches; None for no limit.
        """
        self.batches_per_step = batches_per_step
        self._max_batches = max_batches
        self._sessions = sessions
        with tf.Graph().as_default() as graph:
            tf.compat.v1.set_random_seed(seed)
            self._source = InputGraph(graph, call(), has_labels)
        self.element = self._source.element
        self._num_slices = num_slices
        if num_slices > 1:
            self._axes = make_axes(self.element, batch_axis)
            self.element = make_sliced_element(self.element, self._axes)

    @property
    def key(self) -> tuple:
        """A key that is equal for inputs that the same program can be fed with."""
        flat = tf.nest.flatten(self.element, expand_composites=True)
        shapes = tuple(None if spec is None else (spec.dtype, str(spec.shape)) for spec in flat)
        kinds = tf.nest.map_structure(lambda spec: type(spec).__name__, self.element)
        return str(kinds), shapes, tuple(sorted(self.names.items()))

    @property
    def names(self) -> dict[str, int]:
        """The names of ops that `input_fn` made outside of tf.data; see `_tf.names_in_use`.

        The model's ops would have other names beside them, and its variables may be named after
        those, in the graph of training, too.
        """
        used = _tf.names_in_use(self._source.graph).items()
        return {name: count for name, count in used if not name.startswith("input/")}

    @contextlib.contextmanager
    def opened(
        self, must_end: bool = False, has_hooks: bool = False
    ) -> Iterator[tuple[tf.compat.v1.Session, Iterator[list[np.ndarray]]]]:
        """Opens the input, closed when the block ends.

        Args:
          must_end: whether to raise ValueError if the dataset is infinite.
          has_hooks: whether hooks may run ops of the input's graph, which then needs a session of
            its own.

        Yields:
          A session on the input's graph, with initialized tables; and the component tensors of each
          batch, as arrays.
        """
        sessions = InputSessions(0) if has_hooks else self._sessions
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(sessions.opened(self._source))
            if must_end and self._max_batches is None and source.never_ends:
                raise ValueError(
                    "The dataset of `input_fn` never ends, so `evaluate` would not either. Pass "
                    "`steps`, or leave out `repeat()`."
                )
            yield source.session, self._batches(source, stack)

    def _batches(
        self, source: InputSession, stack: contextlib.ExitStack
    ) -> Iterator[list[np.ndarray]]:
        """Starts the input at the first batch, after hooks have used the session.

        Yields the batches, or their parts, up to `max_batches`.
        """
        source.start()
        with self._source.graph.as_default():
            stack.enter_context(coordinated(source.session))
        batches = source.batches()
        if self._num_slices > 1:
            batches = (part for b in batches for part in cut(b, self._axes, self._num_slices))
        yield from itertools.islice(batches, self._max_batches)


def _has(graph: tf.Graph, name: str) -> bool:
    try:
        graph.as_graph_element(name)
    except (KeyError, ValueError):
        return False
    return True
