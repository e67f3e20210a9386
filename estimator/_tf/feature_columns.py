"""Feature columns: TensorFlow ships them, but no longer what called them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as _fc

V1 = tf.compat.v1


def is_column(value: Any) -> bool:
    """Returns whether `value` is a column of `tf.feature_column` (2.16 to 2.21)."""
    return isinstance(value, _fc.fc_types.FeatureColumn)


class SharedEmbeddingColumn(_fc.EmbeddingColumn):
    """An embedding column whose variable all columns of a collection use.

    Attributes:
      collection: the name of the collection, and of the variable.
    """

    collection: str

    @property
    def name(self) -> str:
        """The column's name, as that of `tf.compat.v1.feature_column.shared_embedding_columns`."""
        return f"{self.categorical_column.name}_shared_embedding"


def as_current_column(value: Any) -> Any:
    """Returns a shared embedding of TensorFlow 1 as a column of today; other values as they are.

    `tf.compat.v1.feature_column.shared_embedding_columns` returns columns that only functions of
    `tf.compat.v1.feature_column` can use (2.16 to 2.21). They are tuples that name their fields as
    an embedding column does, and that of the collection.
    """
    if not isinstance(value, _fc.fc_old._SharedEmbeddingColumn):
        return value
    fields = value._asdict()
    collection = fields.pop("shared_embedding_collection_name")
    column = SharedEmbeddingColumn(**fields)
    column.collection = collection
    return column


def is_dense(column: Any) -> bool:
    """Returns whether a column gives numbers; others need an indicator or embedding."""
    return isinstance(column, _fc.DenseColumn | _fc.SequenceDenseColumn)


def is_embedding(column: Any) -> bool:
    """Returns whether a column has an embedding of its own, not one that several columns share."""
    return isinstance(column, _fc.EmbeddingColumn) and not isinstance(column, SharedEmbeddingColumn)


def is_sequence(column: Any) -> bool:
    """Returns whether a column gives several values in order, which only an RNN can use."""
    if isinstance(column, _fc.DenseColumn):
        column = getattr(column, "categorical_column", column)
        return isinstance(column, _fc.SequenceCategoricalColumn)
    return isinstance(column, _fc.SequenceDenseColumn | _fc.SequenceCategoricalColumn)


def is_categorical(column: Any) -> bool:
    """Returns whether a column gives the ids of categories; a bucketized column gives both."""
    return isinstance(column, _fc.CategoricalColumn)


def identity_column(column: Any) -> Any:
    """Returns the identity column whose ids are rows of the variable of `column`, if there is one.

    None if it replaces ids that are out of range, and for an indicator, which ignores them.
    """
    while hasattr(column, "categorical_column") and not isinstance(column, _fc.IndicatorColumn):
        column = column.categorical_column
    is_identity = isinstance(column, _fc.IdentityCategoricalColumn)
    return column if is_identity and column.default_value is None else None


class ColumnInput:
    """The features of a batch as columns see them, and the variables of columns.

    Columns take a cache, which computes what several columns share once, and a state manager, which
    keeps their variables and tables; both have only private names (2.16 to 2.21).
    """

    def __init__(self, features: Mapping[str, Any], *, keeps_slashes: bool = False) -> None:
        """Starts with no variables; they are made in the variable scope of the caller.

        Args:
          features: the features of a batch.
          keeps_slashes: see `scope_name`.
        """
        # The cache calls `copy`, which not every mapping has.
        self._features = dict(features)
        self._cache = _fc.FeatureTransformationCache(self._features)
        self._state = _Variables(keeps_slashes)

    def ids(self, column: Any) -> tf.Tensor:
        """Returns the ids of an identity column, of all examples: [number of ids]."""
        return self._cache.get(column, self._state).values

    def dense(self, column: Any) -> tf.Tensor:
        """Returns a dense column's values: [batch size, number of values]."""
        self._create_variables(column)
        size = column.variable_shape.num_elements()
        if is_embedding(column) and column.max_norm is column.ckpt_to_load_from is None:
            table = self._state.get_variable(column, "embedding_weights")
            if self._is_one_row(column.categorical_column, table):
                return self._gather_rows(column.categorical_column, table)
        values = column.get_dense_tensor(self._cache, self._state)
        return tf.reshape(values, [tf.shape(values)[0], size])

    def sequence(self, column: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a column's values, [batch size, time, number of values], and the lengths."""
        self._create_variables(column)
        values, lengths = column.get_sequence_dense_tensor(self._cache, self._state)
        size = column.variable_shape.num_elements()
        return tf.reshape(values, tf.concat([tf.shape(values)[:2], [size]], 0)), lengths

    def _create_variables(self, column: Any) -> None:
        self._state.create_for(column)
        shared = getattr(column, "shared_embedding_column_creator", None)
        if shared is not None:
            # Makes the variable of all columns that share it, in no scope of a model.
            top = V1.VariableScope(reuse=V1.AUTO_REUSE, name="")
            with V1.variable_scope(top, auxiliary_name_scope=False):
                _ = shared.embedding_weights

    def linear_values(self, column: Any) -> Any:
        """Returns a column's dense values, or its ids and their weights, both sparse."""
        if not is_categorical(column):
            return self.dense(column)
        self._state.create_for(column)
        pair = column.get_sparse_tensors(self._cache, self._state)
        return pair.id_tensor, pair.weight_tensor

    def weighted_sum(self, column: Any, units: int, combiner: str) -> tf.Tensor:
        """Returns a column's part of a linear model: [batch size, units]."""
        name = f"{scope_name(column)}/weights"
        zeros = V1.zeros_initializer()
        if not is_categorical(column):
            values = self.dense(column)
            return values @ V1.get_variable(name, [values.shape[1], units], initializer=zeros)
        self._state.create_for(column)
        weights = V1.get_variable(name, [column.num_buckets, units], initializer=zeros)
        if self._is_one_row(column, weights):
            return self._gather_rows(column, weights)
        return _fc._create_categorical_column_weighted_sum(
            column, self._cache, self._state, combiner, weights
        )

    def _is_one_row(self, column: Any, table: Any) -> bool:
        """Returns whether each example has one row of the table, or none: no category or one.

        A column of hashed strings or integers that are dense, [batch size] or [batch size, 1].
        """
        if not isinstance(column, _fc.HashedCategoricalColumn):
            return False
        feature = self._features[column.key]
        if not isinstance(feature, tf.Tensor) or not isinstance(table, tf.Variable):
            return False  # A partitioned variable is no tf.Variable.
        is_one = feature.shape.rank == 1 or (feature.shape.rank == 2 and feature.shape[1] == 1)
        return is_one and (feature.dtype, column.dtype) in _HASHED_AS_THEY_ARE

    def _gather_rows(self, column: Any, table: tf.Variable) -> tf.Tensor:
        """Returns each example's row, [batch size, size]; zeros for an example without a category.

        A lookup that combines several rows has the same values and gradients (an example without
        a category adds 0 to the first row's), but takes four times as many ops, and its gradients
        have one slice a row where these have one an example.
        """
        values = tf.reshape(self._features[column.key], [-1])
        is_string = values.dtype == tf.string
        is_there = tf.not_equal(values, "" if is_string else -1)
        strings = values if is_string else tf.strings.as_string(values)
        ids = tf.strings.to_hash_bucket_fast(strings, column.hash_bucket_size)
        rows = tf.nn.embedding_lookup(table, tf.where(is_there, ids, 0))
        # A product takes half as long as a selection that broadcasts.
        return rows * tf.cast(is_there, rows.dtype)[:, tf.newaxis]


# Types of a feature and of its column that are hashed without an error.
_HASHED_AS_THEY_ARE = {
    (tf.string, tf.string),
    *((feature, column) for feature in (tf.int32, tf.int64) for column in (tf.int32, tf.int64)),
}


def scope_name(column: Any, *, keeps_slashes: bool = False) -> str:
    """Returns the part of a variable's name that stands for a column.

    A slash is replaced like other special characters, except in the deep models of tf.estimator's
    v2 form, where `keeps_slashes` is true.
    """
    name = column.collection if isinstance(column, SharedEmbeddingColumn) else column.name
    return re.sub(r"[^A-Za-z0-9_.\-/]" if keeps_slashes else r"[^A-Za-z0-9_.\-]", "_", name)


class _Variables(_fc._StateManagerImpl):
    """Makes variables in the caller's variable scope; the original makes them in a Keras layer."""

    def __init__(self, keeps_slashes: bool) -> None:
        super().__init__(layer=None, trainable=True)
        self._keeps_slashes = keeps_slashes

    def create_for(self, column: Any) -> None:
        """Has a column make its variables and tables.

        In the v1 form, what a column makes by itself is in the column's scope, too.
        """
        is_v2 = self._keeps_slashes
        with contextlib.nullcontext() if is_v2 else V1.variable_scope(scope_name(column)):
            column.create_state(self)

    def create_variable(
        self,
        feature_column: Any,
        name: str,
        shape: Any,
        dtype: Any = None,
        trainable: bool = True,
        use_resource: bool = True,
        initializer: Any = None,
    ) -> tf.Variable:
        key = name
        if self._keeps_slashes:
            name = f"{scope_name(feature_column, keeps_slashes=True)}/{name}"
        variable = V1.get_variable(
            name, shape, dtype or tf.float32, initializer, trainable=trainable
        )
        self._cols_to_vars_map[feature_column][key] = variable
        return variable
