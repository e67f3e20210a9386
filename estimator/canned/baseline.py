"""Baseline models, which learn from labels alone: what any other model should beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from estimator.canned.parts import (
    Form,
    baseline_part,
    make_classifier_head,
    make_model_fn,
)
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.heads.head import Head
from estimator.heads.regression import RegressionHead


class BaselineEstimator(Estimator):
    """Predicts the same for all examples, with any head."""

    _form = Form()

    def __init__(
        self,
        head: Head,
        model_dir: str | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
    ) -> None:
        """Checks the arguments, which are as in `LinearEstimator`; builds nothing."""
        part = baseline_part(optimizer, self._form)
        super().__init__(make_model_fn(head, [part], self._form), model_dir, config)


class BaselineClassifier(BaselineEstimator):
    """Predicts how frequent each class is."""

    def __init__(
        self,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = "sum_over_batch_size",
    ) -> None:
        """Checks the arguments, which are as in `LinearClassifier`; builds nothing."""
        head = make_classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)


class BaselineRegressor(BaselineEstimator):
    """Predicts the mean of the labels."""

    def __init__(
        self,
        model_dir: str | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = "sum_over_batch_size",
    ) -> None:
        """Checks the arguments, which are as in `LinearRegressor`; builds nothing."""
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(head, model_dir, optimizer, config)
