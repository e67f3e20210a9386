"""Ready-made models: an Estimator whose `model_fn` is made of feature columns and a head."""

from estimator.canned.baseline import BaselineClassifier, BaselineEstimator, BaselineRegressor
from estimator.canned.combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from estimator.canned.dnn import DNNClassifier, DNNEstimator, DNNRegressor
from estimator.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
]
