"""Explains why a `model_fn` fails on the output of an `input_fn`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator import _tf


class ImportedInLoopError(ValueError):
    """A `model_fn` imports a meta graph in a loop; it can be called again without one."""


@contextlib.contextmanager
def explaining_failure(trained_on: Any, features: Any, *, lacks_labels: bool) -> Iterator[None]:
    """Adds what is unusual about the arguments to an error of the `model_fn` called in the block.

    A `model_fn` may work without labels, and with other features in another mode: neither is an
    error in itself.

    Args:
      trained_on: the features of the last training, as type specs; None if there was none.
      features: the features of this call.
      lacks_labels: whether it takes labels and must return a loss, but there are no labels.

    Raises:
      ValueError: raised from the error in the block if the arguments are unusual.
    """
    try:
        yield
    except ImportedInLoopError:
        raise
    except Exception as error:
        before = None if trained_on is None else _describe(trained_on)
        now = _describe(features)
        reason = f"({type(error).__name__}: {error})"
        if before not in (None, now):
            raise ValueError(
                f"`model_fn` fails on the features {now} {reason}. It was trained on {before}. "
                "Yield the same structure from `input_fn`, or from `serving_input_receiver_fn`."
            ) from error
        # An error that does not mention None is another mistake, in a model that needs no labels.
        if lacks_labels and "None" in str(error):
            raise ValueError(
                f"`model_fn` fails without labels {reason}, and `input_fn` yields none. Let it "
                "yield (features, labels). In an export, build_raw_supervised_input_receiver_fn "
                "makes a receiver with labels."
            ) from error
        raise


# What TensorFlow says of a tensor that is not in the graph that is being built.
_FOREIGN = ("Attempting to capture an EagerTensor", "must be from the same graph")


@contextlib.contextmanager
def explaining_foreign_tensors() -> Iterator[None]:
    """Explains errors of a `model_fn`, called in the block, that uses tensors of another graph.

    Raises:
      ValueError: it uses such a tensor or variable, or an eager one.
    """
    message = (
        "`model_fn` uses a tensor or a variable that was made outside of this call{}. Each call "
        "builds another graph: make variables, layers, metrics and optimizers inside `model_fn`, "
        "and pass constants as NumPy arrays."
    )
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not any(text in str(error) for text in _FOREIGN):
            raise
        raise ValueError(message.format(f" ({type(error).__name__}: {error})")) from error
    if foreign := _tf.foreign_captures(tf.compat.v1.get_default_graph()):
        raise ValueError(message.format(f" ({foreign[0]!r})"))


@contextlib.contextmanager
def explaining_foreign_strategy() -> Iterator[None]:
    """Explains why a `model_fn`, called on the replicas in the block, enters another strategy.

    Raises:
      ValueError: it enters the scope of another strategy.
    """
    try:
        yield
    except RuntimeError as error:
        if "Must not nest tf.distribute.Strategy scopes" not in str(error):
            raise
        raise ValueError(
            f"`model_fn` enters the scope of a strategy other than its own ({error}), as a Keras "
            "optimizer does that was made outside of this call. Make it inside `model_fn`."
        ) from error


@contextlib.contextmanager
def explaining_batch_size(params: Mapping[str, Any]) -> Iterator[None]:
    """Explains a KeyError of `params["batch_size"]` of the `model_fn` called in the block.

    Raises:
      ValueError: raised from that KeyError if `params` has no batch size.
    """
    try:
        yield
    except KeyError as error:
        if error.args != ("batch_size",) or "batch_size" in params:
            raise
        raise ValueError(
            '`model_fn` asks for params["batch_size"], which is not set. An export has none, '
            "because its batches can have any size: use tf.shape(tensor)[0]. Otherwise pass the "
            "batch size of the mode to a TPUEstimator, or `params` that include it to an "
            "Estimator."
        ) from error


def _describe(features: Any) -> str:
    return str(tf.nest.map_structure(_describe_one, features))


def _describe_one(value: Any) -> str:
    """Returns a short form, such as "float32[batch, 28]" or "float32 SparseTensor"."""
    spec = value if isinstance(value, tf.TypeSpec) else tf.type_spec_from_value(value)
    if isinstance(spec, tf.SparseTensorSpec | tf.RaggedTensorSpec):
        return f"{spec.dtype.name} {spec.value_type.__name__}"
    if not isinstance(spec, tf.TensorSpec):
        return str(spec.value_type.__name__)
    sizes = ["..."] if spec.shape.rank is None else map(str, spec.shape[1:])
    return f"{spec.dtype.name}[{', '.join(['batch', *sizes])}]"
