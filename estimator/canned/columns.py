"""What feature columns give: the input of a deep model, and the logits of a linear one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.canned.summaries import weight_summaries
from estimator.config.checks import WrongTypeError, checked_list

V1 = tf.compat.v1


def checked_columns(
    argument: str,
    columns: Any,
    *,
    only_dense: bool,
    keeps_slashes: bool = False,
    sequences: bool = False,
) -> list[Any]:
    """Returns the columns in the order of their names; raises an error unless a model can use them.

    Args:
      argument: the name of the argument, for errors.
      columns: the columns.
      only_dense: whether they must give numbers; a linear model also takes categories.
      keeps_slashes: see `build_dense_input`.
      sequences: whether they must be of sequences; otherwise none may be.
    """
    columns = _tf.as_current_column(columns)
    if _tf.is_column(columns):
        columns = [columns]
    given = columns
    columns = [_tf.as_current_column(column) for column in checked_list(argument, columns)]
    if not columns:
        raise ValueError(f"`{argument}` ({given!r}) must have at least one feature column.")
    for column in columns:
        _check_column(argument, column, only_dense, sequences)
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"`{argument}` has the column {twice[0]!r} twice. Leave one of them out, or give the "
            "model the feature under two names."
        )
    columns.sort(key=lambda column: column.name)
    # Dense columns of a deep model have variables only if they are embeddings.
    with_variables = [c for c in columns if not only_dense or _tf.is_embedding(c)]
    named: dict[str, Any] = {}
    for column in with_variables:
        name = _tf.scope_name(column, keeps_slashes=keeps_slashes)
        other = named.setdefault(name, column)
        if other is not column:
            raise ValueError(
                f"`{argument}` has the columns {other.name!r} and {column.name!r}, whose variables "
                f"would have the same name, {name!r}. Rename the feature of one of them."
            )
    return columns


def _check_column(argument: str, column: Any, only_dense: bool, sequences: bool) -> None:
    if not _tf.is_column(column):
        raise WrongTypeError(
            f"`{argument}` holds {column!r}, which is not a feature column. Make one with a "
            "function of tf.feature_column, such as numeric_column(key)."
        )
    if not only_dense and isinstance(column, _tf.SharedEmbeddingColumn):
        raise ValueError(
            f"`{argument}` has the column {column.name!r} of shared_embedding_columns, which only "
            "a deep model can use. Give the linear model its `categorical_column`."
        )
    if sequences and not _tf.is_sequence(column):
        raise ValueError(
            f"`{argument}` has the column {column.name!r}, which is not one of sequences. Make it "
            "with a function such as tf.feature_column.sequence_numeric_column."
        )
    # The weights of categories are added, so a linear model needs no order.
    is_set = not only_dense and _tf.is_categorical(column)
    if not sequences and not is_set and _tf.is_sequence(column):
        raise ValueError(
            f"`{argument}` has the column {column.name!r} of sequences, whose order only the "
            "`sequence_feature_columns` of an RNN can use. Replace it by one without a sequence, "
            "such as categorical_column_with_identity or numeric_column."
        )
    if only_dense and not _tf.is_dense(column):
        raise ValueError(
            f"`{argument}` has the column {column.name!r}, which gives categories, and a deep "
            "model needs numbers. Wrap it in tf.feature_column.embedding_column or "
            "indicator_column."
        )


def build_dense_input(
    columns: Sequence[Any],
    features: Any,
    *,
    keeps_slashes: bool = False,
    partitioner: Any = None,
    scope: str = "input_from_feature_columns/input_layer",
) -> tf.Tensor:
    """Returns the concatenated values of dense columns: [batch size, number of values].

    Args:
      columns: the columns.
      features: a dict of the features.
      keeps_slashes: whether the names of variables keep the slashes in the names of columns.
      partitioner: of the columns' variables; None for that of the current variable scope.
      scope: the variable scope.
    """
    column_input = _input_of(columns, features, keeps_slashes=keeps_slashes)
    with V1.variable_scope(scope, reuse=V1.AUTO_REUSE, partitioner=partitioner):
        values = []
        for column, checks in _build_checks(column_input, columns):
            with tf.control_dependencies(checks):
                values.append(column_input.dense(column))
        return tf.concat(values, -1)


def build_sequence_input(columns: Sequence[Any], features: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the values of columns of sequences, [batch size, time, values], and the lengths."""
    column_input = _input_of(columns, features)
    sequences = []
    for column, checks in _build_checks(column_input, columns):
        takes_numbers = not hasattr(column, "categorical_column")
        if takes_numbers and not isinstance(features[column.key], tf.SparseTensor):
            raise WrongTypeError(
                f"The feature {column.key!r}, which the column {column.name!r} needs, must be a "
                "tf.sparse.SparseTensor: how many values it has is the length of the sequence. "
                "Convert it with tf.sparse.from_dense, or RaggedTensor.to_sparse."
            )
        in_scope = V1.variable_scope("sequence_features", reuse=V1.AUTO_REUSE)
        with in_scope, tf.control_dependencies(checks):
            sequences.append(column_input.sequence(column))
    values, lengths = zip(*sequences, strict=True)
    message = "The sequences of an example must have the same length in all columns."
    checks = [V1.debugging.assert_equal(lengths[0], n, message=message) for n in lengths[1:]]
    with tf.control_dependencies(checks):
        return tf.concat(values, -1), tf.identity(lengths[0])


def build_linear_logits(
    columns: Sequence[Any], features: Any, units: int, combiner: str, partitioner: Any
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Returns a linear model's logits, [batch size, units], and its summaries by tag.

    See `build_dense_input` for the arguments that both take.
    """
    column_input = _input_of(columns, features)
    variables: list[Any] = []

    def get(getter: Callable, *args: Any, **kwargs: Any) -> Any:
        variables.append(getter(*args, **kwargs))
        return variables[-1]

    with V1.variable_scope(
        "linear_model", reuse=V1.AUTO_REUSE, partitioner=partitioner, custom_getter=get
    ):
        sums = []
        for column, checks in _build_checks(column_input, columns):
            with tf.control_dependencies(checks):
                sums.append(column_input.weighted_sum(column, units, combiner))
        zeros = V1.zeros_initializer()
        bias = V1.get_variable("bias_weights", [units], initializer=zeros)
        logits = tf.nn.bias_add(tf.add_n(sums), bias)
    return logits, weight_summaries(bias, variables[:-1])


def build_linear_values(columns: Sequence[Any], features: Any) -> list[Any]:
    """Returns the inputs of a linear model: dense values, or (ids, weights or None) of categories.

    Embeddings are those that `build_linear_logits` made in the same variable scope.
    """
    column_input = _input_of(columns, features)
    with V1.variable_scope("linear_model", reuse=V1.AUTO_REUSE):
        return [column_input.linear_values(column) for column in columns]


def _input_of(
    columns: Sequence[Any], features: Any, *, keeps_slashes: bool = False
) -> _tf.ColumnInput:
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
    return _tf.ColumnInput(features, keeps_slashes=keeps_slashes)


def _build_checks(
    column_input: _tf.ColumnInput, columns: Sequence[Any]
) -> Iterator[tuple[Any, list[tf.Operation]]]:
    """Yields each column with ops that fail if an id is outside the column's variable.

    Columns of the same ids share an op, which names the first of them. Negative ids are allowed:
    TensorFlow drops them. TensorFlow's own error names neither column nor feature, and on a GPU
    there is none.
    """
    built: dict[Any, tf.Operation] = {}
    for column in columns:
        ids_column = _tf.identity_column(column)
        if ids_column is None:
            yield column, []
            continue
        if ids_column not in built:
            built[ids_column] = _build_check(column_input, ids_column, column.name)
        yield column, [built[ids_column]]


def _build_check(column_input: _tf.ColumnInput, ids_column: Any, name: str) -> tf.Operation:
    largest, size = tf.reduce_max(column_input.ids(ids_column)), ids_column.num_buckets
    message = (  # The Assert op escapes quotes.
        f"The feature `{ids_column.key}`, which the column `{name}` needs, must be below its "
        f"`num_buckets` ({size}). Raise it, or set `default_value`. The largest is: "
    )
    return tf.raw_ops.Assert(condition=largest < size, data=[message, largest])


def _check_type(column: str, key: str, feature: Any, dtype: tf.DType) -> None:
    if isinstance(feature, tf.RaggedTensor):
        raise WrongTypeError(
            f"The feature {key!r}, which the column {column!r} needs, is ragged, which no feature "
            "column takes. Give its `to_sparse()` to a column of categories or of sequences, its "
            "`to_tensor()` to one of numbers."
        )
    given = tf.as_dtype(feature.dtype)
    if (given == tf.string) == (dtype == tf.string):
        return
    # A column of categories may also take integers where an example has strings.
    if given.is_integer and dtype == tf.string:
        return
    raise WrongTypeError(
        f"The feature {key!r}, which the column {column!r} needs, is {given.name}; it must be "
        f"{dtype.name}. Convert it in `input_fn`."
    )
