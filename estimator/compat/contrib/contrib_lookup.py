"""`tf.contrib.lookup`: tables between words and numbers, of tf.lookup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_lookup = tf.compat.v1.lookup


def index_table_from_tensor(
    mapping: Any,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = None,
    dtype: Any = tf.string,
    name: str | None = None,
) -> Any:
    """Makes a table from words to their positions.

    Other words are `default_value`, or in one of the buckets after the last position. It is
    initialized by tf.tables_initializer, as all tables.
    """
    words = tf.convert_to_tensor(mapping, dtype)
    ids = tf.range(tf.size(words, tf.int64), dtype=tf.int64)
    return _table(
        _lookup.KeyValueTensorInitializer(words, ids), num_oov_buckets, default_value, name
    )


def index_table_from_file(
    vocabulary_file: Any,
    num_oov_buckets: int = 0,
    vocab_size: int | None = None,
    default_value: int = -1,
    hasher_spec: Any = None,
    key_dtype: Any = tf.string,
    name: str | None = None,
    key_column_index: int = _lookup.TextFileIndex.WHOLE_LINE,
    value_column_index: int = _lookup.TextFileIndex.LINE_NUMBER,
    delimiter: str = "\t",
) -> Any:
    """Makes a table from the words of a file, one a line, to the lines' numbers from 0."""
    initializer = _lookup.TextFileInitializer(
        vocabulary_file,
        key_dtype,
        key_column_index,
        tf.int64,
        value_column_index,
        vocab_size,
        delimiter,
    )
    return _table(initializer, num_oov_buckets, default_value, name)


def index_to_string_table_from_tensor(
    mapping: Sequence, default_value: str = "UNK", name: str | None = None
) -> Any:
    """Makes a table from positions to words."""
    words = tf.convert_to_tensor(mapping, tf.string)
    ids = tf.range(tf.size(words, tf.int64), dtype=tf.int64)
    initializer = _lookup.KeyValueTensorInitializer(ids, words)
    return _lookup.StaticHashTable(initializer, default_value, name)


def index_to_string_table_from_file(
    vocabulary_file: Any,
    vocab_size: int | None = None,
    default_value: str = "UNK",
    name: str | None = None,
) -> Any:
    """Makes a table from the numbers of a file's lines, from 0, to their words."""
    number, word = _lookup.TextFileIndex.LINE_NUMBER, _lookup.TextFileIndex.WHOLE_LINE
    initializer = _lookup.TextFileInitializer(
        vocabulary_file, tf.int64, number, tf.string, word, vocab_size
    )
    return _lookup.StaticHashTable(initializer, default_value, name)


def _table(initializer: Any, num_oov_buckets: int, default_value: int, name: str | None) -> Any:
    if num_oov_buckets:
        return _lookup.StaticVocabularyTable(initializer, num_oov_buckets, name=name)
    return _lookup.StaticHashTable(initializer, default_value, name)
