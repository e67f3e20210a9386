"""Calls `input_fn`, checks its result, and takes batches for the replicas of a train step."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError, arguments_named, check_needs_only
from estimator.input.array_datasets import arrays_outside_graph
from estimator.input.conversion import with_arrays, with_sortable_keys
from estimator.input.lookahead import build_unwrapped, with_lookahead
from estimator.input.packed_batches import pack_batch
from estimator.rewrite.subgraph_copy import build_copy, runs_each_time
from estimator.spec import ModeKeys

_BATCH_SIZES = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}

# The batches of a step, (features, labels) for each replica, and whether more follow, if known.
Taken: TypeAlias = tuple[list[tuple[Any, Any]], tf.Tensor | None]

INPUT_FN_ARGUMENTS = ("params", "mode", "config", "input_context")


@dataclasses.dataclass(frozen=True)
class Input:
    """The input that an `input_fn` built in the default graph.

    Attributes:
      build_batches: adds the ops that take the batches of a step, one for each of so many replicas,
        to the default graph, which may be a loop's body. Returns them, as (features, labels), and
        whether there are batches for the next step (scalar, bool).
      initializer: starts the input at its beginning; None if it needs no initialization.
      iterators: the iterators whose positions can be saved; empty for an input of bare tensors.
      element: (features, labels) as type specs.
      build_cardinality: adds a scalar, int64: the number of batches, or a constant of
        tf.data.experimental. None for an input of bare tensors.
      looks_ahead: whether `build_batches` says if there are batches for the next step, which
        otherwise is None. The very first run then says only that, and takes no batches.
      is_split: whether the replicas share a batch, or have an `input_fn` call each, instead of
        taking one batch after another.
    """

    build_batches: Callable[[int], Taken]
    initializer: tf.Operation | None
    iterators: tuple[tf.compat.v1.data.Iterator, ...]
    element: tuple[Any, Any]
    build_cardinality: Callable[[], tf.Tensor] | None = None
    looks_ahead: bool = False
    is_split: bool = False

    @property
    def batch_size(self) -> int | None:
        """Returns the batch size of a replica if all tensors share a static one; else None."""
        if self.is_split:
            return None
        specs = [spec for spec in tf.nest.flatten(self.element) if spec is not None]
        shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in specs]
        # After `tf.disable_v2_behavior()`, dimensions are `Dimension` objects.
        sizes = {tf.compat.dimension_value(shape[0]) if shape.rank else None for shape in shapes}
        return sizes.pop() if len(sizes) == 1 else None


@dataclasses.dataclass(frozen=True)
class UserInput:
    """What an `input_fn` returned in the default graph, before anything reads it.

    Attributes:
      element: (features, labels) as type specs.
      dataset: the dataset; None for bare tensors.
      build: adds the iterator to the default graph, which must be the same; to be called once.
    """

    element: tuple[Any, Any]
    dataset: tf.data.Dataset | None
    build: Callable[[], Input]


class DatasetFn(functools.partial):
    """An `input_fn` of this library, bound to a function that makes a dataset."""

    def __call__(self) -> Any:
        """Returns the next batch as tensors of the default graph, for use in another `input_fn`.

        The tensors raise OutOfRangeError at the end of the data, and need neither queue runners nor
        an initializer. Outside a graph this returns the dataset.
        """
        dataset = self.build_dataset()
        if tf.executing_eagerly():
            return dataset
        return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()

    def build_dataset(self) -> tf.data.Dataset:
        """Returns the dataset, whose position can be saved."""
        return super().__call__()


def get_input(
    input_fn: Callable,
    *,
    mode: str,
    params: Any,
    config: Any,
    input_context: tf.distribute.InputContext,
    lookahead: int | None = None,
    min_array_bytes: float = math.inf,
) -> UserInput:
    """Calls `input_fn` with only the arguments that it names.

    Args:
      input_fn: the user's function.
      mode: a ModeKeys value.
      params: passed to `input_fn`.
      config: passed to `input_fn`.
      input_context: passed to `input_fn`.
      lookahead: the number of replicas of this worker if its batches must say whether more follow;
        else None.
      min_array_bytes: the size from which arrays that become datasets are kept out of the graph,
        which then runs in this process only.

    Raises:
      TypeError: it returned None, or neither a dataset nor tensors.
      ValueError: it returned a tuple other than (features, labels), or a dataset that was made
        outside of it; or it asks for a batch size that `params` lack.
    """
    given = {"params": params, "mode": mode, "config": config, "input_context": input_context}
    with tf.device("/cpu:0"):
        try:
            with _tf.ops_of_datasets_in("input"), arrays_outside_graph(min_array_bytes):
                result = call_input_fn(input_fn, given)
        except KeyError as error:
            lacks_it = isinstance(params, Mapping) and "batch_size" not in params
            if error.args != ("batch_size",) or not lacks_it:
                raise
            raise ValueError(
                '`input_fn` asks for params["batch_size"], which is not set. Pass '
                f"`{_BATCH_SIZES[mode]}` to a TPUEstimator, or `params` that include it to an "
                "Estimator."
            ) from error
        if isinstance(result, tf.data.Dataset | tf.compat.v1.data.Dataset):
            return _get_dataset_input(result, mode, lookahead)
        return _get_tensor_input(result)


def call_input_fn(input_fn: Callable, given: dict[str, Any]) -> Any:
    """Calls `input_fn` with those of the given arguments that it names."""
    if isinstance(input_fn, DatasetFn):
        return input_fn.build_dataset()
    return input_fn(**{name: given[name] for name in input_arguments(input_fn)})


def build_replica_batches(source: Input, num_replicas: int) -> Taken:
    """Takes one batch for each replica, in order; no batch is usable before all are available.

    At the end of the input all replicas fail together, before any has changed a variable.

    Returns:
      The batches, and whether there are more for the next step (scalar, bool); None if the input
      does not look ahead.
    """
    with tf.device("/cpu:0"):
        batches, has_more = source.build_batches(num_replicas)
        if source.looks_ahead or num_replicas == 1:
            return batches, has_more
        with tf.control_dependencies(batch_tensors(batches)):
            flat = tf.nest.flatten(batches, expand_composites=True)
            copies = [None if tensor is None else tf.identity(tensor) for tensor in flat]
            together = pack_batch(batches, copies)
    return together, None


def features_and_labels(element: Any) -> tuple[Any, Any]:
    """Returns the (features, labels) of an element; a tuple is always the pair."""
    if isinstance(element, tuple):
        if len(element) != 2:
            raise ValueError(
                f"`input_fn` yields tuples of {len(element)} values. They must be (features, "
                "labels); put several features into a dict or an inner tuple."
            )
        return element
    is_pair = isinstance(element, list) and len(element) == 2
    return (element[0], element[1]) if is_pair else (element, None)


def take_in_turn(builds: Sequence[Callable[[], Any]]) -> list[Any]:
    """Calls each function; what it builds waits for the batches of the one before it."""
    taken: list[Any] = []
    for build in builds:
        with tf.control_dependencies(batch_tensors(taken)):
            taken.append(build())
    return taken


def check_input_fn(input_fn: Any) -> None:
    """Raises an error if `input_fn` cannot be called as an input function."""
    if not callable(input_fn):
        raise WrongTypeError(
            f"`input_fn` ({input_fn!r}) must be a function that returns a tf.data.Dataset or "
            "(features, labels). Wrap it in a function: lambda: make_dataset()."
        )
    check_needs_only("input_fn", input_fn, INPUT_FN_ARGUMENTS)


def input_arguments(input_fn: Callable) -> tuple[str, ...]:
    """Returns the arguments that an `input_fn` is given: those it names, none for `**kwargs`."""
    return arguments_named("input_fn", input_fn, INPUT_FN_ARGUMENTS)


def _get_dataset_input(dataset: tf.data.Dataset, mode: str, lookahead: int | None) -> UserInput:
    element = _checked_element(dataset.element_spec)
    # An eager tensor has no graph.
    home = getattr(tf.data.experimental.to_variant(dataset), "graph", None)
    if home is not tf.compat.v1.get_default_graph():
        raise ValueError(
            f"`input_fn` returned a dataset that was made outside of it ({dataset!r}). Make it "
            "inside `input_fn`, which is called in the graph that the input becomes a part of."
        )

    def build() -> Input:
        with tf.device("/cpu:0"):
            with tf.name_scope("training/"):  # Leaves plain names, such as "count", to variables.
                ahead = dataset if lookahead is None else with_lookahead(dataset, lookahead)
            # Not in a scope: hooks fetch "IteratorGetNext:0", and a saved position uses its name.
            iterator = tf.compat.v1.data.make_initializable_iterator(_with_options(ahead, mode))

        def build_batches(num_replicas: int) -> Taken:
            if lookahead is None:
                return take_in_turn(
                    [lambda: features_and_labels(iterator.get_next())] * num_replicas
                ), None
            group, has_more = iterator.get_next()
            batches = build_unwrapped(group, dataset.element_spec, lookahead)
            return [features_and_labels(batch) for batch in batches], has_more

        return Input(
            build_batches,
            iterator.initializer,
            (iterator,),
            element,
            dataset.cardinality,
            looks_ahead=lookahead is not None,
        )

    return UserInput(element, dataset, build)


def _with_options(dataset: tf.data.Dataset, mode: str) -> tf.data.Dataset:
    """Turns off tf.data's autotuning unless the dataset's options say otherwise.

    Closing a session on an autotuned dataset was seen to stall for up to half a minute (14 of 48
    short runs on TensorFlow 2.21; 0 of 72 without). AUTOTUNE then means one thread per core.

    A dataset for evaluation or prediction without a function, such as a `map`, is not optimized
    before its first batch either: that takes a millisecond or more, and gains nothing.
    """
    with warnings.catch_warnings():
        # In a graph, TensorFlow warns that it may not know the options; they count as unset then.
        warnings.simplefilter("ignore")
        said = dataset.options()
    options = tf.data.Options()
    if said.autotune.enabled is None:
        options.autotune.enabled = False
    is_rewritten = said.experimental_optimization.apply_default_optimizations
    if mode != ModeKeys.TRAIN and is_rewritten is None and not _has_functions():
        options.experimental_optimization.apply_default_optimizations = False
    return dataset.with_options(options)


def _has_functions() -> bool:
    """Returns whether an op of the default graph calls a function of the user's."""
    ops = tf.compat.v1.get_default_graph().get_operations()
    return any(attr.type == "func" for op in ops for attr in op.op_def.attr)


def _checked_element(element: Any) -> tuple[Any, Any]:
    """Returns elements as (features, labels); raises an error for others before a loop is built."""
    for spec in tf.nest.flatten(element):
        if isinstance(spec, tf.data.DatasetSpec):
            raise WrongTypeError(
                f"The dataset of `input_fn` yields datasets ({spec}). Its elements must be "
                "tensors. Flatten them with flat_map, or batch them."
            )
        if isinstance(spec, tf.TensorArraySpec):
            raise WrongTypeError(
                f"The dataset of `input_fn` yields a TensorArray ({spec}). Yield its `stack()`."
            )
    return features_and_labels(element)


def _check_tensors(result: Any) -> None:
    """Raises an error unless an `input_fn` returned (features, labels), or features alone."""
    if result is None:
        raise WrongTypeError(
            "`input_fn` returned None. It must return a tf.data.Dataset or (features, labels). "
            "Does it lack a `return`?"
        )
    if callable(result):
        raise WrongTypeError(
            f"`input_fn` returned {result!r}, a function. It must return a tf.data.Dataset or "
            "(features, labels). Pass that function as `input_fn`, or call it."
        )
    if isinstance(result, tuple | list) and len(result) != 2:
        raise ValueError(
            f"`input_fn` returned a {type(result).__name__} of {len(result)} values. It must "
            "return (features, labels), or features alone as a tensor or a dict."
        )
    flat = tf.nest.flatten(result)
    if any(isinstance(value, tf.data.Dataset) for value in flat):
        raise WrongTypeError(
            f"`input_fn` returned {result!r}. Combine several datasets with "
            "tf.data.Dataset.zip((features, labels))."
        )
    if not flat or not all(map(_is_tensor_like, flat)):
        raise WrongTypeError(
            f"`input_fn` returned {result!r}. It must return a tf.data.Dataset, or (features, "
            "labels) where each is a tensor or a dict, tuple or list of tensors."
        )


def _get_tensor_input(result: Any) -> UserInput:
    """Returns an input of bare tensors: each batch is another run of the ops behind them."""
    if not isinstance(result, str | bytes):
        result = with_arrays(with_sortable_keys(result))
    _check_tensors(result)
    batch = features_and_labels(tf.nest.map_structure(_as_tensor, result))
    home = tf.compat.v1.get_default_graph()
    is_taken: list[bool] = []

    def build_batch() -> tuple[Any, Any]:
        if tf.compat.v1.get_default_graph() is home and not is_taken:
            is_taken.append(True)
            return batch
        return build_copy(batch, runs_each_time, copies_waits=True)

    element = tf.nest.map_structure(type_spec_of, batch)
    taken = Input(lambda n: (take_in_turn([build_batch] * n), None), None, (), element)
    return UserInput(element, None, lambda: taken)


def _is_tensor_like(value: Any) -> bool:
    """Returns whether a value is None, an array, or one or several tensors."""
    is_array = tf.is_tensor(value) or hasattr(value, "__array__")
    return value is None or is_array or isinstance(value, tf.experimental.ExtensionType)


def _as_tensor(value: Any) -> Any:
    composite = tf.SparseTensor | tf.RaggedTensor | tf.experimental.ExtensionType
    return value if value is None or isinstance(value, composite) else tf.convert_to_tensor(value)


def type_spec_of(value: Any) -> Any:
    """Returns the type spec of a tensor; None for None, as labels may be."""
    return None if value is None else tf.type_spec_from_value(value)


def batch_tensors(batches: Any) -> list[tf.Tensor]:
    """Returns the tensors of a batch, including the components of sparse and ragged tensors."""
    return [t for t in tf.nest.flatten(batches, expand_composites=True) if t is not None]
