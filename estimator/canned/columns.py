"""What feature columns give: the input of a deep model, and the logits of a linear one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError

V1 = tf.compat.v1


def checked_columns(argument: str, columns: Any, *, only_dense: bool) -> list[Any]:
    """Returns the columns by name; raises an error unless a model can use them.

    Args:
      argument: what the model calls them.
      columns: the columns.
      only_dense: whether they must give numbers; a linear model also takes categories.
    """
    if _tf.is_column(columns) or isinstance(columns, Mapping | str):
        columns = [columns] if _tf.is_column(columns) else None
    if not isinstance(columns, Iterable):
        raise WrongTypeError(f"`{argument}` ({columns!r}) must be a list of feature columns.")
    columns = list(columns)
    if not columns:
        raise ValueError(f"`{argument}` ([]) must have at least one feature column.")
    for column in columns:
        if not _tf.is_column(column):
            raise WrongTypeError(
                f"`{argument}` holds {column!r}, which is not a feature column. Make one with a "
                "function of tf.feature_column, such as numeric_column(key)."
            )
        if only_dense and not _tf.is_dense(column):
            raise ValueError(
                f"`{argument}` has the column {column.name!r}, which gives categories, and a deep "
                "model needs numbers. Wrap it in tf.feature_column.embedding_column or "
                "indicator_column."
            )
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`{argument}` has the column {twice[0]!r} twice. Leave one of them out, or give the "
            "model the feature under two names."
        )
    return sorted(columns, key=lambda column: column.name)


def build_dense_input(columns: Sequence[Any], features: Any) -> tf.Tensor:
    """Returns the values of dense columns, side by side: [batch size, number of values]."""
    column_input = _input_of(columns, features)
    with V1.variable_scope("input_from_feature_columns/input_layer", reuse=V1.AUTO_REUSE):
        return tf.concat([column_input.dense(column) for column in columns], -1)


def build_linear_logits(
    columns: Sequence[Any], features: Any, units: int, combiner: str
) -> tf.Tensor:
    """Returns the logits of a linear model: [batch size, units]."""
    column_input = _input_of(columns, features)
    with V1.variable_scope("linear_model", reuse=V1.AUTO_REUSE):
        sums = [column_input.weighted_sum(column, units, combiner) for column in columns]
        zeros = V1.zeros_initializer()
        bias = V1.get_variable("bias_weights", [units], initializer=zeros)
        return tf.nn.bias_add(tf.add_n(sums), bias)


def _input_of(columns: Sequence[Any], features: Any) -> _tf.ColumnInput:
    if not isinstance(features, Mapping):
        raise WrongTypeError(
            f"`features` ({features!r}) must be a dict from the keys of the feature columns to "
            "tensors. Return one from `input_fn`."
        )
    for column in columns:
        for key, spec in column.parse_example_spec.items():
            if key not in features:
                raise ValueError(
                    f"The feature column {column.name!r} needs the feature {key!r}, which is not "
                    f"among {sorted(features)}. Return it from `input_fn`."
                )
            _check_type(column.name, key, features[key], spec.dtype)
    return _tf.ColumnInput(features)


def _check_type(column: str, key: str, feature: Any, dtype: tf.DType) -> None:
    given = tf.as_dtype(feature.dtype)
    if (given == tf.string) == (dtype == tf.string):
        return
    # A column of categories may also take integers where an example has strings.
    if given.is_integer and dtype == tf.string:
        return
    raise WrongTypeError(
        f"The feature {key!r}, which the column {column!r} needs, is {given.name}; it must be "
        f"{dtype.name}."
    )
