"""What a model gives to those who serve it: the values of `EstimatorSpec.export_outputs`."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from estimator.spec.named import check_tensor, make_name, make_named_tensors

_saved_model = tf.compat.v1.saved_model


class ExportOutput(abc.ABC):
    """One kind of answer of an exported model; it becomes one signature of the SavedModel."""

    @abc.abstractmethod
    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """Makes the SignatureDef from the tensors that are fed to this answer.

        Args:
            receiver_tensors: name to tensor, what the serving input receiver takes.

        Raises:
            ValueError: if this kind of answer cannot be given for such an input. The export then
                leaves the signature out and logs the message.
        """


class PredictOutput(ExportOutput):
    """Any tensors under any names, from any inputs: a Predict signature."""

    def __init__(self, outputs: Any) -> None:
        """Checks and names the outputs.

        Args:
            outputs: a dict of name to tensor, or one tensor, which is named "output".

        Raises:
            ValueError: if a name is no string or a value no tensor.
        """
        self._outputs = make_named_tensors(outputs, "outputs", "output")

    @property
    def outputs(self) -> dict[str, Any]:
        """Name to tensor."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """A Predict signature; it takes whatever the receiver takes."""
        return _saved_model.predict_signature_def(receiver_tensors, self.outputs)


class ClassificationOutput(ExportOutput):
    """Scores and labels of classes: a Classify signature.

    With both, `scores[i]` belongs to `classes[i]`. With scores alone, they are in the order of the
    class ids. With classes alone, they are the labels that the model chose, best first.
    """

    def __init__(self, scores: Any = None, classes: Any = None) -> None:
        """Checks the two.

        Args:
            scores: a float tensor, usually [batch size, classes].
            classes: a string tensor of labels, of the same shape. Labels, not class ids.

        Raises:
            ValueError: if both are None, or one is of another type.
        """
        if scores is None and classes is None:
            raise ValueError(
                "`scores` and `classes` are both None: a ClassificationOutput needs at least one."
            )
        if scores is not None:
            _check_floating(scores, "scores")
        if classes is not None:
            check_tensor(classes, "`classes`")
            if classes.dtype != tf.string:
                raise ValueError(
                    f"`classes` ({classes!r}) must be a string tensor of labels. "
                    "Convert class ids with tf.strings.as_string."
                )
        self._scores = scores
        self._classes = classes

    @property
    def scores(self) -> Any:
        """The float tensor, or None."""
        return self._scores

    @property
    def classes(self) -> Any:
        """The string tensor, or None."""
        return self._classes

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """A Classify signature.

        Raises:
            ValueError: unless the input is one string tensor of serialized examples and the
                scores are float32.
        """
        examples = _examples_of(receiver_tensors, "Classification")
        _check_float32(self.scores, "scores")
        return _saved_model.classification_signature_def(examples, self.classes, self.scores)


class RegressionOutput(ExportOutput):
    """A number for each example: a Regress signature."""

    def __init__(self, value: Any) -> None:
        """Checks `value`, a float tensor, usually [batch size].

        Raises:
            ValueError: if it is something else.
        """
        _check_floating(value, "value")
        self._value = value

    @property
    def value(self) -> Any:
        """The float tensor."""
        return self._value

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """A Regress signature.

        Raises:
            ValueError: unless the input is one string tensor of serialized examples and the value
                is float32.
        """
        examples = _examples_of(receiver_tensors, "Regression")
        _check_float32(self.value, "value")
        return _saved_model.regression_signature_def(examples, self.value)


class SupervisedOutput(ExportOutput):
    """Loss, predictions and metrics: what a model gives when labels are fed too."""

    method_name: str
    key: str  # of the signature, and the tag of its graph

    def __init__(self, loss: Any = None, predictions: Any = None, metrics: Any = None) -> None:
        """Checks the three and gives their tensors the names of the signature.

        Args:
            loss: a tensor, or a dict of tensors.
            predictions: a tensor, or a dict of tensors.
            metrics: a dict of name to `(value, update_op)`, or one such pair, or tf-keras metrics.
                An `update_op` that is no tensor gets a tensor that waits for it.

        Raises:
            ValueError: if a name is no string or a value no tensor.
        """
        self._loss = None if loss is None else _make_prefixed(loss, "loss")
        self._predictions = (
            None if predictions is None else _make_prefixed(predictions, "predictions")
        )
        self._metrics = None if metrics is None else _build_metrics(metrics)

    @property
    def loss(self) -> dict[str, Any] | None:
        """Name in the signature, `loss` or `loss/<name>`, to tensor; None if not given."""
        return self._loss

    @property
    def predictions(self) -> dict[str, Any] | None:
        """Name in the signature, `predictions` or `predictions/<name>`, to tensor; or None."""
        return self._predictions

    @property
    def metrics(self) -> dict[str, Any] | None:
        """Names `metrics/<name>/value` and `metrics/<name>/update_op` to tensors; or None."""
        return self._metrics

    def as_signature_def(self, receiver_tensors: dict[str, Any]) -> Any:
        """A signature of this method; serving systems do not offer it.

        Raises:
            ValueError: if there is nothing to give.
        """
        outputs = {**(self.loss or {}), **(self.predictions or {}), **(self.metrics or {})}
        # No public builder makes a supervised signature; only the method differs from Predict.
        signature = _saved_model.predict_signature_def(receiver_tensors, outputs)
        signature.method_name = self.method_name
        return signature


class EvalOutput(SupervisedOutput):
    """What evaluation gives: loss, predictions, metrics."""

    method_name = "tensorflow/supervised/eval"
    key = "eval"


class TrainOutput(SupervisedOutput):
    """What one step of training gives: loss, predictions, metrics."""

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
    """The one tensor of serialized examples that Classify and Regress signatures take."""
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
        return {}  # A spec without predictions.
    named = make_named_tensors(tensors, prefix, prefix)
    return {_prefixed(name, prefix): tensor for name, tensor in named.items()}


def _prefixed(name: str, prefix: str) -> str:
    return name if name.startswith(prefix) else f"{prefix}/{name}"


def _build_metrics(metrics: Any) -> dict[str, Any]:
    """Value and update of each metric as tensors under the names of the signature."""
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
    """A tensor that can stand in a signature for `update_op`: an op and a variable cannot."""
    if isinstance(update_op, tf.Tensor):
        return update_op
    with tf.control_dependencies([update_op]):
        return tf.constant([], name="metric_op_wrapper")
