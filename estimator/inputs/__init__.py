"""Input functions of data in memory: the names of `tf.compat.v1.estimator.inputs`."""

from estimator.inputs.arrays import numpy_input_fn
from estimator.inputs.frames import pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
