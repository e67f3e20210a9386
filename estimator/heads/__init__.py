"""Heads: what is on top of a model, from its logits to an EstimatorSpec."""

from estimator.heads.binary_class import BinaryClassHead
from estimator.heads.head import Head
from estimator.heads.multi import MultiHead
from estimator.heads.multi_class import MultiClassHead
from estimator.heads.multi_label import MultiLabelHead
from estimator.heads.regression import (
    LogisticRegressionHead,
    PoissonRegressionHead,
    RegressionHead,
)

__all__ = [
    "BinaryClassHead",
    "Head",
    "LogisticRegressionHead",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "PoissonRegressionHead",
    "RegressionHead",
]
