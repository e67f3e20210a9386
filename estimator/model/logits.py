"""Calls a `logit_fn`, the part of a `model_fn` that computes logits from features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from estimator.config.checks import WrongTypeError, arguments_named, arguments_needed, parameters_of

_ARGUMENTS = ("features", "mode", "params", "config")


def call_logit_fn(
    logit_fn: Callable, features: Any, mode: str, params: Mapping[str, Any] | None, config: Any
) -> tf.Tensor | dict[str, tf.Tensor]:
    """Calls `logit_fn` with only those of the other arguments that it names.

    Args:
      logit_fn: takes `features`, and any of `mode`, `params`, `config`.
      features: the features that `model_fn` was called with.
      mode: a ModeKeys value.
      params: passed on.
      config: passed on.

    Returns:
      The logits: a tensor, or a dict of name to tensor.

    Raises:
      TypeError: `logit_fn` is not callable.
      ValueError: it takes other arguments, or returns something else.
    """
    if not callable(logit_fn):
        raise WrongTypeError(
            f"`logit_fn` ({logit_fn!r}) must be a function that returns logits. It takes "
            "`features` and, if it needs them, `mode`, `params` and `config`."
        )
    parameters = parameters_of("logit_fn", logit_fn)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_features = takes_any or "features" in parameters
    if arguments_needed("logit_fn", logit_fn, _ARGUMENTS) or not takes_features:
        names = ", ".join(parameters)
        raise ValueError(
            f"`logit_fn` takes ({names}). It must take `features`, and may take "
            "`mode`, `params` and `config`; bind others with functools.partial."
        )
    others = {"mode": mode, "params": params, "config": config}
    taken = arguments_named("logit_fn", logit_fn, [*others])
    logits = logit_fn(features=features, **{name: others[name] for name in taken})
    if not _are_logits(logits):
        raise ValueError(
            f"`logit_fn` returned {logits!r}. It must return a tensor, or a dict whose keys are "
            "strings and whose values are tensors."
        )
    return logits


def _are_logits(value: Any) -> bool:
    if not isinstance(value, dict):
        return isinstance(value, tf.Tensor)
    return all(isinstance(k, str) and isinstance(v, tf.Tensor) for k, v in value.items())
