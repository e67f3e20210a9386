"""Estimator and TPUEstimator for today's TensorFlow.

import estimator as est

classifier = est.Estimator(model_fn, model_dir)
classifier.train(input_fn, max_steps=1000)
"""

from estimator import experimental, export, tpu
from estimator.config.run_config import RunConfig
from estimator.estimator import Estimator
from estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from estimator.graph.optimizer import CrossShardOptimizer
from estimator.session.train import TrainResult
from estimator.spec import EstimatorSpec, ModeKeys
from estimator.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate

__all__ = [
    "BestExporter",
    "CrossShardOptimizer",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FinalExporter",
    "LatestExporter",
    "ModeKeys",
    "RunConfig",
    "TrainResult",
    "TrainSpec",
    "experimental",
    "export",
    "tpu",
    "train_and_evaluate",
]
