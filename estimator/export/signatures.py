"""Makes the signatures of a SavedModel: its input and output tensors."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.console import log, no_internal_messages, note
from estimator.rewrite.graph_walk import walk
from estimator.spec import ModeKeys
from estimator.spec.outputs import ExportOutput, SupervisedOutput
from estimator.spec.rules import checked_export_outputs

_saved_model = tf.compat.v1.saved_model
_DEFAULT = _saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def make_signatures(
    receiver: Any, predictions: Any = None, export_outputs: Mapping[str, ExportOutput] | None = None
) -> dict[str, Any]:
    """Returns the serving signatures: one for each output and each alternative input.

    A signature that cannot be made for the receiver's tensors is omitted, with a log line.

    Args:
        receiver: a ServingInputReceiver.
        predictions: a tensor or a dict of tensors; the only output if `export_outputs` is None.
        export_outputs: maps names of signatures to outputs. A single one is also the default; of
          several, one must be called "serving_default".

    Returns:
        A dict from names to SignatureDefs. Those for alternative inputs are called
        "<alternative>:<output>".

    Raises:
        TypeError: `export_outputs` is not a dict of ExportOutputs.
        ValueError: there is no output, no default among several, or no signature can be made.
    """
    outputs = _checked_outputs(predictions, export_outputs)
    inputs = {"": receiver.receiver_tensors}
    alternatives = getattr(receiver, "receiver_tensors_alternatives", None) or {}
    inputs.update({f"{name}:": tensors for name, tensors in alternatives.items()})
    signatures: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for (prefix, tensors), (key, output) in itertools.product(inputs.items(), outputs.items()):
        try:
            signatures[prefix + key] = _make_servable(output, tensors)
        except ValueError as error:
            reasons[prefix + key] = str(error)
    if not signatures:
        raise ValueError(
            "No signature can be made, so the exported model could not be called: "
            + " ".join(f"{name!r}: {reason}" for name, reason in reasons.items())
        )
    _log_signatures(signatures, reasons)
    return signatures


def make_supervised_signatures(receiver: Any, output: SupervisedOutput) -> dict[str, Any]:
    """Returns the signature, "eval" or "train", of a graph that also takes labels.

    Args:
        receiver: a SupervisedInputReceiver.
        output: an EvalOutput or a TrainOutput, whose `key` is also the tag of the graph.

    Raises:
        ValueError: the output is empty, or needs a placeholder that the receiver does not name.
    """
    return {output.key: _make_signature(output, receiver.receiver_tensors)}


def _checked_outputs(predictions: Any, export_outputs: Any) -> dict[str, ExportOutput]:
    """Returns the outputs, of which one is the default."""
    given = dict(export_outputs) if isinstance(export_outputs, Mapping) else export_outputs
    outputs = checked_export_outputs(given, predictions, ModeKeys.PREDICT) or {}
    if not outputs:
        raise ValueError(
            "`export_outputs` ({}) must have at least one output; None stands for the predictions."
        )
    for key in outputs:
        if not isinstance(key, str) or not key:
            raise WrongTypeError(f"`export_outputs` has the key {key!r}: keys must be strings.")
    return outputs


def _make_servable(output: ExportOutput, receiver_tensors: Mapping[str, Any]) -> Any:
    signature = _make_signature(output, receiver_tensors)
    if not _saved_model.is_valid_signature(signature):
        raise ValueError(
            f"{type(output).__name__} makes a signature of the method {signature.method_name!r}, "
            "which TensorFlow Serving does not offer"
        )
    return signature


def _make_signature(output: ExportOutput, receiver_tensors: Mapping[str, Any]) -> Any:
    """Returns the signature; raises ValueError if it needs tensors that it does not take."""
    fed = tf.nest.flatten(dict(receiver_tensors), expand_composites=True)
    graph = fed[0].graph if fed else tf.compat.v1.get_default_graph()
    # TensorFlow would warn about its own deprecated call.
    with graph.as_default(), no_internal_messages():
        signature = output.as_signature_def(dict(receiver_tensors))
        outputs = [
            _saved_model.get_tensor_from_tensor_info(info) for info in signature.outputs.values()
        ]
    tensors = tf.nest.flatten(outputs, expand_composites=True)
    _check_reachable(tensors, {tensor.name for tensor in fed})
    return signature


def _check_reachable(tensors: Sequence[tf.Tensor], fed: set[str]) -> None:
    """Raises ValueError if one of `tensors` depends on a placeholder that is not `fed`."""
    outputs = [tensor.op for tensor in tensors if tensor.name not in fed]

    def behind(op: tf.Operation) -> list[tf.Operation]:
        return [*(tensor.op for tensor in op.inputs if tensor.name not in fed), *op.control_inputs]

    for op in walk(outputs, behind):
        # Control inputs may come from a fed placeholder whose value is not used.
        if op.type == "Placeholder" and op.outputs[0].name not in fed:
            raise ValueError(
                f"its outputs need the placeholder {op.name!r}, which is not among its inputs "
                f"{sorted(fed)}. Add it to the receiver tensors"
            )


def _log_signatures(signatures: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    note("Signatures exported: %s", ", ".join(signatures))
    for name, reason in reasons.items():
        # Predefined heads offer every kind of output; only a missing default needs attention.
        level = logging.WARNING if name == _DEFAULT else logging.INFO
        log.log(level, "Signature %r not exported: %s", name, reason)
