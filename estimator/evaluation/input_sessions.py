"""Sessions on the graphs of inputs, kept for later calls whose `input_fn` builds an equal graph.

To open a session and to run each op for the first time takes longer than to read a few batches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import _tf
from estimator.input.array_datasets import release_arrays
from estimator.input.graph_identity import MAX_BYTES, num_constant_bytes
from estimator.input.graph_structure import GraphStructure
from estimator.input.input_calls import UserInput, batch_tensors
from estimator.rewrite.graph_walk import all_nodes
from estimator.session.opening import needs_values

# An input's graph is a few ops around a dataset, and runs few times, so optimizing it costs more
# than it saves. (tf.data optimizes the dataset itself.) It is opened before the model's session,
# whose config says how much of a GPU's memory the process takes.
_CONFIG = tf.compat.v1.ConfigProto(device_count={"GPU": 0}, allow_soft_placement=True)
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True

# A session is kept only if restarting the iterator restarts everything. A stateful op may keep
# state, such as the rows of a table. Ops of these types count as stateful, but keep none.
_RESTARTED = {
    *("TensorDataset", "TensorSliceDataset", "RangeDataset", "ZipDataset", "ConcatenateDataset"),
    *("TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2", "FixedLengthRecordDatasetV2"),
    *("Assert", "PartitionedCall", "StatefulPartitionedCall", "If", "While", "Case"),
}
# A session may run ops of constants only once, and files change. Each Python function has a number
# of its own, so no later graph equals one that calls any.
_NEVER_KEPT = {"ReadFile", "MatchingFiles", "PyFuncStateless"}

# The name of the dataset, the number of tensors that are read of each element, and the graph.
Fingerprint = tuple[bytes, int, bytes]


@dataclasses.dataclass(frozen=True)
class InputGraph:
    """An input in a graph of its own, which has no iterator until a session is opened on it.

    Attributes:
      graph: the graph.
      source: what `input_fn` returned in the graph.
      has_labels: whether labels are needed; if not, they are never computed.
    """

    graph: tf.Graph
    source: UserInput
    has_labels: bool

    @functools.cached_property
    def element(self) -> tuple[Any, Any]:
        """The (features, labels) to read, as type specs."""
        features, labels = tf.nest.map_structure(_without_none, self.source.element)
        return features, labels if self.has_labels else None

    @functools.cached_property
    def fingerprint(self) -> Fingerprint | None:
        """Returns a key that is equal for equal graphs; None if its session cannot be reused.

        That is so if the graph is large, as the constants of a kept graph take twice their size, or
        if it may keep state from one reading to the next.
        """
        dataset = self.source.dataset
        if dataset is None or num_constant_bytes(self.graph) > MAX_BYTES:
            return None
        graph_def = self.graph.as_graph_def()
        if not all(map(_restarts, _op_types(graph_def))):
            return None
        num_read = sum(spec is not None for spec in tf.nest.flatten(self.element))
        structure = GraphStructure(graph_def)
        root = tf.data.experimental.to_variant(dataset).op.name
        return structure.digest_of(root), num_read, structure.digest()


class InputSession:
    """A session on an input.

    Attributes:
      session: the session, with initialized tables.
      has_ended: whether the input has been read to its end.
    """

    def __init__(self, source: InputGraph) -> None:
        """Opens the session."""
        self.has_ended = False
        with source.graph.as_default():
            built = source.source.build()
            self._build_cardinality = built.build_cardinality
            ((features, labels),), _ = built.build_batches(1)
            # In one call: each first run costs time.
            initializers = [getattr(thing, "initializer", thing) for thing in needs_values()]
        self.session = tf.compat.v1.Session(graph=source.graph, config=_CONFIG)
        if initializers:
            self.session.run(initializers)
        self._start = None
        if built.initializer is not None:
            self._start = _tf.make_callable(self.session, [built.initializer], [])
        tensors = batch_tensors((features, labels if source.has_labels else None))
        self._take = _tf.make_callable(self.session, tensors, [])

    def start(self) -> None:
        """Starts the iterator at its beginning, if the input has one."""
        self.has_ended = False
        if self._start is not None:
            self._start()

    def batches(self) -> Iterator[list[np.ndarray]]:
        """Yields batches until the input ends."""
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                yield self._take()
        self.has_ended = True

    @functools.cached_property
    def never_ends(self) -> bool:
        """Whether the dataset is infinite; False if that is not known."""
        if self._build_cardinality is None:
            return False
        with self.session.graph.as_default():
            cardinality = self._build_cardinality()
        return self.session.run(cardinality) == tf.data.INFINITE_CARDINALITY

    def close(self) -> None:
        """Closes the session."""
        self.session.close()
        release_arrays(self.session.graph)


class InputSessions:
    """Idle sessions on inputs, for use by several threads."""

    def __init__(self, max_kept: int = 4) -> None:
        """Keeps no session yet.

        Args:
          max_kept: how many to keep. Inputs of training and evaluation data may alternate, and
            several threads of a server may predict.
        """
        self._max_kept = max_kept
        self._idle: list[tuple[Fingerprint, InputSession]] = []  # Ordered by last use.
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, source: InputGraph) -> Iterator[InputSession]:
        """Takes a session on an equal graph, or opens one; keeps it if the block does not raise."""
        fingerprint = source.fingerprint
        session = self._taken(fingerprint) or InputSession(source)
        with contextlib.ExitStack() as stack:
            stack.callback(session.close)
            yield session
            if fingerprint is not None:
                if not session.has_ended:
                    session.start()  # Frees what the iterator has buffered.
                stack.pop_all()
                with self._lock:
                    self._idle.append((fingerprint, session))
                self._close_all_but(self._max_kept)

    def _taken(self, fingerprint: Fingerprint | None) -> InputSession | None:
        with self._lock:
            for index, (kept, _) in enumerate(self._idle):
                if kept == fingerprint:
                    return self._idle.pop(index)[1]
        return None

    def _close_all_but(self, num_kept: int) -> None:
        """Closes the idle sessions but for the last ones."""
        with self._lock:
            num_surplus = max(0, len(self._idle) - num_kept)
            surplus, self._idle = self._idle[:num_surplus], self._idle[num_surplus:]
        for _, session in surplus:
            session.close()

    def close(self) -> None:
        """Closes the idle sessions."""
        self._close_all_but(0)


def _without_none(spec: Any) -> Any:
    """Returns None for the spec of a None in a dataset's elements; other specs as they are.

    The class of that spec has a public name only in newer versions of TensorFlow.
    """
    return None if spec == tf.type_spec_from_value(None) else spec


def _op_types(graph_def: Any) -> set[str]:
    """Returns the types of the ops of a graph and of its functions; a call's may be a function."""
    named = {function.signature.name for function in graph_def.library.function}
    return {node.op for node in all_nodes(graph_def)} - named


@functools.cache
def _restarts(op_type: str) -> bool:
    if op_type in _RESTARTED:
        return True
    return not _tf.is_stateful(op_type) and op_type not in _NEVER_KEPT
