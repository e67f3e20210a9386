"""Specs for parsing a `tf.Example`: the features, the label and the weight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.checks import WrongTypeError, check_instance, check_int

# The class of a `tf.feature_column.numeric_column` has no public name.
_make_numeric = tf.feature_column.numeric_column


def classifier_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: tf.DType = tf.int64,
    label_default: Any = None,
    weight_column: Any = None,
) -> dict[str, Any]:
    """Returns the spec with which `tf.io.parse_example` parses examples for a classifier.

    Args:
      feature_columns: columns made by `tf.feature_column`.
      label_key: the label's name in the example, which no feature may have.
      label_dtype: the label's dtype: tf.string if a vocabulary names the classes.
      label_default: the default for examples without a label; None makes them an error.
      weight_column: the name of the examples' weights, or a numeric_column for them; None if there
        are none.

    Returns:
      A dict of name to FixedLenFeature, VarLenFeature and so on. The label's shape is [1].

    Raises:
      TypeError: the label's key, default or dimension has the wrong type.
      ValueError: `feature_columns` holds something else, the weights are not a numeric column, or
        the label or the weight has the name of a feature.
    """
    return regressor_parse_example_spec(
        feature_columns, label_key, label_dtype, label_default, 1, weight_column
    )


def regressor_parse_example_spec(
    feature_columns: Iterable[Any],
    label_key: str,
    label_dtype: tf.DType = tf.float32,
    label_default: Any = None,
    label_dimension: int = 1,
    weight_column: Any = None,
) -> dict[str, Any]:
    """Returns the spec with which `tf.io.parse_example` parses examples for a regressor.

    Args:
      feature_columns: columns made by `tf.feature_column`.
      label_key: the label's name in the example, which no feature may have.
      label_dtype: the label's dtype.
      label_default: the default for examples without a label, `label_dimension` values; None makes
        them an error.
      label_dimension: the number of values in a label.
      weight_column: the name of the examples' weights, or a numeric_column for them; None if there
        are none.

    Returns:
      A dict of name to FixedLenFeature, VarLenFeature and so on. The label's shape is
      [label_dimension].

    Raises:
      TypeError: the label's key, default or dimension has the wrong type.
      ValueError: as for classifier_parse_example_spec, or `label_dimension` is below 1.
    """
    check_int("label_dimension", label_dimension)
    columns = _checked_columns(feature_columns)
    check_instance("label_key", label_key, str, "a string, the name of the label")
    dtype = _checked_dtype(label_dtype)
    default = _checked_default(label_default, dtype, label_dimension)
    weight = _checked_weight(weight_column)
    is_v2 = all(hasattr(column, "parse_example_spec") for column in columns)
    module = tf.feature_column if is_v2 else tf.compat.v1.feature_column
    spec = module.make_parse_example_spec(columns)
    _check_is_no_feature("label_key", label_key, spec)
    spec[label_key] = tf.io.FixedLenFeature((label_dimension,), dtype, default)
    if weight is not None:
        _check_is_no_feature("weight_column", weight.key, spec)
        spec.update(weight.parse_example_spec)
    return spec


def _checked_columns(feature_columns: Any) -> list[Any]:
    if _is_column(feature_columns) or not isinstance(feature_columns, Iterable):
        raise WrongTypeError(
            f"`feature_columns` ({feature_columns!r}) must be a list of feature columns. Pass one "
            "column as [column]."
        )
    columns = list(feature_columns)
    for column in columns:
        if not _is_column(column):
            raise ValueError(
                f"`feature_columns` holds {column!r}, which is not a feature column. Make one with "
                "a function of tf.feature_column, such as numeric_column(key)."
            )
    return columns


def _is_column(value: Any) -> bool:
    # Duck typing, because TF 1 and TF 2 columns have no public base class in common.
    return hasattr(value, "parse_example_spec") or hasattr(value, "_parse_example_spec")


def _checked_dtype(dtype: Any) -> tf.DType:
    try:
        return tf.as_dtype(dtype)
    except TypeError as error:
        raise WrongTypeError(
            f"`label_dtype` ({dtype!r}) must be a dtype, such as tf.int64, tf.float32 or tf.string."
        ) from error


def _checked_default(default: Any, dtype: tf.DType, dimension: int) -> Any:
    if default is None:
        return None
    try:
        tf.make_tensor_proto(default, dtype)
    except (TypeError, ValueError) as error:
        raise WrongTypeError(
            f"`label_default` ({default!r}) must be of `label_dtype` ({dtype.name})."
        ) from error
    if np.size(default) != dimension:
        raise ValueError(
            f"`label_default` ({default!r}) must have as many values as a label ({dimension})."
        )
    return default


def _checked_weight(weight_column: Any) -> Any:
    if weight_column is None:
        return None
    if isinstance(weight_column, str):
        return _make_numeric(weight_column)
    if not isinstance(weight_column, type(_make_numeric("any"))):
        raise ValueError(
            f"`weight_column` ({weight_column!r}) must be a string or a "
            "tf.feature_column.numeric_column."
        )
    return weight_column


def _check_is_no_feature(argument: str, name: str, spec: dict[str, Any]) -> None:
    if name in spec:
        raise ValueError(
            f"`{argument}` ({name!r}) must not be a feature too: {sorted(spec)}. Leave it out of "
            "`feature_columns`, or name another."
        )
