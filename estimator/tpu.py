"""The TPU names, at the places where `tf.compat.v1.estimator.tpu` had them."""

from estimator.config.tpu_config import InputPipelineConfig, TPUConfig
from estimator.config.tpu_run_config import TPURunConfig as RunConfig
from estimator.graph.optimizer import CrossShardOptimizer
from estimator.spec import TPUEstimatorSpec
from estimator.tpu_estimator import TPUEstimator

__all__ = [
    "CrossShardOptimizer",
    "InputPipelineConfig",
    "RunConfig",
    "TPUConfig",
    "TPUEstimator",
    "TPUEstimatorSpec",
]
