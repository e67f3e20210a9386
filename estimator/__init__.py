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
    from tensorflow.compat.v1.train import CheckpointSaverHook as CheckpointSaverHook
    from tensorflow.compat.v1.train import CheckpointSaverListener as CheckpointSaverListener
    from tensorflow.compat.v1.train import FeedFnHook as FeedFnHook
    from tensorflow.compat.v1.train import FinalOpsHook as FinalOpsHook
    from tensorflow.compat.v1.train import GlobalStepWaiterHook as GlobalStepWaiterHook
    from tensorflow.compat.v1.train import LoggingTensorHook as LoggingTensorHook
    from tensorflow.compat.v1.train import NanLossDuringTrainingError as NanLossDuringTrainingError
    from tensorflow.compat.v1.train import NanTensorHook as NanTensorHook
    from tensorflow.compat.v1.train import ProfilerHook as ProfilerHook
    from tensorflow.compat.v1.train import SecondOrStepTimer as SecondOrStepTimer
    from tensorflow.compat.v1.train import SessionRunArgs as SessionRunArgs
    from tensorflow.compat.v1.train import SessionRunContext as SessionRunContext
    from tensorflow.compat.v1.train import SessionRunHook as SessionRunHook
    from tensorflow.compat.v1.train import SessionRunValues as SessionRunValues
    from tensorflow.compat.v1.train import StepCounterHook as StepCounterHook
    from tensorflow.compat.v1.train import StopAtStepHook as StopAtStepHook
    from tensorflow.compat.v1.train import SummarySaverHook as SummarySaverHook

    from estimator import compat as compat
    from estimator import experimental as experimental
    from estimator import export as export
    from estimator import inputs as inputs
    from estimator import keras as keras
    from estimator import tpu as tpu
    from estimator.canned.baseline import BaselineClassifier as BaselineClassifier
    from estimator.canned.baseline import BaselineEstimator as BaselineEstimator
    from estimator.canned.baseline import BaselineRegressor as BaselineRegressor
    from estimator.canned.combined import DNNLinearCombinedClassifier as DNNLinearCombinedClassifier
    from estimator.canned.combined import DNNLinearCombinedEstimator as DNNLinearCombinedEstimator
    from estimator.canned.combined import DNNLinearCombinedRegressor as DNNLinearCombinedRegressor
    from estimator.canned.dnn import DNNClassifier as DNNClassifier
    from estimator.canned.dnn import DNNEstimator as DNNEstimator
    from estimator.canned.dnn import DNNRegressor as DNNRegressor
    from estimator.canned.linear import LinearClassifier as LinearClassifier
    from estimator.canned.linear import LinearEstimator as LinearEstimator
    from estimator.canned.linear import LinearRegressor as LinearRegressor
    from estimator.compat.installation import install as install
    from estimator.compat.installation import uninstall as uninstall
    from estimator.config.cluster import Cluster as Cluster
    from estimator.config.cluster import parse_tf_config as parse_tf_config
    from estimator.config.run_config import RunConfig as RunConfig
    from estimator.config.warm_start_settings import VocabInfo as VocabInfo
    from estimator.config.warm_start_settings import WarmStartSettings as WarmStartSettings
    from estimator.estimators.estimator import Estimator as Estimator
    from estimator.estimators.extra_metrics import add_metrics as add_metrics
    from estimator.export.exporters import BestExporter as BestExporter
    from estimator.export.exporters import Exporter as Exporter
    from estimator.export.exporters import FinalExporter as FinalExporter
    from estimator.export.exporters import LatestExporter as LatestExporter
    from estimator.export.predictor import make_predictor as make_predictor
    from estimator.heads.binary_class import BinaryClassHead as BinaryClassHead
    from estimator.heads.head import Head as Head
    from estimator.heads.multi import MultiHead as MultiHead
    from estimator.heads.multi_class import MultiClassHead as MultiClassHead
    from estimator.heads.multi_label import MultiLabelHead as MultiLabelHead
    from estimator.heads.regression import LogisticRegressionHead as LogisticRegressionHead
    from estimator.heads.regression import PoissonRegressionHead as PoissonRegressionHead
    from estimator.heads.regression import RegressionHead as RegressionHead
    from estimator.input.example_specs import (
        classifier_parse_example_spec as classifier_parse_example_spec,
    )
    from estimator.input.example_specs import (
        regressor_parse_example_spec as regressor_parse_example_spec,
    )
    from estimator.optimizer.cross_shard import CrossShardOptimizer as CrossShardOptimizer
    from estimator.roles.train_and_evaluate import train_and_evaluate as train_and_evaluate
    from estimator.roles.train_eval_specs import EvalSpec as EvalSpec
    from estimator.roles.train_eval_specs import TrainSpec as TrainSpec
    from estimator.spec import EstimatorSpec as EstimatorSpec
    from estimator.spec import ModeKeys as ModeKeys
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
