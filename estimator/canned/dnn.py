"""Deep models of feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator.canned.parts import Form, dnn_part, make_classifier_head, make_model_fn
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.heads.head import Head
from estimator.heads.regression import RegressionHead


class DNNEstimator(Estimator):
    """A deep model of feature columns, with any head."""

    _form = Form(sgd_rate=0.01)  # Keras's default, which tf.estimator 2.15 used here.

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        head: Head,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = tf.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        """Checks the arguments; builds nothing.

        Args:
          head: turns logits into a loss, predictions and metrics.
          hidden_units: the number of units of each hidden layer.
          feature_columns: dense columns of `tf.feature_column`.
          model_dir: see `Estimator`.
          optimizer: see `LinearEstimator`.
          activation_fn: the activation of the hidden layers; a function, or its name in `tf.nn`.
          dropout: the probability that a hidden unit is dropped in training; None drops none.
          config: see `Estimator`.
          warm_start_from: see `Estimator`.
          batch_norm: whether each hidden layer's output is normalized.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        layers = activation_fn, dropout, batch_norm
        part = dnn_part(feature_columns, optimizer, hidden_units, layers, self._form)
        model_fn = make_model_fn(head, [part], self._form)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class DNNClassifier(DNNEstimator):
    """A deep model that chooses one of several classes.

    Labels have shape [batch size] or [batch size, 1] and are integers in [0, n_classes), or
    strings if there is a `label_vocabulary`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = tf.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        batch_norm: bool = False,
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `BinaryClassHead` and `MultiClassHead`, the others as in
        `DNNEstimator`.
        """
        super().__init__(
            make_classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
        )


class DNNRegressor(DNNEstimator):
    """A deep model that predicts numbers.

    Labels have shape [batch size, label_dimension], or [batch size] if that is 1, and are floats
    or integers.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        hidden_units: Sequence[int],
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = tf.nn.relu,
        dropout: float | None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        batch_norm: bool = False,
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `RegressionHead`, the others as in `DNNEstimator`.
        """
        super().__init__(
            RegressionHead(label_dimension, weight_column, loss_reduction),
            hidden_units,
            feature_columns,
            model_dir,
            optimizer,
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
        )
