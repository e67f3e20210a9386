"""The outputs of an exported model: the values of `EstimatorSpec.export_outputs`."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from estimator.spec.named import check_tensor, make_name, make_named_tensors

_saved_model = tf.compat.v1.saved_model


class ExportOutput(abc.ABC):
    """One kind of output of an exported model, which becomes a signature of the SavedModel."""

    @abc.abstractmethod
    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Makes the SignatureDef from the input tensors of the signature.

        Args:
            receiver_tensors: maps names to tensors: the inputs of the serving input receiver.

        Raises:
            ValueError: this kind of output does not support such inputs. The export then omits the
              signature and logs the message.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class PredictOutput(ExportOutput):
    """Any named tensors, for any inputs: a Predict signature.

    Attributes:
        outputs: a dict from names to tensors; one tensor is given the name "output". In modes that
          are not exported, the dict may be empty.

    Raises:
        ValueError: a name is not a string, or a value is not a tensor.
    """

    outputs: Any

    def __post_init__(self) -> None:
        """Checks and names the outputs."""
        if not isinstance(self.outputs, Mapping) or self.outputs:
            vars(self)["outputs"] = make_named_tensors(self.outputs, "outputs", "output")

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Returns a Predict signature with all inputs of the receiver.

        Raises:
            ValueError: there are no outputs.
        """
        if not self.outputs:
            raise ValueError("`outputs` ({}) of a PredictOutput must name at least one tensor.")
        return _saved_model.predict_signature_def(receiver_tensors, self.outputs)


@dataclasses.dataclass(frozen=True, eq=False)
class ClassificationOutput(ExportOutput):
    """Scores and labels of classes: a Classify signature.

    With both, `scores[i]` belongs to `classes[i]`. With scores alone, they are in the order of the
    class ids. With classes alone, they are the labels that the model chose, best first.

    Attributes:
        scores: a float tensor, usually [batch size, classes], or None.
        classes: a string tensor of labels, of the same shape, or None. Labels, not class ids.

    Raises:
        ValueError: both are None, or one has another type.
    """

    scores: Any = None
    classes: Any = None

    def __post_init__(self) -> None:
        """Checks the scores and classes."""
        if self.scores is None and self.classes is None:
            raise ValueError(
                "`scores` and `classes` are both None: a ClassificationOutput needs at least one."
            )
        if self.scores is not None:
            _check_floating(self.scores, "scores")
        if self.classes is not None:
            check_tensor(self.classes, "`classes`")
            if self.classes.dtype != tf.string:
                raise ValueError(
                    f"`classes` ({self.classes!r}) must be a string tensor of labels. "
                    "Convert class ids with tf.strings.as_string."
                )

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Returns a Classify signature.

        Raises:
            ValueError: the input is not one string tensor of serialized examples, or the output is
              not float32.
        """
        examples = _examples_of(receiver_tensors, "Classification")
        _check_float32(self.scores, "scores")
        return _saved_model.classification_signature_def(examples, self.classes, self.scores)


@dataclasses.dataclass(frozen=True, eq=False)
class RegressionOutput(ExportOutput):
    """A number for each example: a Regress signature.

    Attributes:
        value: a float tensor, usually [batch size].

    Raises:
        ValueError: `value` is anything else.
    """

    value: Any

    def __post_init__(self) -> None:
        """Checks the value."""
        _check_floating(self.value, "value")

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Returns a Regress signature.

        Raises:
            ValueError: the input is not one string tensor of serialized examples, or the output is
              not float32.
        """
        examples = _examples_of(receiver_tensors, "Regression")
        _check_float32(self.value, "value")
        return _saved_model.regression_signature_def(examples, self.value)


@dataclasses.dataclass(frozen=True, eq=False)
class SupervisedOutput(ExportOutput):
    """Loss, predictions and metrics: the outputs of a model that is also fed labels.

    Each is None, or becomes a dict of tensors by their names in the signature.

    Attributes:
        loss: a tensor, or a dict of tensors: by the names `loss` or `loss/<name>`.
        predictions: likewise, by the names `predictions` or `predictions/<name>`.
        metrics: a dict from names to `(value, update_op)` pairs, a single pair, or tf-keras
          metrics: by the names `metrics/<name>/value` and `metrics/<name>/update_op`. An
          `update_op` that is not a tensor gets a tensor that waits for it.

    Raises:
        ValueError: a name is not a string, or a value is not a tensor.
    """

    loss: Any = None
    predictions: Any = None
    metrics: Any = None

    # The parts of names in the signature.
    LOSS_NAME: ClassVar[str] = "loss"
    PREDICTIONS_NAME: ClassVar[str] = "predictions"
    METRICS_NAME: ClassVar[str] = "metrics"
    METRIC_VALUE_SUFFIX: ClassVar[str] = "value"
    METRIC_UPDATE_SUFFIX: ClassVar[str] = "update_op"

    method_name: ClassVar[str]
    key: ClassVar[str]  # of the signature, and the tag of its graph

    def __post_init__(self) -> None:
        """Checks the fields and names their tensors for the signature."""
        for name in ("loss", "predictions"):
            if getattr(self, name) is not None:
                vars(self)[name] = _make_prefixed(getattr(self, name), name)
        if self.metrics is not None:
            vars(self)["metrics"] = _build_metrics(self.metrics)

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Returns a signature with this method, which serving systems do not offer.

        Raises:
            ValueError: there are no outputs.
        """
        outputs = {**(self.loss or {}), **(self.predictions or {}), **(self.metrics or {})}
        # No public builder makes a supervised signature; only the method differs from Predict.
        signature = _saved_model.predict_signature_def(receiver_tensors, outputs)
        signature.method_name = self.method_name
        return signature


class EvalOutput(SupervisedOutput):
    """The outputs of an evaluation: loss, predictions, metrics."""

    method_name = "tensorflow/supervised/eval"
    key = "eval"


class TrainOutput(SupervisedOutput):
    """The outputs of a training step: loss, predictions, metrics."""

    method_name = "tensorflow/supervised/training"
    key = "train"


def _check_floating(value: Any, argument: str) -> None:
    check_tensor(value, f"`{argument}`")
    if not value.dtype.is_floating:
        raise ValueError(
            f"`{argument}` ({value!r}) must be a float tensor. Convert it with tf.cast."
        )


def _check_float32(value: Any, argument: str) -> None:
    if value is not None and value.dtype != tf.float32:
        raise ValueError(
            f"`{argument}` is {value.dtype.name}, but TensorFlow Serving takes float32 here. "
            "Convert it with tf.cast."
        )


def _examples_of(receiver_tensors: dict[str, Any], kind: str) -> Any:
    """Returns the tensor of serialized examples that Classify and Regress signatures take."""
    tensors = list(receiver_tensors.values())
    if len(tensors) != 1 or tensors[0].dtype != tf.string:
        taken = {name: tensor.dtype.name for name, tensor in receiver_tensors.items()}
        raise ValueError(
            f"{kind} signatures take a single string tensor of serialized tf.Examples, but the "
            f"serving input receiver takes {taken}. Use build_parsing_serving_input_receiver_fn, "
            "or export a PredictOutput."
        )
    return tensors[0]


def _make_prefixed(tensors: Any, prefix: str) -> dict[str, Any]:
    if isinstance(tensors, Mapping) and not tensors:
        return {}  # The spec has no predictions.
    named = make_named_tensors(tensors, prefix, prefix)
    return {_prefixed(name, prefix): tensor for name, tensor in named.items()}


def _prefixed(name: str, prefix: str) -> str:
    return name if name.startswith(prefix) else f"{prefix}/{name}"


def _build_metrics(metrics: Any) -> dict[str, Any]:
    """Returns each metric's value and update as tensors under the names of the signature."""
    if not isinstance(metrics, Mapping):
        metrics = {"metrics": metrics}
    outputs = {}
    for key, metric in metrics.items():
        value, update_op = _value_and_update(metric, key)
        name = _prefixed(make_name(key, "metrics"), "metrics")
        outputs[f"{name}/value"] = value
        outputs[f"{name}/update_op"] = _build_update_tensor(update_op)
    return outputs


def _value_and_update(metric: Any, key: Any) -> tuple[Any, Any]:
    label = f"`metrics[{key!r}]`"
    if isinstance(metric, tuple) and len(metric) == 2:
        value, update_op = metric
    elif len(getattr(metric, "updates", None) or ()) == 1:
        value, update_op = metric.result(), metric.updates[0]
    else:
        raise ValueError(
            f"{label} ({metric!r}) must be a pair (value, update_op), or a tf-keras metric that "
            "was updated once. tf.compat.v1.metrics make such pairs."
        )
    check_tensor(value, f"the value of {label}")
    if not (tf.is_tensor(update_op) or isinstance(update_op, tf.Operation)):
        raise ValueError(
            f"the update_op of {label} ({update_op!r}) must be a Tensor or an Operation."
        )
    return value, update_op


def _build_update_tensor(update_op: Any) -> tf.Tensor:
    """Returns a tensor for `update_op`, because a signature cannot hold an op or a variable."""
    if isinstance(update_op, tf.Tensor):
        return update_op
    with tf.control_dependencies([update_op]):
        return tf.constant([], name="metric_op_wrapper")
