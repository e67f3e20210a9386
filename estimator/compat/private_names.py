"""Names in TensorFlow's private modules that old programs and packages use, tf-slim among them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import types
from typing import Any

import tensorflow as tf

from estimator._tf.api_modules import supplied
from estimator.compat.modules import TableModule

# By the module that TensorFlow has removed them from: names of `tf.compat.v1`; "old=new" where the
# name has changed.
_MOVED = {
    "framework.graph_util": "convert_variables_to_constants="
    "graph_util.convert_variables_to_constants extract_sub_graph=graph_util.extract_sub_graph "
    "must_run_on_cpu=graph_util.must_run_on_cpu",
    "framework.ops": "IndexedSlices SparseTensor Tensor register_tensor_conversion_function",
    "ops.array_ops": "stack unstack",
    "ops.control_flow_ops": "Assert case cond while_loop",
    "ops.variable_scope": "disable_resource_variables enable_resource_variables "
    "resource_variables_enabled variable=Variable",
    "ops.variables": "VariableV1=Variable",
    "pywrap_tensorflow": "NewCheckpointReader=train.NewCheckpointReader",
    "util.nest": "is_sequence=nest.is_nested",
}
_NORMALIZATION = "tensorflow.python.layers.normalization"


def supply(undo: contextlib.ExitStack) -> None:
    """Gives the modules those of the names that they have no longer, until `undo` is closed."""
    for path, entries in _MOVED.items():
        module = _find(f"tensorflow.python.{path}")
        for entry in entries.split() if module else ():
            name, _, today = entry.partition("=")
            if not hasattr(module, name):
                value = functools.reduce(getattr, (today or name).split("."), tf.compat.v1)
                undo.enter_context(supplied(module, name, value))
    # TensorFlow looks for the layers where tf-keras has them no longer.
    if layers := _find(_NORMALIZATION):
        names = ("BatchNormalization", "batch_normalization")
        sources = {name: functools.partial(_of_tf_keras, name) for name in names}
        module = TableModule(_NORMALIZATION, sources, "{} is not in tf-keras.".format)
        undo.enter_context(supplied(layers, "normalization", module))


def _find(module: str) -> types.ModuleType | None:
    """Returns a private module; None in a version of TensorFlow without it."""
    is_there = importlib.util.find_spec(module) is not None
    return importlib.import_module(module) if is_there else None


def _of_tf_keras(name: str) -> Any:
    try:
        module = importlib.import_module("tf_keras.src.legacy_tf_layers.normalization")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "TensorFlow 1's batch normalization, which tf-slim uses, needs tf-keras: pip install "
            "tf-keras."
        ) from error
    return getattr(module, name)
