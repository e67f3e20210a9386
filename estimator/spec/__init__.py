"""What a `model_fn` returns: specs, their rules, and export outputs."""

from estimator.spec.rules import ModeKeys
from estimator.spec.specs import (
    EstimatorSpec,
    TPUEstimatorSpec,
    call_on_tensors,
    with_none_bound,
)

__all__ = ["EstimatorSpec", "ModeKeys", "TPUEstimatorSpec", "call_on_tensors", "with_none_bound"]
