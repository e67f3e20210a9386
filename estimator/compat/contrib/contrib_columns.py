"""The feature columns of `tf.contrib.layers`, made of those of tf.feature_column.

The `combiner` of a column of categories has no effect: that of the column made of it counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_columns = tf.compat.v1.feature_column


def real_valued_column(
    column_name: str,
    dimension: int = 1,
    default_value: Any = None,
    dtype: Any = tf.float32,
    normalizer: Callable | None = None,
) -> Any:
    """Returns a column of `tf.feature_column.numeric_column`."""
    return _columns.numeric_column(column_name, (dimension,), default_value, dtype, normalizer)


def sparse_column_with_hash_bucket(
    column_name: str, hash_bucket_size: int, combiner: str = "sum", dtype: Any = tf.string
) -> Any:
    """Returns a column of `tf.feature_column.categorical_column_with_hash_bucket`."""
    return _columns.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


def sparse_column_with_keys(
    column_name: str,
    keys: Sequence,
    default_value: int = -1,
    combiner: str = "sum",
    dtype: Any = tf.string,
) -> Any:
    """Returns a column of `tf.feature_column.categorical_column_with_vocabulary_list`."""
    return _columns.categorical_column_with_vocabulary_list(column_name, keys, dtype, default_value)


def sparse_column_with_vocabulary_file(
    column_name: str,
    vocabulary_file: str,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    combiner: str = "sum",
    dtype: Any = tf.string,
) -> Any:
    """Returns a column of `tf.feature_column.categorical_column_with_vocabulary_file`."""
    default = None if num_oov_buckets else default_value
    return _columns.categorical_column_with_vocabulary_file(
        column_name, vocabulary_file, vocab_size, num_oov_buckets, default, dtype
    )


def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: Any = tf.int64
) -> Any:
    """Returns a column of `tf.feature_column.categorical_column_with_identity`."""
    return _columns.categorical_column_with_identity(column_name, bucket_size)


def _under_old_names(function: Callable, **old_names: str) -> Callable:
    """Returns a function of tf.feature_column that takes arguments by their old names, too."""

    @functools.wraps(function)
    def make_column(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{old_names.get(name, name): kwargs[name] for name in kwargs})

    return make_column


embedding_column = _under_old_names(
    _columns.embedding_column, sparse_id_column="categorical_column"
)
one_hot_column = _under_old_names(_columns.indicator_column, sparse_id_column="categorical_column")
weighted_sparse_column = _under_old_names(
    _columns.weighted_categorical_column,
    sparse_id_column="categorical_column",
    weight_column_name="weight_feature_key",
)


def crossed_column(columns: Sequence, hash_bucket_size: int, combiner: str = "sum") -> Any:
    """Returns a column of `tf.feature_column.crossed_column`; hash columns give their features."""
    hashed = type(sparse_column_with_hash_bucket("any", 2))
    keys = [column.key if isinstance(column, hashed) else column for column in columns]
    return _columns.crossed_column(keys, hash_bucket_size)


def input_from_feature_columns(
    columns_to_tensors: Any,
    feature_columns: Sequence,
    weight_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """Returns the features as one tensor, as `tf.feature_column.input_layer` does."""
    with tf.compat.v1.variable_scope(scope, "input_from_feature_columns"):
        return _columns.input_layer(
            columns_to_tensors, list(feature_columns), weight_collections, trainable
        )
