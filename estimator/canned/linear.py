"""Linear models of feature columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from estimator.canned.parts import Form, linear_part, make_classifier_head, make_model_fn
from estimator.canned.sdca import LinearSDCA
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.heads.head import Head
from estimator.heads.regression import RegressionHead


class LinearEstimator(Estimator):
    """A linear model of feature columns, with any head."""

    _form = Form()

    def __init__(
        self,
        head: Head,
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        """Checks the arguments; builds nothing.

        Args:
          head: turns logits into a loss, predictions and metrics.
          feature_columns: columns of `tf.feature_column`, dense or of categories.
          model_dir: see `Estimator`.
          optimizer: "Adagrad", "Adam", "Ftrl", "RMSProp" or "SGD"; a v1, Keras 3 or tf-keras
            optimizer; a function that returns one; or a LinearSDCA.
          config: see `Estimator`.
          sparse_combiner: how the weights of several categories of an example are combined: "sum",
            "mean" or "sqrtn".
          warm_start_from: see `Estimator`.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        is_sdca = isinstance(optimizer, LinearSDCA)
        if is_sdca and warm_start_from is not None:
            raise ValueError(
                f"`warm_start_from` ({warm_start_from!r}) cannot be used with LinearSDCA, whose "
                "weights follow from the examples that it remembers. Leave it out, or use another "
                "`optimizer`."
            )
        if is_sdca:
            model_fn = optimizer.make_model_fn(head, feature_columns, sparse_combiner, self._form)
        else:
            part = linear_part(feature_columns, optimizer, sparse_combiner, self._form)
            model_fn = make_model_fn(head, [part], self._form)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(LinearEstimator):
    """A linear model that chooses one of several classes.

    Labels have shape [batch size] or [batch size, 1] and are integers in [0, n_classes), or
    strings if there is a `label_vocabulary`.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        sparse_combiner: str = "sum",
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `BinaryClassHead` and `MultiClassHead`, the others as in
        `LinearEstimator`.
        """
        head = make_classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, sparse_combiner, warm_start_from
        )


class LinearRegressor(LinearEstimator):
    """A linear model that predicts numbers.

    Labels have shape [batch size, label_dimension], or [batch size] if that is 1, and are floats
    or integers.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        feature_columns: Sequence[Any],
        model_dir: str | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = "sum_over_batch_size",
        sparse_combiner: str = "sum",
    ) -> None:
        """Checks the arguments; builds nothing.

        Those of the head are as in `RegressionHead`, the others as in `LinearEstimator`.
        """
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(
            head, feature_columns, model_dir, optimizer, config, sparse_combiner, warm_start_from
        )
