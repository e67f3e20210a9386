"""Versioned names: `estimator.compat.v1` for `tf.compat.v1.estimator`."""

from estimator.compat import v1

__all__ = ["v1"]
