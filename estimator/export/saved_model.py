"""Makes signatures and writes SavedModels."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.export.directory import (
    make_base_path,
    make_extra_assets,
    write_extra_assets,
    write_numbered_dir,
)
from estimator.export.outputs import ExportOutput, PredictOutput, SupervisedOutput

_log = logging.getLogger("estimator")
_saved_model = tf.compat.v1.saved_model
_DEFAULT = _saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
_TRAIN_OP_KEY = "saved_model_train_op"  # The loader's name; TensorFlow exports no constant.


def make_signatures(
    receiver: Any, predictions: Any = None, export_outputs: Mapping[str, ExportOutput] | None = None
) -> dict[str, Any]:
    """The signatures for serving: one for each output, and for each alternative input.

    A signature that cannot be made for the receiver's tensors is left out, and the log says why.

    Args:
        receiver: a ServingInputReceiver.
        predictions: a tensor or a dict of tensors; the only output if `export_outputs` is None.
        export_outputs: name of the signature to output. A single one is also the default; of
            several, one must be called "serving_default".

    Returns:
        Name to SignatureDef. Those that take alternative tensors are called
        "<alternative>:<output>".

    Raises:
        TypeError: if `export_outputs` is no dict of ExportOutput.
        ValueError: if there is no output, or no default among several.
    """
    outputs = _make_outputs(predictions, export_outputs)
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
    _log_signatures(signatures, reasons)
    return signatures


def make_supervised_signatures(receiver: Any, output: SupervisedOutput) -> dict[str, Any]:
    """The one signature, "eval" or "train", of a graph that takes labels too.

    Args:
        receiver: a SupervisedInputReceiver.
        output: an EvalOutput or a TrainOutput. Its `key` is also the tag of the graph.

    Raises:
        ValueError: if the output is empty or needs a placeholder that the receiver does not name.
    """
    return {output.key: _make_signature(output, receiver.receiver_tensors)}


@dataclasses.dataclass(frozen=True)
class GraphToSave:
    """One graph of a SavedModel.

    Attributes:
        session: an open session with the values of the variables; its graph is not finalized.
        signatures: name to SignatureDef.
        tags: what a loader asks for.
        saver: a tf.compat.v1.train.Saver; None to save all variables of the graph.
        main_op: the op that a loader runs after it has restored the variables; None for the
            initialization of local variables and tables.
        train_op: the op of one step of training, for loaders that train.
    """

    session: tf.compat.v1.Session
    signatures: Mapping[str, Any]
    tags: Sequence[str] = (_saved_model.SERVING,)
    saver: Any = None
    main_op: tf.Operation | None = None
    train_op: tf.Operation | tf.Tensor | None = None


def write_saved_model(  # noqa: PLR0913 - the arguments of `export_saved_model` and its graph
    session: tf.compat.v1.Session,
    export_dir_base: str,
    signatures: Mapping[str, Any],
    *,
    tags: Sequence[str] = (_saved_model.SERVING,),
    saver: Any = None,
    main_op: tf.Operation | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    strip_default_attrs: bool = True,
) -> bytes:
    """Writes a SavedModel of one graph; see GraphToSave and `write_saved_models`."""
    return write_saved_models(
        export_dir_base,
        [GraphToSave(session, signatures, tags, saver, main_op)],
        assets_extra=assets_extra,
        as_text=as_text,
        strip_default_attrs=strip_default_attrs,
    )


def write_saved_models(
    export_dir_base: str,
    graphs: Iterable[GraphToSave],
    *,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    strip_default_attrs: bool = True,
    clock: Callable[[], float] = time.time,
) -> bytes:
    """Writes a SavedModel of one or more graphs, which share the variables of the first.

    The graphs hold no device names. Files of vocabularies (the collection ASSET_FILEPATHS) are
    copied to `assets`.

    Args:
        export_dir_base: the numbered directory appears in it, whole or not at all.
        graphs: is read once; each session need only be open until the next is asked for.
        assets_extra: files to copy to `assets.extra`: destination there to source.
        as_text: write `saved_model.pbtxt` rather than `saved_model.pb`.
        strip_default_attrs: leave out of the graph what is a default, so that older TensorFlow
            reads it.
        clock: seconds since 1970, the number of the directory.

    Returns:
        The path of the numbered directory.

    Raises:
        ValueError: if a path is wrong, a vocabulary's file is missing, or there is no graph.
        TypeError: if a saver is no Saver.
    """
    base = make_base_path(export_dir_base)
    extra = make_extra_assets(assets_extra)

    def write(directory: str) -> None:
        builder = _saved_model.Builder(directory)
        has_variables = False
        for graph in graphs:
            _add_graph(builder, graph, has_variables, strip_default_attrs)
            has_variables = True
        if not has_variables:
            raise ValueError("`graphs` is empty: a SavedModel needs at least one graph.")
        builder.save(as_text)
        write_extra_assets(extra, directory)

    path = write_numbered_dir(base, write, clock)
    _log.info("SavedModel written to %s", path)
    return tf.compat.as_bytes(path)


class _PortableSaver:
    """A Saver whose exported graph names no device.

    TensorFlow's `clear_devices` stops at the top of the graph; loops, maps and other functions
    keep theirs.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def save(self, *args: Any, **kwargs: Any) -> Any:
        return self._saver.save(*args, **kwargs)

    def export_meta_graph(self, **kwargs: Any) -> Any:
        meta_graph = self._saver.export_meta_graph(**kwargs)
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                node.device = ""
        return meta_graph


def _make_outputs(predictions: Any, export_outputs: Any) -> dict[str, ExportOutput]:
    if export_outputs is None:
        if predictions is None:
            raise ValueError(
                "`predictions` and `export_outputs` are both None: there is nothing to export. "
                "Return one of them from `model_fn` in mode PREDICT."
            )
        return {_DEFAULT: PredictOutput(predictions)}
    _check_export_outputs(export_outputs)
    outputs = dict(export_outputs)
    if len(outputs) == 1:
        outputs[_DEFAULT] = next(iter(outputs.values()))
    if _DEFAULT not in outputs:
        raise ValueError(
            f"`export_outputs` has the keys {list(outputs)}; one of several must be {_DEFAULT!r}, "
            "the signature that is served when a request names none. Rename or add one."
        )
    return outputs


def _check_export_outputs(export_outputs: Any) -> None:
    way_out = "Pass {name: PredictOutput(...)}."
    if not isinstance(export_outputs, Mapping):
        raise TypeError(
            f"`export_outputs` ({export_outputs!r}) must be a dict of name to ExportOutput. "
            f"{way_out}"
        )
    if not export_outputs:
        raise ValueError(
            "`export_outputs` ({}) must have at least one output; None stands for the predictions."
        )
    for key, output in export_outputs.items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"`export_outputs` has the key {key!r}: keys must be strings.")
        if not isinstance(output, ExportOutput):
            raise TypeError(
                f"`export_outputs[{key!r}]` ({output!r}) must be an ExportOutput, not a "
                f"{type(output).__name__}. {way_out}"
            )


def _make_servable(output: ExportOutput, receiver_tensors: Mapping[str, Any]) -> Any:
    signature = _make_signature(output, receiver_tensors)
    if not _saved_model.is_valid_signature(signature):
        raise ValueError(
            f"{type(output).__name__} makes a signature of the method {signature.method_name!r}, "
            "which TensorFlow Serving does not offer"
        )
    return signature


def _make_signature(output: ExportOutput, receiver_tensors: Mapping[str, Any]) -> Any:
    """The signature, which needs nothing that it does not take; ValueError if there is none."""
    fed = tf.nest.flatten(dict(receiver_tensors), expand_composites=True)
    graph = fed[0].graph if fed else tf.compat.v1.get_default_graph()
    with graph.as_default():
        signature = output.as_signature_def(dict(receiver_tensors))
    names = [name for info in signature.outputs.values() for name in _tensor_names(info)]
    _check_reachable(graph, names, {tensor.name for tensor in fed})
    return signature


def _check_reachable(graph: tf.Graph, names: Sequence[str], fed: set[str]) -> None:
    """Raises ValueError if a tensor of `names` needs a placeholder that is not `fed`."""
    waiting = [graph.get_tensor_by_name(name).op for name in names if name not in fed]
    seen = set()
    while waiting:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if op.type == "Placeholder":
            raise ValueError(
                f"its outputs need the placeholder {op.name!r}, which is not among its inputs "
                f"{sorted(fed)}. Add it to the receiver tensors"
            )
        waiting.extend(tensor.op for tensor in op.inputs if tensor.name not in fed)
        waiting.extend(op.control_inputs)


def _tensor_names(info: Any) -> list[str]:
    """The names of the dense tensors that a TensorInfo is made of."""
    encoding = info.WhichOneof("encoding")
    if encoding == "coo_sparse":
        sparse = info.coo_sparse
        return [
            sparse.values_tensor_name,
            sparse.indices_tensor_name,
            sparse.dense_shape_tensor_name,
        ]
    if encoding == "composite_tensor":
        return [name for part in info.composite_tensor.components for name in _tensor_names(part)]
    return [info.name]


def _log_signatures(signatures: Mapping[str, Any], reasons: Mapping[str, str]) -> None:
    _log.info("Signatures exported: %s", ", ".join(signatures) or "none")
    for name, reason in reasons.items():
        # Ready-made heads offer every kind; only a missing default needs attention.
        level = logging.WARNING if name == _DEFAULT or not signatures else logging.INFO
        _log.log(level, "Signature %r not exported: %s", name, reason)


def _add_graph(
    builder: Any, to_save: GraphToSave, has_variables: bool, strip_default_attrs: bool
) -> None:
    """Adds a graph to the builder, the variables too if they are not there yet."""
    graph = to_save.session.graph
    if graph.finalized:
        raise ValueError(
            "the graph of `session` is finalized, but an export adds to it. "
            "Use a plain tf.compat.v1.Session."
        )
    with graph.as_default():
        saver = to_save.saver or tf.compat.v1.train.Saver(sharded=True, allow_empty=True)
        if not isinstance(saver, tf.compat.v1.train.Saver):
            raise TypeError(
                f"`saver` ({saver!r}) must be a tf.compat.v1.train.Saver, or None to save all "
                "variables."
            )
        assets = graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS)
        _check_assets(assets)
        arguments = {
            "signature_def_map": dict(to_save.signatures),
            "assets_collection": assets,
            "clear_devices": True,
            "main_op": to_save.main_op or tf.compat.v1.train.Scaffold.default_local_init_op(),
            "strip_default_attrs": strip_default_attrs,
            "saver": _PortableSaver(saver),
        }
        if to_save.train_op is not None:
            graph.add_to_collection(_TRAIN_OP_KEY, to_save.train_op)
        try:
            if has_variables:
                builder.add_meta_graph(list(to_save.tags), **arguments)
            else:
                builder.add_meta_graph_and_variables(
                    to_save.session, list(to_save.tags), **arguments
                )
        finally:
            # The builder leaves notes in the graph that would spoil a second export of it.
            for key in (_saved_model.MAIN_OP_KEY, _saved_model.ASSETS_KEY, _TRAIN_OP_KEY):
                graph.clear_collection(key)


def _check_assets(assets: Sequence[tf.Tensor]) -> None:
    """Raises ValueError if a file is missing: the builder would skip it, and loading would fail."""
    for asset in assets:
        path = tf.get_static_value(asset)
        if path is not None and not tf.io.gfile.exists(tf.compat.as_str_any(path.item())):
            raise ValueError(
                f"the vocabulary file {path.item()!r} (tensor {asset.name!r}) does not exist any "
                "more. Put it back, so that the export can copy it."
            )
