"""The names of `tf.estimator.experimental`."""

from estimator.export import build_raw_supervised_input_receiver_fn
from estimator.graph.logits import call_logit_fn

__all__ = [
    "build_raw_supervised_input_receiver_fn",
    "call_logit_fn",
]
