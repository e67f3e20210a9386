"""What a `model_fn` returns, and what of it is served."""

from estimator.spec.rules import ModeKeys
from estimator.spec.specs import EstimatorSpec, TPUEstimatorSpec, call_on_tensors

__all__ = ["EstimatorSpec", "ModeKeys", "TPUEstimatorSpec", "call_on_tensors"]
