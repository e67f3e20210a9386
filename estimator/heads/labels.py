"""Labels and weights as heads need them: checked, as numbers, of the shape of the logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError

_NAME_CLASSES = (
    "Name the classes in the order of their ids with `label_vocabulary`, where the head takes one."
)


def build_required(values: tf.Tensor, is_right: tf.Tensor, rule: str) -> tf.Tensor:
    """Returns `values`; computing them raises an error if one of them is wrong.

    Args:
      values: a tensor.
      is_right: a bool for each of the values.
      rule: what the values must be; the message adds the first that is not.

    Raises:
      ValueError: a value is wrong, and operations run eagerly. In a graph,
        `tf.errors.InvalidArgumentError` when it runs.
    """
    message = f"{rule}; the first that is not: "
    with tf.name_scope("check"):
        flat = tf.reshape(values, [-1])
        # A last one that counts as wrong, so that there always is a first wrong one.
        flat = tf.concat([flat, tf.zeros([1], flat.dtype)], 0)
        is_wrong = tf.concat([tf.reshape(~is_right, [-1]), [True]], 0)
        first = tf.gather(flat, tf.argmax(tf.cast(is_wrong, tf.int32)))
        all_right = tf.reduce_all(is_right)
        if tf.executing_eagerly():
            if not all_right:
                raise ValueError(f"{message}{first.numpy()}.")
            return values
        check = tf.raw_ops.Assert(condition=all_right, data=[message, first], summarize=1)
        with tf.control_dependencies([check]):
            return tf.identity(values)


def check_label_vocabulary(vocabulary: Any, num_classes: int) -> None:
    """Raises an error unless it is None or a list of `num_classes` different strings."""
    if vocabulary is None:
        return
    is_list = isinstance(vocabulary, list | tuple)
    if not is_list or not all(isinstance(word, str | bytes) for word in vocabulary):
        raise WrongTypeError(f"`label_vocabulary` ({vocabulary!r}) must be a list of strings.")
    if len(vocabulary) != num_classes:
        raise ValueError(
            f"`label_vocabulary` ({list(vocabulary)}) has {len(vocabulary)} labels; it must have "
            f"one for each of the {num_classes} classes."
        )
    if len({tf.compat.as_bytes(word) for word in vocabulary}) < num_classes:
        raise ValueError(f"`label_vocabulary` ({list(vocabulary)}) must not repeat a label.")


def as_numbers(labels: Any, title: str, way_out: str = _NAME_CLASSES) -> tf.Tensor:
    """Returns dense labels that are numbers as a tensor.

    Raises:
      ValueError: there are none, or they are sparse, ragged or strings.
    """
    labels = _as_dense(labels, title)
    if labels.dtype == tf.string:
        raise WrongTypeError(f"{title}: labels are strings; they must be numbers. {way_out}")
    return labels


def build_class_ids(
    labels: Any, num_classes: int, vocabulary: Sequence[str] | None, title: str
) -> tf.Tensor:
    """Returns dense labels as the ids of classes, int64; computing them checks their values.

    Raises:
      ValueError: labels are no integers, or no strings if there is a vocabulary.
    """
    if vocabulary is not None:
        return build_ids_of_words(_as_dense(labels, title), vocabulary, title)
    ids = as_numbers(labels, title)
    if not ids.dtype.is_integer:
        raise WrongTypeError(
            f"{title}: labels are {ids.dtype.name}; they must be integers, the ids of classes. "
            "Convert them with tf.cast(labels, tf.int64)."
        )
    ids = tf.cast(ids, tf.int64)
    rule = f"{title}: labels must be ids of classes in [0, {num_classes})"
    return build_required(ids, (ids >= 0) & (ids < num_classes), rule)


def build_ids_of_words(words: tf.Tensor, vocabulary: Sequence[str], title: str) -> tf.Tensor:
    """Returns the words' places in the vocabulary; computing them fails for an unknown word."""
    if words.dtype != tf.string:
        raise WrongTypeError(
            f"{title}: labels are {words.dtype.name}; with a `label_vocabulary` they must be "
            "strings of it. Leave the vocabulary out if labels are ids of classes."
        )
    known = tf.constant(list(vocabulary), tf.string)
    is_word = tf.equal(words[..., tf.newaxis], known)
    rule = f"{title}: labels must be in the `label_vocabulary`"
    checked = build_required(words, tf.reduce_any(is_word, axis=-1), rule)
    with tf.control_dependencies([checked]):
        return tf.argmax(is_word, axis=-1)


def with_shape_of(labels: tf.Tensor, logits: tf.Tensor, dimension: int, title: str) -> tf.Tensor:
    """Returns labels with shape [D0, ..., DN, dimension] for logits [D0, ..., DN, any].

    If `dimension` is 1, labels may lack it.

    Raises:
      ValueError: the static shapes do not fit.
    """
    return _with_rank_of(labels, logits, [dimension], f"{title}: labels")


def build_weights(
    features: Any, column: Any, logits: tf.Tensor, dimensions: Sequence[int], title: str
) -> tf.Tensor | None:
    """Returns the weights, of the rank of the logits; None without a `weight_column`.

    Args:
      features: a dict of the features.
      column: the name of the weights' feature, a numeric_column, or None.
      logits: the logits.
      dimensions: the sizes that the weights' last dimension may have.
      title: the head, for errors.

    Raises:
      ValueError: the feature is missing, is sparse or has another shape. Computing the weights
        raises an error if one is negative or not a number.
    """
    key = weight_key(column)
    if key is None:
        return None
    if not isinstance(features, Mapping) or key not in features:
        there = sorted(features) if isinstance(features, Mapping) else "no dict"
        raise ValueError(
            f"{title}: `weight_column` ({key!r}) is not among the features ({there}). Return the "
            "weights from `input_fn` as a feature of this name."
        )
    if isinstance(features[key], tf.SparseTensor | tf.RaggedTensor):
        raise WrongTypeError(f"{title}: the weights, feature {key!r}, must be a dense tensor.")
    weights = tf.convert_to_tensor(features[key])
    if weights.dtype == tf.string:
        raise WrongTypeError(
            f"{title}: the weights, feature {key!r}, are {weights.dtype.name}, not numbers."
        )
    weights = tf.cast(weights, logits.dtype)
    if getattr(column, "normalizer_fn", None) is not None:
        weights = column.normalizer_fn(weights)
    weights = _with_rank_of(weights, logits, dimensions, f"{title}: the weights, feature {key!r},")
    rule = f"{title}: weights, feature {key!r}, must be at least 0"
    return build_required(weights, weights >= 0, rule)


def weight_key(column: Any) -> str | None:
    """Returns the feature that a `weight_column` names; None without one."""
    return getattr(column, "key", column)


def check_weight_column(column: Any) -> None:
    """Raises an error unless it is None, a name or a numeric column."""
    # The class of a numeric_column has no public name; no other column has these fields.
    is_numeric = {"key", "normalizer_fn"} <= set(getattr(column, "_fields", ()))
    if column is not None and not isinstance(column, str) and not is_numeric:
        raise WrongTypeError(
            f"`weight_column` ({column!r}) must be the name of a feature, or a "
            "tf.feature_column.numeric_column."
        )


def _with_rank_of(
    values: tf.Tensor, logits: tf.Tensor, dimensions: Sequence[int], what: str
) -> tf.Tensor:
    """Returns values with a last dimension of one of these sizes; they may lack one of size 1."""
    shape, batch = values.shape, logits.shape[:-1]
    if shape.rank is None:
        size = dimensions[0] if len(dimensions) == 1 else -1
        return tf.reshape(values, tf.concat([tf.shape(logits)[:-1], [size]], 0))
    if shape.rank == batch.rank:
        values = tf.expand_dims(values, -1)
    allowed = [batch.concatenate([size]) for size in dimensions]
    if not any(values.shape.is_compatible_with(one) for one in allowed):
        shapes = [batch, *allowed] if 1 in dimensions else allowed
        raise ValueError(
            f"{what} have shape {shape} and logits {logits.shape}, so they must have shape "
            f"{' or '.join(map(str, shapes))}."
        )
    return values


def _as_dense(labels: Any, title: str) -> tf.Tensor:
    if labels is None:
        raise ValueError(
            f"{title}: there are no labels. Return (features, labels) from `input_fn`, and pass "
            "`labels` on."
        )
    if isinstance(labels, Mapping):
        raise WrongTypeError(
            f"{title}: labels are a dict ({sorted(labels)}); they must be a tensor. Pass one of "
            "them, or use a MultiHead."
        )
    if isinstance(labels, tf.SparseTensor | tf.RaggedTensor):
        raise WrongTypeError(
            f"{title}: labels are a {type(labels).__name__}; they must be dense. Convert them with "
            "tf.sparse.to_dense, or use a MultiLabelHead if examples have several labels."
        )
    return tf.convert_to_tensor(labels)
