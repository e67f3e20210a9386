"""Checks the arguments of the estimators' methods, before anything is built or written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from estimator.config.checks import (
    WrongTypeError,
    check_bool,
    check_instance,
    check_int,
    check_no_pattern,
    check_type,
    checked_limit,
)
from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import TPUConfig
from estimator.console import say
from estimator.export.directory import make_base_path, make_extra_assets
from estimator.export.receivers import check_receiver_fn
from estimator.spec import ModeKeys

Listener: TypeAlias = tf.compat.v1.train.CheckpointSaverListener


def checked_steps(steps: Any, max_steps: Any) -> tuple[int | None, int | None]:
    """Returns both; raises an error unless at most one is given, and it is positive."""
    steps = checked_limit("steps", steps)
    max_steps = checked_limit("max_steps", max_steps)
    if steps is not None and max_steps is not None:
        raise ValueError(
            f"`steps` ({steps}) and `max_steps` ({max_steps}) exclude each other: `steps` is how "
            "many more, `max_steps` is the global step to stop at. Pass one of them."
        )
    return steps, max_steps


# The members that subclasses of a tf.estimator must not override, but for those that
# `old_methods` refuses.
_MEMBERS = {
    "_call_input_fn",
    "_call_model_fn",
    "config",
    "eval_dir",
    "evaluate",
    "experimental_export_all_saved_models",
    "export_saved_model",
    "export_savedmodel",
    "get_variable_names",
    "get_variable_value",
    "model_dir",
    "params",
    "predict",
    "train",
}


def check_overrides(subclass: type, base: type) -> None:
    """Raises an error if `subclass` overrides a member that tf.estimator had.

    As in tf.estimator, only the instantiated class counts, not classes between the two.
    """
    if subclass is base:
        return
    overridden = sorted(_MEMBERS.intersection(vars(subclass)))
    if overridden:
        raise ValueError(
            f"{subclass.__name__} overrides {', '.join(overridden)} of {base.__name__}. A subclass "
            "must not override the members of an estimator: rename its own member, add a method of "
            "another name that calls the original, or pass hooks."
        )


def checked_config(config: Any) -> RunConfig:
    """Returns the checked config, or the default one."""
    if config is None:
        return RunConfig()
    rule = "an estimator.RunConfig, or None"
    if isinstance(config, TPUConfig):
        rule += ". Pass estimator.tpu.RunConfig(tpu_config=TPUConfig(...))"
    check_instance("config", config, RunConfig, rule)
    return config


def checked_model_dir(model_dir: Any, config_model_dir: str | None) -> str | None:
    """Returns the directory that the argument or the config names; None (or "") if neither does.

    Raises:
      TypeError: it is not a path.
      ValueError: both name one and they differ, or it is a file or below one.
    """
    check_type("model_dir", model_dir, str | os.PathLike, "a path, or None")
    path = os.fspath(model_dir) if model_dir is not None else None
    if path and config_model_dir and path.rstrip("/") != config_model_dir.rstrip("/"):
        raise ValueError(
            f"`model_dir` ({path!r}) and `config.model_dir` ({config_model_dir!r}) differ. Pass "
            "one of them."
        )
    path = path or config_model_dir
    if path is None:
        return None
    check_no_pattern("model_dir", path)
    found = _nearest_existing(path)
    if not tf.io.gfile.isdir(found):
        where = "is a file" if found == path else f"is below {found}, which is a file"
        raise ValueError(f"`model_dir` ({path!r}) {where}. It must be a directory, or not exist.")
    return path


def check_writable(model_dir: str) -> None:
    """Raises an error if files cannot be created in `model_dir`, which need not exist.

    It creates an unnamed file, because permission bits do not apply to root, nor show a read-only
    file system. Directories that are not local are not checked.
    """
    if "://" in model_dir:
        return
    try:
        with tempfile.TemporaryFile(dir=_nearest_existing(model_dir)):
            pass
    except OSError as error:
        raise ValueError(
            f"`model_dir` ({model_dir!r}) cannot be written to ({error.strerror}). Pass a "
            "directory that this user may write to."
        ) from error


def _nearest_existing(path: str) -> str:
    """Returns the path, or its nearest parent directory that exists."""
    while not tf.io.gfile.exists(path):
        above = os.path.dirname(path.rstrip("/")) or "."
        if above == path:  # A drive that Windows does not have.
            break
        path = above
    return path


def checked_listeners(listeners: Any) -> list[Listener]:
    """Returns the listeners as a list; raises an error if one is not a listener."""
    if listeners is None:
        return []
    check_instance(
        "saving_listeners", listeners, list | tuple, "a list of CheckpointSaverListeners"
    )
    for listener in listeners:
        if not isinstance(listener, tf.compat.v1.train.CheckpointSaverListener):
            raise WrongTypeError(
                f"`saving_listeners` holds {listener!r}, which is not an instance of "
                "tf.compat.v1.train.CheckpointSaverListener. Derive its class from that class, or "
                "pass a hook in `hooks`."
            )
    return list(listeners)


def check_predict_keys(keys: Any) -> None:
    """Raises an error unless `keys` is None, a key or a list of keys."""
    listed = [keys] if isinstance(keys, str) else keys
    if listed is None:
        return
    # A model of several heads names its predictions with tuples.
    if not isinstance(listed, Collection) or not all(isinstance(k, str | tuple) for k in listed):
        raise WrongTypeError(
            f"`predict_keys` ({keys!r}) must be a key of the predictions or a list of them, or "
            "None."
        )


def checked_predict_keys(keys: Any, predictions: Any) -> list[str] | None:
    """Returns the requested keys of the predictions, in order; raises an error if none fits."""
    if not keys:
        return None
    keys = [keys] if isinstance(keys, str) else list(keys)
    if not isinstance(predictions, Mapping):
        raise ValueError(
            f"`predict_keys` ({keys}) needs predictions that are a dict; `model_fn` returned one "
            "tensor. Leave `predict_keys` out."
        )
    found = [key for key in predictions if key in keys]
    if not found:
        raise ValueError(
            f"`predict_keys` ({keys}) must name some of the predictions: {sorted(predictions)}."
        )
    return found


# The first graph's variables are written, and only training has all of them.
MODES_TO_EXPORT = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def check_mode_to_export(argument: str, mode: Any) -> None:
    """Raises an error unless `mode` is a ModeKeys."""
    if mode not in MODES_TO_EXPORT:
        raise ValueError(f"`{argument}` ({mode!r}) must be ModeKeys.PREDICT, EVAL or TRAIN.")


def checked_receiver_fns(receiver_fns: Any) -> dict[str, tuple[str, Any]]:
    """Returns, by mode, the receiver function and its name in errors; without modes of None."""
    name = "input_receiver_fn_map"
    check_instance(
        name, receiver_fns, Mapping, "a dict from ModeKeys to functions that return input receivers"
    )
    for mode in receiver_fns:
        check_mode_to_export(f"a key of {name}", mode)
    given = {mode: function for mode, function in receiver_fns.items() if function is not None}
    if not given:
        raise ValueError(
            f"`{name}` ({receiver_fns!r}) must name at least one of ModeKeys, with a function."
        )
    return {mode: (f"{name}[{mode!r}]", function) for mode, function in given.items()}


def check_export(
    export_dir_base: Any,
    receiver_fns: Mapping[str, tuple[str, Any]],
    assets_extra: Any,
    as_text: Any,
) -> None:
    """Raises an error if an argument of `export_saved_model` is wrong."""
    check_instance("export_dir_base", export_dir_base, str | bytes | os.PathLike, "a path")
    make_base_path(export_dir_base)
    make_extra_assets(assets_extra)
    check_bool("as_text", as_text)
    for mode, (argument, receiver_fn) in receiver_fns.items():
        is_serving = mode == ModeKeys.PREDICT
        kind = "ServingInputReceiver" if is_serving else "SupervisedInputReceiver"
        check_receiver_fn(receiver_fn, argument, kind)


# What a TPUEstimator fills in, and what to do about an item of that name.
_FILLED_IN = {
    "batch_size": "it is filled in from `train_batch_size`, `eval_batch_size` and "
    "`predict_batch_size`",
    "context": "a TPUContext is filled in. Rename it",
}


def is_hparams(params: Any) -> bool:
    """Returns whether `params` has the methods of tf.contrib.training.HParams."""
    return hasattr(params, "set_hparam")


def check_tpu_arguments(
    params: Any, use_tpu: Any, batch_axis: Sequence[int] | None, export_to_cpu: Any
) -> None:
    """Raises an error if an argument that only TPUEstimator has is wrong."""
    if use_tpu is not None:
        check_bool("use_tpu", use_tpu)
    if not is_hparams(params):
        check_type("params", params, MutableMapping, "a dict, or None: its batch size is filled in")
    for name, instead in _FILLED_IN.items():
        if params is not None and name in params:
            raise ValueError(f'`params` must not hold "{name}" ({params.get(name)!r}): {instead}.')
    check_type("batch_axis", batch_axis, list | tuple, "a list of dimensions, or None")
    for place, axis in enumerate(batch_axis or ()):
        check_int(f"batch_axis[{place}]", axis, minimum=0)
    check_bool("export_to_cpu", export_to_cpu)
    if not export_to_cpu:
        raise ValueError(
            "`export_to_cpu` (False) leaves nothing to export: SavedModels are for CPUs and GPUs, "
            "also after training on a TPU. Leave it out."
        )


def check_tpu_switches(eval_on_tpu: Any, export_to_tpu: Any, api_version: Any) -> None:
    """Raises an error if an argument that has no effect without a TPU is wrong."""
    check_bool("eval_on_tpu", eval_on_tpu)
    check_bool("export_to_tpu", export_to_tpu)
    # An enum in TensorFlow 2.15.
    if isinstance(api_version, bool) or getattr(api_version, "value", api_version) not in (1, 2):
        raise ValueError(f"`export_saved_model_api_version` ({api_version!r}) must be 1 or 2.")


def check_no_embedding(embedding_config_spec: Any) -> None:
    """Raises an error if there is an `embedding_config_spec`."""
    if embedding_config_spec is not None:
        raise NotImplementedError(
            f"`embedding_config_spec` ({embedding_config_spec!r}) distributes tables over the "
            "cores of a TPU, which is not available. Leave it out, and look rows up in `model_fn`: "
            "tf.nn.embedding_lookup(tf.compat.v1.get_variable(...), ids)."
        )


def check_num_shards(num_shards: int | None, num_replicas: int) -> None:
    """Raises an error if `num_shards` contradicts the number of replicas that the config asks for.

    With one replica it is only logged, because programs written for a TPU say 8 even when they run
    without one.
    """
    if num_shards is None or num_shards == num_replicas:
        return
    if num_replicas > 1:
        raise ValueError(
            f"`num_shards` ({num_shards}) of the TPUConfig is the number of replicas, and the "
            f"strategy has {num_replicas}. Leave it out."
        )
    say("Ignoring `num_shards` (%d) of the TPUConfig: there is only one replica.", num_shards)
