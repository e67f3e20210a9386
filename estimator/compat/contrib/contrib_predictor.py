"""`tf.contrib.predictor`: predictors of SavedModels and of estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from estimator.export.predictor import Predictor, make_predictor

_DEFAULT = tf.compat.v1.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def from_saved_model(
    export_dir: Any,
    signature_def_key: str | None = None,
    signature_def: None = None,
    input_names: None = None,
    output_names: None = None,
    tags: None = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:
    """Makes a predictor of a SavedModel.

    Raises:
      NotImplementedError: another argument than `signature_def_key` and `config` is given.
    """
    if any(x is not None for x in (signature_def, input_names, output_names, tags, graph)):
        raise NotImplementedError(
            "from_saved_model takes `signature_def_key` and `config` here. Load other graphs with "
            "tf.compat.v1.saved_model.load."
        )
    return make_predictor(
        export_dir, signature=signature_def_key or _DEFAULT, session_config=config
    )


def from_estimator(
    estimator: Any,
    serving_input_receiver_fn: Callable,
    output_key: str | None = None,
    graph: None = None,
    config: Any = None,
) -> Predictor:
    """Makes a predictor of an estimator's newest checkpoint.

    Raises:
      NotImplementedError: a `graph` is given.
    """
    if graph is not None:
        raise NotImplementedError("from_estimator takes no `graph`: it makes one of its own.")
    key = output_key or _DEFAULT
    return make_predictor(
        estimator, serving_input_receiver_fn, signature=key, session_config=config
    )
