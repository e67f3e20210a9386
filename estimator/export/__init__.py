"""Serving: what a SavedModel takes, what it gives, and how it is written."""

from estimator.export.receivers import (
    ServingInputReceiver,
    SupervisedInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
    build_raw_supervised_input_receiver_fn,
)

# For the verbs; not part of the contract, so not in `__all__`.
from estimator.export.receivers import check_input_receiver as check_input_receiver
from estimator.export.saved_model import GraphToSave as GraphToSave
from estimator.export.saved_model import write_saved_model as write_saved_model
from estimator.export.saved_model import write_saved_models as write_saved_models
from estimator.export.signatures import make_signatures as make_signatures
from estimator.export.signatures import make_supervised_signatures as make_supervised_signatures
from estimator.spec.outputs import (
    ClassificationOutput,
    EvalOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)

__all__ = [
    "ClassificationOutput",
    "EvalOutput",
    "ExportOutput",
    "PredictOutput",
    "RegressionOutput",
    "ServingInputReceiver",
    "SupervisedInputReceiver",
    "TensorServingInputReceiver",
    "build_parsing_serving_input_receiver_fn",
    "build_raw_serving_input_receiver_fn",
    "build_raw_supervised_input_receiver_fn",
]
