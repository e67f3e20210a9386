"""`model_to_estimator`: an Estimator from a compiled Keras model."""

from __future__ import annotations

import importlib.util
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.keras.keras_model_fn import make_model_fn
from estimator.keras.keras_source import KerasSource
from estimator.keras.keras_weights import read_weights


def model_to_estimator(
    keras_model: Any = None,
    keras_model_path: str | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | None = None,
    config: RunConfig | None = None,
    checkpoint_format: str | None = None,
    metric_names_map: Mapping[str, str] | None = None,
    export_outputs: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Estimator:
    """Returns an Estimator that trains a copy of a compiled Keras model.

    Training starts from the weights that the model has now, with a new state of the optimizer; the
    model itself stays as it is. See `load_weights` for the way back.

    Checkpoints go by the names of the model, its layers and its optimizer. Keras numbers those that
    are not named, throughout the process: to build the model twice in one process, name them.

    The features that `input_fn` gives are what the model is called with; a dict is matched to the
    inputs of a functional model by name. For weights of examples, the features are a dict with
    exactly the keys "features" and "sample_weights".

    Args:
      keras_model: a compiled and built model of Keras 3 or tf-keras. One that is neither functional
        nor sequential is copied by its `get_config` and `from_config`.
      keras_model_path: instead of `keras_model`, the path that a model's `save` wrote: a file, or
        the directory of a SavedModel of tf-keras.
      custom_objects: classes and functions by name, as Keras needs them to copy or load the model.
      model_dir: see `Estimator`.
      config: see `Estimator`.
      checkpoint_format: "saver" or None: checkpoints have variables by name. "checkpoint", the
        format of `tf.train.Checkpoint`, is not supported.
      metric_names_map: new names for the results of `evaluate`. A metric is called by the string,
        or by the function's or object's name, that `compile` was given, such as "accuracy", or
        "out_1_accuracy" for one of several outputs. For a model of tf-keras, the names that its own
        `evaluate` returns can be used as well.
      export_outputs: maps names of outputs to classes of ExportOutput: signatures besides
        "serving_default", which has all outputs.

    Raises:
      TypeError: `keras_model` is not a Keras model.
      ValueError: not exactly one of `keras_model` and `keras_model_path` is given; or the model is
        not compiled or not built, has a stateful layer, or a `compile` or `train_step` of its own.
    """
    if (keras_model is None) == (keras_model_path is None):
        raise ValueError(
            f"Pass exactly one of `keras_model` ({keras_model!r}) and `keras_model_path` "
            f"({keras_model_path!r})."
        )
    if checkpoint_format not in (None, "saver"):
        raise ValueError(
            f"`checkpoint_format` ({checkpoint_format!r}) must be 'saver' or None. To put a "
            "trained checkpoint into a Keras model, call `estimator.keras.load_weights`."
        )
    if keras_model is None:
        keras_model = _load_model(str(keras_model_path), custom_objects)
    source = KerasSource(keras_model, custom_objects or {})
    model_fn = make_model_fn(source, metric_names_map or {}, export_outputs or {})
    return Estimator(model_fn, model_dir, config)


def load_weights(model: Any, model_dir: str) -> None:
    """Puts the newest checkpoint of an Estimator made by `model_to_estimator` into a Keras model.

    Args:
      model: a model of the same structure, built; its weights are replaced.
      model_dir: the directory that the Estimator was trained in.

    Raises:
      TypeError: `model` is not a Keras model.
      ValueError: there is no such checkpoint, or its weights have other shapes.
    """
    if not hasattr(model, "set_weights"):
        raise WrongTypeError(f"`model` ({model!r}) must be a Keras model.")
    weights = read_weights(model_dir)
    try:
        model.set_weights(weights)
    except ValueError as error:
        raise ValueError(
            f"`model` ({model.name!r}) does not have the weights of the checkpoint in `model_dir` "
            f"({model_dir!r}): {error} Pass a model of the same structure."
        ) from error


def _load_model(path: str, custom_objects: Mapping[str, Any] | None) -> Any:
    if tf.io.gfile.isdir(path) or _is_of_tf_keras(path):
        import tf_keras as keras
    else:
        import keras  # Not tf.keras, which may be tf-keras.

    return keras.models.load_model(path, custom_objects=custom_objects)


def _is_of_tf_keras(path: str) -> bool:
    """Returns whether a model's file names a version of Keras before 3, and tf-keras is there."""
    if importlib.util.find_spec("tf_keras") is None or not os.path.isfile(path):
        return False
    import h5py

    version = ""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if "metadata.json" in file.namelist():
                version = json.loads(file.read("metadata.json")).get("keras_version", "")
    elif h5py.is_hdf5(path):
        with h5py.File(path) as file:
            version = tf.compat.as_str(file.attrs.get("keras_version", ""))
    return version.startswith("2.")
