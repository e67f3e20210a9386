"""Estimator and TPUEstimator for today's TensorFlow.

import estimator as est

classifier = est.Estimator(model_fn, model_dir)
classifier.train(input_fn, max_steps=1000)
"""

from estimator import export, tpu
from estimator.config.run_config import RunConfig
from estimator.config.warm_start import VocabInfo, WarmStartSettings
from estimator.estimator import Estimator
from estimator.graph.optimizer import CrossShardOptimizer
from estimator.session.train import TrainResult
from estimator.spec import EstimatorSpec, ModeKeys

__all__ = [
    "CrossShardOptimizer",
    "Estimator",
    "EstimatorSpec",
    "ModeKeys",
    "RunConfig",
    "TrainResult",
    "VocabInfo",
    "WarmStartSettings",
    "export",
    "tpu",
]
