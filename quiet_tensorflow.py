"""Imports TensorFlow without showing what its C++ code logs. Must be imported before TensorFlow."""

import os

from estimator.compat.tensorflow_import import stderr_held

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with stderr_held():
    import tensorflow  # noqa: F401
