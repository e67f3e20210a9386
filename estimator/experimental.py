"""The names of `tf.estimator.experimental`."""

from estimator.canned.kmeans import KMeans
from estimator.canned.logit_fns import dnn_logit_fn_builder, linear_logit_fn_builder
from estimator.canned.rnn import RNNClassifier, RNNEstimator
from estimator.canned.sdca import LinearSDCA
from estimator.export import build_raw_supervised_input_receiver_fn
from estimator.hooks.early_stopping import (
    make_early_stopping_hook,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from estimator.hooks.in_memory_evaluation import InMemoryEvaluatorHook
from estimator.hooks.stop_at_checkpoint import make_stop_at_checkpoint_step_hook
from estimator.model.logits import call_logit_fn

__all__ = [
    "InMemoryEvaluatorHook",
    "KMeans",
    "LinearSDCA",
    "RNNClassifier",
    "RNNEstimator",
    "build_raw_supervised_input_receiver_fn",
    "call_logit_fn",
    "dnn_logit_fn_builder",
    "linear_logit_fn_builder",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]
