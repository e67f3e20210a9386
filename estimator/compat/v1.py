"""The names of `tf.compat.v1.estimator`.

An Estimator here is the same as elsewhere: it has `export_savedmodel`, too.
"""

from estimator import experimental, export, inputs, tpu
from estimator.config.run_config import RunConfig
from estimator.config.warm_start import VocabInfo, WarmStartSettings
from estimator.estimator import Estimator
from estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from estimator.extra_metrics import add_metrics
from estimator.feature_specs import classifier_parse_example_spec, regressor_parse_example_spec
from estimator.roles import train_and_evaluate
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
from estimator.train_and_eval import EvalSpec, TrainSpec

__all__ = [
    "BestExporter",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
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
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "add_metrics",
    "classifier_parse_example_spec",
    "experimental",
    "export",
    "inputs",
    "regressor_parse_example_spec",
    "tpu",
    "train_and_evaluate",
]
