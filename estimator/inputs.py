"""Input functions for data in memory: the names of `tf.compat.v1.estimator.inputs`."""

from estimator.input.numpy_input import numpy_input_fn
from estimator.input.pandas_input import pandas_input_fn

__all__ = ["numpy_input_fn", "pandas_input_fn"]
