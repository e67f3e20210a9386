"""Estimator and TPUEstimator for today's TensorFlow.

import estimator as est

classifier = est.Estimator(model_fn, model_dir)
classifier.train(input_fn, max_steps=1000)

Each public name is imported on first use, and TensorFlow with it (PEP 562). So `import estimator`
is cheap, and the launcher runs without TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from estimator import compat, experimental, export, inputs, tpu
    from estimator.config.cluster import Cluster, parse_tf_config
    from estimator.config.run_config import RunConfig
    from estimator.config.warm_start import VocabInfo, WarmStartSettings
    from estimator.estimator import Estimator
    from estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
    from estimator.extra_metrics import add_metrics
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
    from estimator.train_and_eval import EvalSpec, TrainSpec

# The module of each public name.
_HOMES = {
    "BestExporter": "export.exporters",
    "CheckpointSaverHook": "stock_hooks",
    "CheckpointSaverListener": "stock_hooks",
    "Cluster": "config.cluster",
    "CrossShardOptimizer": "graph.optimizer",
    "Estimator": "estimator",
    "EstimatorSpec": "spec",
    "EvalSpec": "train_and_eval",
    "Exporter": "export.exporters",
    "FeedFnHook": "stock_hooks",
    "FinalExporter": "export.exporters",
    "FinalOpsHook": "stock_hooks",
    "GlobalStepWaiterHook": "stock_hooks",
    "LatestExporter": "export.exporters",
    "LoggingTensorHook": "stock_hooks",
    "ModeKeys": "spec",
    "NanLossDuringTrainingError": "stock_hooks",
    "NanTensorHook": "stock_hooks",
    "ProfilerHook": "stock_hooks",
    "RunConfig": "config.run_config",
    "SecondOrStepTimer": "stock_hooks",
    "SessionRunArgs": "stock_hooks",
    "SessionRunContext": "stock_hooks",
    "SessionRunHook": "stock_hooks",
    "SessionRunValues": "stock_hooks",
    "StepCounterHook": "stock_hooks",
    "StopAtStepHook": "stock_hooks",
    "SummarySaverHook": "stock_hooks",
    "TrainResult": "session.request",
    "TrainSpec": "train_and_eval",
    "VocabInfo": "config.warm_start",
    "WarmStartSettings": "config.warm_start",
    "add_metrics": "extra_metrics",
    "classifier_parse_example_spec": "feature_specs",
    "compat": "compat",
    "experimental": "experimental",
    "export": "export",
    "inputs": "inputs",
    "parse_tf_config": "config.cluster",
    "regressor_parse_example_spec": "feature_specs",
    "tpu": "tpu",
    "train_and_evaluate": "roles",
}

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


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = importlib.import_module(f"{__name__}.{home}")
    if home != name:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the public names, imported or not."""
    return sorted({*globals(), *__all__})
