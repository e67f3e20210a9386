"""Wide-and-deep models: the sum of a linear and a deep model of feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.parts import (
    Form,
    dnn_part,
    linear_part,
    make_classifier_head,
    make_model_fn,
)
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.heads.head import Head
from estimator.heads.regression import RegressionHead


class DNNLinearCombinedEstimator(Estimator):
    """A wide-and-deep model of feature columns, with any head."""

    _form = Form()

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        head: Head,
        model_dir: str | None = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = tf.nn.relu,
        dnn_dropout: float | None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
        *,
        warm_start_from: Any = None,
    ) -> None:
        """Checks the arguments; builds nothing.

        Those that begin with `linear_` are as in `LinearEstimator`, the others as in
        `DNNEstimator`. A part without feature columns is left out.

        Raises:
          TypeError, ValueError: an argument is invalid, or no part has columns.
        """
        parts, form = [], self._form
        if dnn_feature_columns:
            layers = dnn_activation_fn, dnn_dropout, batch_norm
            deep = dnn_part(
                dnn_feature_columns, dnn_optimizer, dnn_hidden_units, layers, form, prefix="dnn_"
            )
            parts.append(deep)
        if linear_feature_columns:
            columns, combiner = linear_feature_columns, linear_sparse_combiner
            parts.append(linear_part(columns, linear_optimizer, combiner, form, is_wide=True))
        if not parts:
            raise ValueError(
                "`linear_feature_columns` and `dnn_feature_columns` are both empty. Give the model "
                "at least one feature column."
            )
        model_fn = make_model_fn(head, parts, form)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNLinearCombinedClassifier(DNNLinearCombinedEstimator):
    """A wide-and-deep model that chooses one of several classes.

    Labels have shape [batch size] or [batch size, 1] and are integers in [0, n_classes), or
    strings if there is a `label_vocabulary`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        model_dir: str | None = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = tf.nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `BinaryClassHead` and `MultiClassHead`, the others as in
        `DNNLinearCombinedEstimator`.
        """
        super().__init__(
            make_classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from=warm_start_from,
        )


class DNNLinearCombinedRegressor(DNNLinearCombinedEstimator):
    """A wide-and-deep model that predicts numbers.

    Labels have shape [batch size, label_dimension], or [batch size] if that is 1, and are floats
    or integers.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        model_dir: str | None = None,
        linear_feature_columns: Sequence[Any] | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Sequence[Any] | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Sequence[int] | None = None,
        dnn_activation_fn: Any = tf.nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `RegressionHead`, the others as in
        `DNNLinearCombinedEstimator`.
        """
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            model_dir,
            linear_feature_columns,
            linear_optimizer,
            dnn_feature_columns,
            dnn_optimizer,
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
            warm_start_from=warm_start_from,
        )
