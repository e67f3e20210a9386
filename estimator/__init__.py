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

# The public names of each module.
_NAMES = {
    "canned": "BaselineClassifier BaselineEstimator BaselineRegressor DNNClassifier DNNEstimator "
    "DNNLinearCombinedClassifier DNNLinearCombinedEstimator DNNLinearCombinedRegressor "
    "DNNRegressor LinearClassifier LinearEstimator LinearRegressor",
    "compat": "compat",
    "compat.installation": "install uninstall",
    "config.cluster": "Cluster parse_tf_config",
    "config.run_config": "RunConfig",
    "config.warm_start_settings": "VocabInfo WarmStartSettings",
    "estimators.estimator": "Estimator",
    "estimators.extra_metrics": "add_metrics",
    "experimental": "experimental",
    "export": "export",
    "export.exporters": "BestExporter Exporter FinalExporter LatestExporter",
    "export.predictor": "make_predictor",
    "heads": "BinaryClassHead Head LogisticRegressionHead MultiClassHead MultiHead MultiLabelHead "
    "PoissonRegressionHead RegressionHead",
    "hooks.stock_hooks": "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook "
    "GlobalStepWaiterHook LoggingTensorHook NanLossDuringTrainingError NanTensorHook ProfilerHook "
    "SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook SessionRunValues "
    "StepCounterHook StopAtStepHook SummarySaverHook",
    "input.example_specs": "classifier_parse_example_spec regressor_parse_example_spec",
    "inputs": "inputs",
    "keras": "keras",
    "optimizer.cross_shard": "CrossShardOptimizer",
    "roles.train_and_evaluate": "train_and_evaluate",
    "roles.train_eval_specs": "EvalSpec TrainSpec",
    "spec": "EstimatorSpec ModeKeys",
    "tpu": "tpu",
    "training.request": "TrainResult",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

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
