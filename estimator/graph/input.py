"""Calls `input_fn` and checks what it returned; batches for the replicas of a train step."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.graph.copy import build_copy

INPUT_FN_ARGUMENTS = ("params", "mode", "config", "input_context")


@dataclasses.dataclass(frozen=True)
class Input:
    """What an `input_fn` built in the default graph.

    Attributes:
      build_batch: adds the ops that take the next batch to the default graph, which may be the
        body of a loop; returns (features, labels).
      initializer: starts the input at its beginning; None if nothing needs it.
      iterator: the iterator, whose position can be saved; None for an input of bare tensors.
    """

    build_batch: Callable[[], tuple[Any, Any]]
    initializer: tf.Operation | None
    iterator: tf.compat.v1.data.Iterator | None


def build_input(
    input_fn: Callable,
    *,
    mode: str,
    params: dict[str, Any],
    config: Any,
    input_context: tf.distribute.InputContext,
) -> Input:
    """Calls `input_fn` with just the arguments that it names.

    Raises:
      TypeError: it returned nothing, or something that is no dataset and no tensors.
      ValueError: it returned a tuple that is not (features, labels).
    """
    given = {"params": params, "mode": mode, "config": config, "input_context": input_context}
    with tf.device("/cpu:0"):
        result = input_fn(**{name: given[name] for name in _argument_names(input_fn)})
        if isinstance(result, tf.data.Dataset | tf.compat.v1.data.Dataset):
            return _build_dataset_input(result)
    return _build_tensor_input(result)


def build_replica_batches(source: Input, num_replicas: int) -> list[tuple[Any, Any]]:
    """One batch a replica, in order; no batch is usable before all are there.

    At the end of the input all replicas fail together, before any has changed a variable.
    """
    batches: list[tuple[Any, Any]] = []
    for _ in range(num_replicas):
        with tf.device("/cpu:0"), tf.control_dependencies(batch_tensors(batches)):
            batches.append(source.build_batch())
    if num_replicas == 1:
        return batches
    with tf.device("/cpu:0"), tf.control_dependencies(batch_tensors(batches)):
        return tf.nest.map_structure(
            lambda t: None if t is None else tf.identity(t), batches, expand_composites=True
        )


def check_input_fn(input_fn: Any, argument: str = "input_fn") -> None:
    """Raises if `input_fn` cannot be called as an input function."""
    if not callable(input_fn):
        raise TypeError(
            f"`{argument}` ({input_fn!r}) must be a function that returns a tf.data.Dataset or "
            "(features, labels)."
        )
    unknown = [
        name
        for name, parameter in inspect.signature(input_fn).parameters.items()
        if name not in INPUT_FN_ARGUMENTS
        and parameter.default is inspect.Parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if unknown:
        raise ValueError(
            f"`{argument}` takes unknown arguments ({', '.join(unknown)}). It may take any of "
            f"{', '.join(INPUT_FN_ARGUMENTS)}; bind others with functools.partial."
        )


def _argument_names(input_fn: Callable) -> list[str]:
    parameters = inspect.signature(input_fn).parameters
    return [name for name in INPUT_FN_ARGUMENTS if name in parameters]


def _build_dataset_input(dataset: tf.data.Dataset) -> Input:
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
    _split(dataset.element_spec)  # Raises now, not inside a loop's body.
    return Input(lambda: _split(iterator.get_next()), iterator.initializer, iterator)


def _build_tensor_input(result: Any) -> Input:
    """An input of bare tensors: each batch is another run of the ops behind them."""
    if result is None:
        raise TypeError(
            "`input_fn` returned None. It must return a tf.data.Dataset or (features, labels). "
            "Does it lack a `return`?"
        )
    flat = tf.nest.flatten(result)
    if not flat or not all(_is_tensor_like(value) for value in flat if value is not None):
        raise TypeError(
            f"`input_fn` returned {result!r}. It must return a tf.data.Dataset, or (features, "
            "labels) where each is a tensor or a dict, tuple or list of tensors."
        )
    if isinstance(result, tuple | list) and len(result) != 2:
        raise ValueError(
            f"`input_fn` returned a {type(result).__name__} of {len(result)} values. It must "
            "return (features, labels), or features alone as a tensor or a dict."
        )
    tensors = tf.nest.map_structure(
        lambda v: v if v is None or not _is_array(v) else tf.convert_to_tensor(v), result
    )
    home = tf.compat.v1.get_default_graph()
    is_taken = []

    def build_batch() -> tuple[Any, Any]:
        if tf.compat.v1.get_default_graph() is home and not is_taken:
            is_taken.append(True)
            return _split(tensors)
        features, labels = _split(tensors)
        if labels is None:
            return build_copy(features, _runs_for_each_batch), None
        return build_copy((features, labels), _runs_for_each_batch)

    return Input(build_batch, None, None)


def _runs_for_each_batch(op: tf.Operation) -> bool:
    """False for what every batch shares: queues, iterators, variables and constants."""
    holders = (tf.resource, tf.variant)
    is_handle = any(output.dtype in holders or output.dtype._is_ref_dtype for output in op.outputs)
    return not is_handle and op.type not in ("Const", "Placeholder")


def _split(element: Any) -> tuple[Any, Any]:
    """(features, labels) of an element: a tuple is always the pair."""
    if isinstance(element, tuple):
        if len(element) != 2:
            raise ValueError(
                f"The dataset of `input_fn` yields tuples of {len(element)} values. They must be "
                "(features, labels); put several features into a dict or an inner tuple."
            )
        return element
    if isinstance(element, list) and len(element) == 2:
        return element[0], element[1]
    return element, None


def _is_tensor_like(value: Any) -> bool:
    return _is_array(value) or isinstance(value, tf.SparseTensor | tf.RaggedTensor)


def _is_array(value: Any) -> bool:
    return tf.is_tensor(value) or hasattr(value, "__array__")


def batch_tensors(batches: Any) -> list[tf.Tensor]:
    """The tensors of a batch, those inside sparse and ragged ones included."""
    return [t for t in tf.nest.flatten(batches, expand_composites=True) if t is not None]


__all__ = ["Input", "build_input", "build_replica_batches", "check_input_fn"]
