"""What a hook asks for, by object or by name, as what a session can fetch or feed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.rewrite.hoist import ONLY_IN_STEP
from estimator.rewrite.updates import is_assigned
from estimator.session.hook_errors import HookInLoopError

Hook: TypeAlias = tf.compat.v1.train.SessionRunHook

# What TensorFlow says of a tensor or a name that is not in the graph that a hook uses.
_FOREIGN = (
    "must be from the same graph",
    "is not an element of this graph",
    "refers to a",
    ONLY_IN_STEP,
)

_ANOTHER_GRAPH = (
    "Take it from the default graph in the hook's `begin`, or make the hook in `model_fn`."
)


class HookFetches:
    """What hooks find in a graph, after their `begin`.

    Attributes:
      has_run: whether a session call with hooks has run, so that the loop cannot be left any more.
    """

    def __init__(self, graph: tf.Graph, overrides: Mapping[int, tf.Tensor], is_loop: bool) -> None:
        """Takes the graph.

        Args:
          graph: the session's graph.
          overrides: what to fetch instead of a tensor or a variable, by its `id`.
          is_loop: whether the steps are in a loop.
        """
        self._graph = graph
        self._overrides = overrides
        self._is_loop = is_loop
        self.has_run = False
        # What to fetch for each variable, by the names of its handle and of v1's read.
        self._values: dict[str, Any] = {}
        self._step: tf.Tensor | None = None
        self._after: tf.Tensor | None = None
        self._reads: dict[int, tuple[tf.Variable, tf.Tensor]] = {}

    def find_variables(self, step: tf.Tensor | None) -> None:
        """Finds the variables of the graph, which is complete now.

        Args:
          step: the tensor to fetch for the global step's variable; reads of other variables wait
            for it. None outside of training.
        """
        self._values = dict(_tf.variables_by_name(self._graph))
        if self._values and step is not None:
            step_variable = _tf.copies(tf.compat.v1.train.get_global_step())[0]
            self._values[step_variable.handle.name] = self._step = step
            self._after = _build_wait(step)

    @contextlib.contextmanager
    def explaining_names(self, hook: Hook) -> Iterator[None]:
        """Says why the hook cannot use a tensor or a name in the block, if there is a loop."""
        try:
            yield
        except (KeyError, ValueError) as error:
            is_foreign = any(text in str(error) for text in _FOREIGN)
            if not self._is_loop or not is_foreign:
                raise
            says = str(error).strip("'\".")  # A KeyError quotes its message.
            raise HookInLoopError(
                f"The hook {type(hook).__name__} fails: {says}. If it uses a tensor of "
                "`model_fn`, that lives inside the loop.",
                has_trained=self.has_run,
            ) from error

    def fetchable(self, hook: Hook, fetch: Any) -> Any:
        """Returns what the session fetches for a hook's fetch."""
        fetch = self._overridden(fetch)
        # A variable's name is its handle's name, and a hook cannot use a handle.
        is_handle = getattr(fetch, "dtype", None) == tf.resource
        name = fetch if isinstance(fetch, str) else fetch.name if is_handle else None
        fetch = self.reachable(hook, self._value_of(name) if name in self._values else fetch)
        is_variable = isinstance(fetch, tf.Variable) and not is_assigned(fetch)
        return self._read_after(fetch) if is_variable and self._is_ordered(fetch) else fetch

    def reachable(self, hook: Hook, fetch: Any) -> Any:
        """Returns a hook's fetch; raises ValueError if it is not of this graph."""
        if isinstance(fetch, str) and self._is_loop:
            with self.explaining_names(hook):
                self._graph.as_graph_element(fetch)
        # The op of what `assign` has returned is in the loop, though the variable is not.
        home = getattr(getattr(fetch, "op", fetch), "graph", self._graph)
        if home is self._graph:
            return fetch
        name = getattr(fetch, "name", type(fetch).__name__)
        asks = f"The hook {type(hook).__name__} asks for {name}, which"
        if _tf.is_loop_body(home):
            reason = f"{asks} lives inside the loop, where a session cannot see it."
            raise HookInLoopError(reason, has_trained=self.has_run)
        raise ValueError(f"{asks} belongs to another graph. {_ANOTHER_GRAPH}")

    def tensor_to_feed(self, hook: Hook, key: Any) -> tf.Tensor:
        """Returns the tensor that a hook feeds, which it may give by name."""
        with self.explaining_names(hook):
            tensor = self._graph.get_tensor_by_name(key) if isinstance(key, str) else key
        return self.reachable(hook, tensor)

    def _overridden(self, fetch: Any) -> Any:
        """Returns what to fetch instead of a tensor or of the global step's variable."""
        if id(fetch) not in self._overrides:
            return fetch
        is_step = isinstance(fetch, tf.Variable)
        return self._step if is_step and self._is_v1 else self._overrides[id(fetch)]

    def _is_ordered(self, variable: tf.Variable) -> bool:
        """Returns whether the variable is read after the step, and not at any time in it.

        A value that combines those of replicas is read from one after the other.
        """
        is_combined = variable.synchronization is tf.VariableSynchronization.ON_READ
        is_in_step = self._after is not None and (is_combined or self._is_v1)
        return self._is_loop or is_in_step

    @property
    def _is_v1(self) -> bool:
        """Whether a step is made whose variables a session reads as TensorFlow 1 does, after it."""
        return self._after is not None and not tf.compat.v1.resource_variables_enabled()

    def _value_of(self, name: str) -> Any:
        """Returns what reads a variable after the step, if a session call makes one."""
        value = self._values[name]
        if self._after is not None and isinstance(value, tf.Variable):
            value = self._values[name] = self._read_after(value)
        return value

    def _read_after(self, variable: tf.Variable) -> tf.Tensor:
        """Returns what reads a variable after the step; combines what replicas have of their own.

        A read that waits for nothing may come before, between or after the steps of a loop.
        """
        if id(variable) not in self._reads:
            is_alone = len(_tf.copies(variable)) == 1
            with self._graph.as_default(), tf.control_dependencies([self._after]):
                read = variable.read_value() if is_alone else tf.convert_to_tensor(variable)
            self._reads[id(variable)] = variable, read
        return self._reads[id(variable)][1]


def _build_wait(step: tf.Tensor) -> tf.Tensor:
    """Builds a tensor that reads added later can wait for.

    TensorFlow warns of the first control dependency on an op that has run, so one is built here.
    """
    after = tf.identity(step, "training/before_reads_of_hooks")
    with tf.control_dependencies([after]):
        tf.no_op("training/reads_of_hooks")
    return after
