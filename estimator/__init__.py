"""Estimator and TPUEstimator for today's TensorFlow.

import estimator as est

classifier = est.Estimator(model_fn, model_dir)
classifier.train(input_fn, max_steps=1000)
"""

import sys

# `python -m estimator.launch` imports this package before its own module. It needs nothing of it:
# TensorFlow would cost seconds and half a gigabyte, beside those of each task that it starts.
if not (sys.argv[:1] == ["-m"] and "estimator.launch" in sys.orig_argv):
    from estimator import compat, experimental, export, inputs, tpu
    from estimator.add_metrics import add_metrics
    from estimator.config.cluster import Cluster, parse_tf_config
    from estimator.config.run_config import RunConfig
    from estimator.config.warm_start import VocabInfo, WarmStartSettings
    from estimator.estimator import Estimator
    from estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
    from estimator.feature_specs import classifier_parse_example_spec, regressor_parse_example_spec
    from estimator.graph.optimizer import CrossShardOptimizer
    from estimator.roles import train_and_evaluate
    from estimator.session.request import TrainResult
    from estimator.spec import EstimatorSpec, ModeKeys
    from estimator.stock_hooks import (
        CheckpointSaverHook,
        CheckpointSaverListener,
        FeedFnHook,
        FinalOpsHook,
        GlobalStepWaiterHook,
        LoggingTensorHook,
        NanLossDuringTrainingError,
        NanTensorHook,
        ProfilerHook,
        SecondOrStepTimer,
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
        StepCounterHook,
        StopAtStepHook,
        SummarySaverHook,
    )
    from estimator.train_and_evaluate import EvalSpec, TrainSpec

__all__ = [
    "BestExporter",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Cluster",
    "CrossShardOptimizer",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LatestExporter",
    "LoggingTensorHook",
    "ModeKeys",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainResult",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "classifier_parse_example_spec",
    "compat",
    "experimental",
    "export",
    "inputs",
    "parse_tf_config",
    "regressor_parse_example_spec",
    "tpu",
    "train_and_evaluate",
]
