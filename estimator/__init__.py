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
    from estimator import compat, experimental, export, inputs, keras, tpu
    from estimator.canned import (
        BaselineClassifier,
        BaselineEstimator,
        BaselineRegressor,
        DNNClassifier,
        DNNEstimator,
        DNNLinearCombinedClassifier,
        DNNLinearCombinedEstimator,
        DNNLinearCombinedRegressor,
        DNNRegressor,
        LinearClassifier,
        LinearEstimator,
        LinearRegressor,
    )
    from estimator.compat.installation import install, uninstall
    from estimator.config.cluster import Cluster, parse_tf_config
    from estimator.config.run_config import RunConfig
    from estimator.config.warm_start_settings import VocabInfo, WarmStartSettings
    from estimator.estimators.estimator import Estimator
    from estimator.estimators.extra_metrics import add_metrics
    from estimator.export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
    from estimator.export.predictor import make_predictor
    from estimator.heads import (
        BinaryClassHead,
        Head,
        LogisticRegressionHead,
        MultiClassHead,
        MultiHead,
        MultiLabelHead,
        PoissonRegressionHead,
        RegressionHead,
    )
    from estimator.hooks.stock_hooks import (
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
    from estimator.input.example_specs import (
        classifier_parse_example_spec,
        regressor_parse_example_spec,
    )
    from estimator.optimizer.cross_shard import CrossShardOptimizer
    from estimator.roles.train_and_evaluate import train_and_evaluate
    from estimator.roles.train_eval_specs import EvalSpec, TrainSpec
    from estimator.spec import EstimatorSpec, ModeKeys
    from estimator.training.request import TrainResult

# The module of each public name.
_HOMES = {
    "BaselineClassifier": "canned",
    "BaselineEstimator": "canned",
    "BaselineRegressor": "canned",
    "BestExporter": "export.exporters",
    "BinaryClassHead": "heads",
    "CheckpointSaverHook": "hooks.stock_hooks",
    "CheckpointSaverListener": "hooks.stock_hooks",
    "Cluster": "config.cluster",
    "CrossShardOptimizer": "optimizer.cross_shard",
    "DNNClassifier": "canned",
    "DNNEstimator": "canned",
    "DNNLinearCombinedClassifier": "canned",
    "DNNLinearCombinedEstimator": "canned",
    "DNNLinearCombinedRegressor": "canned",
    "DNNRegressor": "canned",
    "Estimator": "estimators.estimator",
    "EstimatorSpec": "spec",
    "EvalSpec": "roles.train_eval_specs",
    "Exporter": "export.exporters",
    "FeedFnHook": "hooks.stock_hooks",
    "FinalExporter": "export.exporters",
    "FinalOpsHook": "hooks.stock_hooks",
    "GlobalStepWaiterHook": "hooks.stock_hooks",
    "Head": "heads",
    "LatestExporter": "export.exporters",
    "LinearClassifier": "canned",
    "LinearEstimator": "canned",
    "LinearRegressor": "canned",
    "LoggingTensorHook": "hooks.stock_hooks",
    "LogisticRegressionHead": "heads",
    "ModeKeys": "spec",
    "MultiClassHead": "heads",
    "MultiHead": "heads",
    "MultiLabelHead": "heads",
    "NanLossDuringTrainingError": "hooks.stock_hooks",
    "NanTensorHook": "hooks.stock_hooks",
    "PoissonRegressionHead": "heads",
    "ProfilerHook": "hooks.stock_hooks",
    "RegressionHead": "heads",
    "RunConfig": "config.run_config",
    "SecondOrStepTimer": "hooks.stock_hooks",
    "SessionRunArgs": "hooks.stock_hooks",
    "SessionRunContext": "hooks.stock_hooks",
    "SessionRunHook": "hooks.stock_hooks",
    "SessionRunValues": "hooks.stock_hooks",
    "StepCounterHook": "hooks.stock_hooks",
    "StopAtStepHook": "hooks.stock_hooks",
    "SummarySaverHook": "hooks.stock_hooks",
    "TrainResult": "training.request",
    "TrainSpec": "roles.train_eval_specs",
    "VocabInfo": "config.warm_start_settings",
    "WarmStartSettings": "config.warm_start_settings",
    "add_metrics": "estimators.extra_metrics",
    "classifier_parse_example_spec": "input.example_specs",
    "compat": "compat",
    "experimental": "experimental",
    "export": "export",
    "inputs": "inputs",
    "install": "compat.installation",
    "keras": "keras",
    "make_predictor": "export.predictor",
    "parse_tf_config": "config.cluster",
    "regressor_parse_example_spec": "input.example_specs",
    "tpu": "tpu",
    "train_and_evaluate": "roles.train_and_evaluate",
    "uninstall": "compat.installation",
}

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "Cluster",
    "CrossShardOptimizer",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FeedFnHook",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "Head",
    "LatestExporter",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LoggingTensorHook",
    "LogisticRegressionHead",
    "ModeKeys",
    "MultiClassHead",
    "MultiHead",
    "MultiLabelHead",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "PoissonRegressionHead",
    "ProfilerHook",
    "RegressionHead",
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
    "install",
    "keras",
    "make_predictor",
    "parse_tf_config",
    "regressor_parse_example_spec",
    "tpu",
    "train_and_evaluate",
    "uninstall",
]


# Type checkers would take any name to exist if they saw this.
if not TYPE_CHECKING:

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
    """Lists the module's attributes and all public names, imported or not."""
    return sorted({*globals(), *__all__})
