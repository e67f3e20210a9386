"""Writes SavedModels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator.config.checks import check_instance
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
        graph: the graph, which is not finalized.
        signatures: maps names to SignatureDefs.
        tag: the tag by which a loader selects the graph.
        saver: a tf.compat.v1.train.Saver of the variables.
        main_op: the op that a loader runs after restoring the variables.
        train_op: the op of one training step, for loaders that train, or None.
    """

    graph: tf.Graph
    signatures: Mapping[str, Any]
    tag: str
    saver: Any
    main_op: tf.Operation
    train_op: tf.Operation | None = None


def write_saved_models(
    export_dir_base: str,
    session: tf.compat.v1.Session,
    graphs: Sequence[GraphToSave],
    *,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    strip_default_attrs: bool = True,
) -> bytes:
    """Writes a SavedModel of one or more graphs, which share the variables of the first.

    The graphs hold no device names. Vocabulary files (the collection ASSET_FILEPATHS) are copied to
    `assets`.

    Args:
        export_dir_base: the parent of the numbered directory, which is written atomically.
        session: a session on the first graph, with the variables' values.
        graphs: the graphs, at least one.
        assets_extra: files to copy into `assets.extra`: maps destinations there to source paths.
        as_text: whether to write `saved_model.pbtxt` rather than `saved_model.pb`.
        strip_default_attrs: whether to omit attributes that have default values, so that older
          TensorFlow versions can read the graph.

    Returns:
        The path of the numbered directory.

    Raises:
        ValueError: a path is wrong, or a vocabulary file is missing.
        TypeError: a saver is not a Saver.
    """
    base = make_base_path(export_dir_base)
    extra = make_extra_assets(assets_extra)

    def write(directory: str) -> None:
        builder = _saved_model.Builder(directory)
        add_first = functools.partial(builder.add_meta_graph_and_variables, session)
        for graph in graphs:
            add = add_first if graph is graphs[0] else builder.add_meta_graph
            _add_graph(add, graph, strip_default_attrs)
        builder.save(as_text)
        write_extra_assets(extra, directory)

    path = write_numbered_dir(base, write)
    say("SavedModel written to %s", path)
    return tf.compat.as_bytes(path)


class _SaverWithoutDevices:
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


def _add_graph(add: Callable[..., None], to_save: GraphToSave, strip_default_attrs: bool) -> None:
    """Adds a graph to a SavedModel by a method of its builder."""
    graph, saver = to_save.graph, to_save.saver
    rule = "a tf.compat.v1.train.Saver, or left out to save all variables"
    check_instance("Scaffold.saver", saver, tf.compat.v1.train.Saver, rule)
    assets = graph.get_collection(tf.compat.v1.GraphKeys.ASSET_FILEPATHS)
    _check_assets(assets)
    with graph.as_default():
        if to_save.train_op is not None:
            graph.add_to_collection(_TRAIN_OP_KEY, to_save.train_op)
        try:
            add(
                [to_save.tag],
                signature_def_map=dict(to_save.signatures),
                assets_collection=assets,
                clear_devices=True,
                main_op=to_save.main_op,
                strip_default_attrs=strip_default_attrs,
                saver=_SaverWithoutDevices(saver),
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
                f"The vocabulary file {path.item()!r} (tensor {asset.name!r}) no longer exists. "
                "Restore it, so that the export can copy it."
            )
