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
    from tensorflow.compat.v1.train import (
        CheckpointSaverHook as CheckpointSaverHook,
        CheckpointSaverListener as CheckpointSaverListener,
        FeedFnHook as FeedFnHook,
        FinalOpsHook as FinalOpsHook,
        GlobalStepWaiterHook as GlobalStepWaiterHook,
        LoggingTensorHook as LoggingTensorHook,
        NanLossDuringTrainingError as NanLossDuringTrainingError,
        NanTensorHook as NanTensorHook,
        ProfilerHook as ProfilerHook,
        SecondOrStepTimer as SecondOrStepTimer,
        SessionRunArgs as SessionRunArgs,
        SessionRunContext as SessionRunContext,
        SessionRunHook as SessionRunHook,
        SessionRunValues as SessionRunValues,
        StepCounterHook as StepCounterHook,
        StopAtStepHook as StopAtStepHook,
        SummarySaverHook as SummarySaverHook,
    )

    from estimator import (
        compat as compat,
        experimental as experimental,
        export as export,
        inputs as inputs,
        keras as keras,
        tpu as tpu,
    )
    from estimator.canned.baseline import (
        BaselineClassifier as BaselineClassifier,
        BaselineEstimator as BaselineEstimator,
        BaselineRegressor as BaselineRegressor,
    )
    from estimator.canned.combined import (
        DNNLinearCombinedClassifier as DNNLinearCombinedClassifier,
        DNNLinearCombinedEstimator as DNNLinearCombinedEstimator,
        DNNLinearCombinedRegressor as DNNLinearCombinedRegressor,
    )
    from estimator.canned.dnn import (
        DNNClassifier as DNNClassifier,
        DNNEstimator as DNNEstimator,
        DNNRegressor as DNNRegressor,
    )
    from estimator.canned.linear import (
        LinearClassifier as LinearClassifier,
        LinearEstimator as LinearEstimator,
        LinearRegressor as LinearRegressor,
    )
    from estimator.compat.installation import install as install, uninstall as uninstall
    from estimator.config.cluster import Cluster as Cluster, parse_tf_config as parse_tf_config
    from estimator.config.run_config import RunConfig as RunConfig
    from estimator.config.warm_start_settings import (
        VocabInfo as VocabInfo,
        WarmStartSettings as WarmStartSettings,
    )
    from estimator.estimators.estimator import Estimator as Estimator
    from estimator.estimators.extra_metrics import add_metrics as add_metrics
    from estimator.export.exporters import (
        BestExporter as BestExporter,
        Exporter as Exporter,
        FinalExporter as FinalExporter,
        LatestExporter as LatestExporter,
    )
    from estimator.export.predictor import make_predictor as make_predictor
    from estimator.heads.binary_class import BinaryClassHead as BinaryClassHead
    from estimator.heads.head import Head as Head
    from estimator.heads.multi import MultiHead as MultiHead
    from estimator.heads.multi_class import MultiClassHead as MultiClassHead
    from estimator.heads.multi_label import MultiLabelHead as MultiLabelHead
    from estimator.heads.regression import (
        LogisticRegressionHead as LogisticRegressionHead,
        PoissonRegressionHead as PoissonRegressionHead,
        RegressionHead as RegressionHead,
    )
    from estimator.input.example_specs import (
        classifier_parse_example_spec as classifier_parse_example_spec,
        regressor_parse_example_spec as regressor_parse_example_spec,
    )
    from estimator.optimizer.cross_shard import CrossShardOptimizer as CrossShardOptimizer
    from estimator.roles.train_and_evaluate import train_and_evaluate as train_and_evaluate
    from estimator.roles.train_eval_specs import EvalSpec as EvalSpec, TrainSpec as TrainSpec
    from estimator.spec import EstimatorSpec as EstimatorSpec, ModeKeys as ModeKeys
    from estimator.training.request import TrainResult as TrainResult

# The public names of each module.
_NAMES = {
    "estimator.canned.baseline": "BaselineClassifier BaselineEstimator BaselineRegressor",
    "estimator.canned.combined": "DNNLinearCombinedClassifier DNNLinearCombinedEstimator "
    "DNNLinearCombinedRegressor",
    "estimator.canned.dnn": "DNNClassifier DNNEstimator DNNRegressor",
    "estimator.canned.linear": "LinearClassifier LinearEstimator LinearRegressor",
    "estimator.compat.installation": "install uninstall",
    "estimator.config.cluster": "Cluster parse_tf_config",
    "estimator.config.run_config": "RunConfig",
    "estimator.config.warm_start_settings": "VocabInfo WarmStartSettings",
    "estimator.estimators.estimator": "Estimator",
    "estimator.estimators.extra_metrics": "add_metrics",
    "estimator.export.exporters": "BestExporter Exporter FinalExporter LatestExporter",
    "estimator.export.predictor": "make_predictor",
    "estimator.heads.binary_class": "BinaryClassHead",
    "estimator.heads.head": "Head",
    "estimator.heads.multi": "MultiHead",
    "estimator.heads.multi_class": "MultiClassHead",
    "estimator.heads.multi_label": "MultiLabelHead",
    "estimator.heads.regression": "LogisticRegressionHead PoissonRegressionHead RegressionHead",
    "estimator.input.example_specs": "classifier_parse_example_spec regressor_parse_example_spec",
    "estimator.optimizer.cross_shard": "CrossShardOptimizer",
    "estimator.roles.train_and_evaluate": "train_and_evaluate",
    "estimator.roles.train_eval_specs": "EvalSpec TrainSpec",
    "estimator.spec": "EstimatorSpec ModeKeys",
    "estimator.training.request": "TrainResult",
    "tensorflow.compat.v1.train": "CheckpointSaverHook CheckpointSaverListener FeedFnHook "
    "FinalOpsHook GlobalStepWaiterHook LoggingTensorHook NanLossDuringTrainingError NanTensorHook "
    "ProfilerHook SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook "
    "SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook",
}
_MODULES = ("compat", "experimental", "export", "inputs", "keras", "tpu")
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

# Type checkers cannot evaluate `__all__`, and would take any name to exist if they saw the rest.
if not TYPE_CHECKING:
    __all__ = sorted([*_MODULES, *_HOMES])

    def __getattr__(name: str) -> Any:
        """Imports a public name when it is first used."""
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value

    def __dir__() -> list[str]:
        """Lists the module's attributes and all public names, imported or not."""
        return sorted({*globals(), *__all__})
