"""Writes SavedModels."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.console import say
from estimator.export.directory import (
    make_base_path,
    make_extra_assets,
    write_extra_assets,
    write_numbered_dir,
)
from estimator.rewrite.collections import only_top_of_graph

_saved_model = tf.compat.v1.saved_model
# The name that loaders use; TensorFlow has no public constant for it.
_TRAIN_OP_KEY = "saved_model_train_op"


@dataclasses.dataclass(frozen=True)
class GraphToSave:
    """One graph of a SavedModel.

    Attributes:
        session: an open session with the variables' values, on a graph that is not finalized.
        signatures: maps names to SignatureDefs.
        tags: the tags by which a loader selects the graph.
        saver: a tf.compat.v1.train.Saver; None to save all variables of the graph.
        main_op: the op that a loader runs after restoring the variables; None initializes local
          variables and tables.
        train_op: the op of one training step, for loaders that train.
    """

    session: tf.compat.v1.Session
    signatures: Mapping[str, Any]
    tags: Sequence[str] = (_saved_model.SERVING,)
    saver: Any = None
    main_op: tf.Operation | None = None
    train_op: tf.Operation | tf.Tensor | None = None


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

    The graphs hold no device names. Vocabulary files (the collection ASSET_FILEPATHS) are copied to
    `assets`.

    Args:
        export_dir_base: the parent of the numbered directory, which is written atomically.
        graphs: the graphs, iterated once; each session must stay open only until the next is
          requested.
        assets_extra: files to copy into `assets.extra`: maps destinations there to source paths.
        as_text: whether to write `saved_model.pbtxt` rather than `saved_model.pb`.
        strip_default_attrs: whether to omit attributes that have default values, so that older
          TensorFlow versions can read the graph.
        clock: returns seconds since 1970, which become the directory's number.

    Returns:
        The path of the numbered directory.

    Raises:
        ValueError: a path is wrong, a vocabulary file is missing, or there is no graph.
        TypeError: a saver is not a Saver.
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
    say("SavedModel written to %s", path)
    return tf.compat.as_bytes(path)


class _PortableSaver:
    """A Saver whose exported graph names no devices and can be imported.

    TensorFlow's `clear_devices` only affects the top level of the graph, not loops, maps and other
    functions.
    """

    def __init__(self, saver: Any) -> None:
        self._saver = saver

    def save(self, *args: Any, **kwargs: Any) -> Any:
        return self._saver.save(*args, **kwargs)

    def export_meta_graph(self, **kwargs: Any) -> Any:
        with only_top_of_graph(tf.compat.v1.get_default_graph()):
            meta_graph = self._saver.export_meta_graph(**kwargs)
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                node.device = ""
        return meta_graph


def _add_graph(
    builder: Any, to_save: GraphToSave, has_variables: bool, strip_default_attrs: bool
) -> None:
    """Adds a graph to the builder, with the variables if it is the first."""
    graph = to_save.session.graph
    if graph.finalized:
        raise ValueError(
            "the graph of `session` is finalized, but an export adds to it. "
            "Use a plain tf.compat.v1.Session."
        )
    with graph.as_default():
        saver = to_save.saver or tf.compat.v1.train.Saver(sharded=True, allow_empty=True)
        if not isinstance(saver, tf.compat.v1.train.Saver):
            raise WrongTypeError(
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
            # Removes collections that the builder adds, which would spoil a second export of the
            # graph.
            for key in (_saved_model.MAIN_OP_KEY, _saved_model.ASSETS_KEY, _TRAIN_OP_KEY):
                graph.clear_collection(key)


def _check_assets(assets: Sequence[tf.Tensor]) -> None:
    """Raises ValueError if an asset is missing, which the builder would skip silently."""
    for asset in assets:
        path = tf.get_static_value(asset)
        if path is not None and not tf.io.gfile.exists(tf.compat.as_str_any(path.item())):
            raise ValueError(
                f"the vocabulary file {path.item()!r} (tensor {asset.name!r}) no longer exists. "
                "Restore it, so that the export can copy it."
            )
