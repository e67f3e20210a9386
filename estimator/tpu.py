"""The TPU names, under the names of `tf.compat.v1.estimator.tpu`."""

from estimator.config.tpu_config import InputPipelineConfig, TPUConfig
from estimator.config.tpu_run_config import TPURunConfig as RunConfig
from estimator.estimators.tpu_estimator import TPUEstimator
from estimator.optimizer.cross_shard import CrossShardOptimizer
from estimator.spec import TPUEstimatorSpec

__all__ = [
    "CrossShardOptimizer",
    "InputPipelineConfig",
    "RunConfig",
    "TPUConfig",
    "TPUEstimator",
    "TPUEstimatorSpec",
]
