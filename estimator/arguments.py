"""What the verbs check at the door, before anything is built or written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.config.run_config import RunConfig
from estimator.spec import ModeKeys

Listener = tf.compat.v1.train.CheckpointSaverListener


def check_positive(argument: str, value: Any) -> None:
    """Raises unless `value` is None or an integer of at least 1."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{argument}` ({value!r}) must be an integer, or None.")
    if value < 1:
        raise ValueError(f"`{argument}` ({value}) must be at least 1; leave it out for no limit.")


def check_steps(steps: Any, max_steps: Any) -> None:
    """Raises unless at most one of the two is given, and it is positive."""
    check_positive("steps", steps)
    check_positive("max_steps", max_steps)
    if steps is not None and max_steps is not None:
        raise ValueError(
            f"`steps` ({steps}) and `max_steps` ({max_steps}) exclude each other: `steps` is how "
            "many more, `max_steps` is the global step to stop at. Pass one of them."
        )


def check_params(params: Any) -> None:
    """Raises unless `params` is None or a mapping."""
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"`params` ({params!r}) must be a dict, or None.")


def checked_config(config: Any) -> RunConfig:
    """The config, or the default one."""
    if config is None:
        return RunConfig()
    if not isinstance(config, RunConfig):
        raise TypeError(f"`config` ({config!r}) must be an estimator.RunConfig, or None.")
    return config


def checked_model_dir(model_dir: Any, config_model_dir: str | None) -> str | None:
    """The directory that the argument or the config names; None if neither does.

    Raises:
      TypeError: it is no path.
      ValueError: both name one and they differ, or it is a file, or cannot be written to.
    """
    if model_dir is not None and not isinstance(model_dir, str | os.PathLike):
        raise TypeError(f"`model_dir` ({model_dir!r}) must be a path, or None.")
    path = os.fspath(model_dir) if model_dir is not None else None
    if path and config_model_dir and path != config_model_dir:
        raise ValueError(
            f"`model_dir` ({path!r}) and `config.model_dir` ({config_model_dir!r}) differ. Pass "
            "one of them."
        )
    path = path or config_model_dir
    if path is None:
        return None
    if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
        raise ValueError(f"`model_dir` ({path!r}) is a file. It must be a directory.")
    return path


def check_writable(model_dir: str) -> None:
    """Raises if files cannot be made in `model_dir`, which need not be there yet."""
    try:
        tf.io.gfile.makedirs(model_dir)
    except tf.errors.OpError as error:
        raise _not_writable(model_dir) from error
    if "://" not in model_dir and not os.access(model_dir, os.W_OK | os.X_OK):
        raise _not_writable(model_dir)


def _not_writable(model_dir: str) -> ValueError:
    return ValueError(
        f"`model_dir` ({model_dir!r}) cannot be written to. Pass a directory that this user may "
        "write to."
    )


def checked_listeners(listeners: Any) -> list[Listener]:
    """The listeners as a list; raises if one is no listener."""
    if listeners is None:
        return []
    if not isinstance(listeners, list | tuple):
        raise TypeError(
            f"`saving_listeners` ({listeners!r}) must be a list of CheckpointSaverListeners."
        )
    for listener in listeners:
        if not isinstance(listener, Listener):
            raise TypeError(
                f"`saving_listeners` holds {listener!r}, which is no "
                "tf.compat.v1.train.CheckpointSaverListener. Derive its class from that one."
            )
    return list(listeners)


def check_name(name: Any) -> None:
    """Raises unless `name` can name an evaluation's directory inside `model_dir`."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"`name` ({name!r}) must be a string, or None.")
    if os.path.isabs(name) or ".." in name.replace("\\", "/").split("/"):
        raise ValueError(f"`name` ({name!r}) must not lead out of `model_dir`.")


def checked_predict_keys(keys: Any, predictions: Any) -> list[str] | None:
    """The keys as a list; raises if the predictions lack them all."""
    if keys is None:
        return None
    keys = [keys] if isinstance(keys, str) else list(keys)
    if not isinstance(predictions, dict):
        raise ValueError(
            f"`predict_keys` ({keys}) needs predictions that are a dict; `model_fn` returned one "
            "tensor. Leave `predict_keys` out."
        )
    unknown = [key for key in keys if key not in predictions]
    if unknown or not keys:
        raise ValueError(
            f"`predict_keys` ({keys}) must name some of the predictions: {sorted(predictions)}."
        )
    return keys


def check_first_dimensions(batch: Mapping[str, Any]) -> None:
    """Raises unless all arrays of a batch of predictions have as many rows."""
    rows = {key: np.shape(value)[:1] for key, value in batch.items()}
    if len(set(rows.values())) > 1 or () in rows.values():
        shapes = ", ".join(f"{key}: {np.shape(value)}" for key, value in batch.items())
        raise ValueError(
            f"The predictions have different first dimensions ({shapes}), so they cannot be taken "
            "apart into examples. Pass `yield_single_examples=False`."
        )


def check_export(export_dir_base: Any, receiver_fn: Any, mode: Any) -> None:
    """Raises if an argument of `export_saved_model` is wrong."""
    if not isinstance(export_dir_base, str | os.PathLike) or not os.fspath(export_dir_base):
        raise TypeError(f"`export_dir_base` ({export_dir_base!r}) must be a path.")
    if not callable(receiver_fn):
        raise TypeError(
            f"`serving_input_receiver_fn` ({receiver_fn!r}) must be a function that returns a "
            "ServingInputReceiver."
        )
    if mode != ModeKeys.PREDICT:
        raise ValueError(
            f"`experimental_mode` ({mode!r}) must be ModeKeys.PREDICT: only the serving graph can "
            "be exported."
        )


def check_tpu_arguments(
    params: Any, use_tpu: Any, batch_axis: Sequence[int] | None, export_to_cpu: Any
) -> None:
    """Raises if an argument that only TPUEstimator has is wrong."""
    if use_tpu:
        raise ValueError(
            "`use_tpu=True` needs a TPU, and there is none. Leave it out (or pass "
            "`use_tpu=False`): the strategy of the RunConfig then decides where the model runs, "
            'as in RunConfig(strategy="mirrored").'
        )
    if isinstance(params, Mapping) and "batch_size" in params:
        raise ValueError(
            f"`params` must not hold \"batch_size\" ({params['batch_size']!r}): it is filled in "
            "from `train_batch_size`, `eval_batch_size` and `predict_batch_size`."
        )
    if batch_axis is not None and any(axis != 0 for axis in batch_axis):
        raise ValueError(
            f"`batch_axis` ({batch_axis!r}) must be zeros: batches are along the first dimension."
        )
    if not export_to_cpu:
        raise ValueError(
            "`export_to_cpu` (False) leaves nothing to export: there is no TPU. Leave it out."
        )
