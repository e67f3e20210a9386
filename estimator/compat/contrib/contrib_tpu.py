"""`tf.contrib.tpu`."""

import tensorflow as tf

from estimator.config.tpu_context import TPUContext
from estimator.tpu import (
    CrossShardOptimizer,
    InputPipelineConfig,
    RunConfig,
    TPUConfig,
    TPUEstimator,
    TPUEstimatorSpec,
)

bfloat16_scope = tf.compat.v1.tpu.bfloat16_scope
cross_replica_sum = tf.compat.v1.tpu.cross_replica_sum
outside_compilation = tf.compat.v1.tpu.outside_compilation

__all__ = [
    "CrossShardOptimizer",
    "InputPipelineConfig",
    "RunConfig",
    "TPUConfig",
    "TPUContext",
    "TPUEstimator",
    "TPUEstimatorSpec",
    "bfloat16_scope",
    "cross_replica_sum",
    "outside_compilation",
]
