"""`tf.contrib.layers.optimize_loss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.canned.v1_models import OPTIMIZERS
from estimator.config.checks import WrongTypeError, check_choice

_V1 = tf.compat.v1
OPTIMIZER_CLS_NAMES = {
    **OPTIMIZERS,
    "Momentum": lambda learning_rate: _V1.train.MomentumOptimizer(learning_rate, momentum=0.9),
}
_DEFAULT_SUMMARIES = ("learning_rate", "loss", "global_gradient_norm")
OPTIMIZER_SUMMARIES = [*_DEFAULT_SUMMARIES, "gradients", "gradient_norm"]


def optimize_loss(
    loss: tf.Tensor,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Any = None,
    clip_gradients: float | Callable | None = None,
    learning_rate_decay_fn: Callable | None = None,
    update_ops: Sequence | None = None,
    variables: Sequence | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> tf.Tensor:
    """Returns the loss, which depends on a training step.

    Args:
      loss: a scalar.
      global_step: counts the steps; None for the graph's.
      learning_rate: a number, a tensor, or None if the optimizer has one.
      optimizer: a name, a class, an optimizer, or a function of the learning rate.
      gradient_noise_scale: must be None.
      gradient_multipliers: by variable or name, what its gradient is multiplied by.
      clip_gradients: the maximum norm of all gradients together, or a function of the
        (gradient, variable) pairs.
      learning_rate_decay_fn: from the rate and the global step to the rate.
      update_ops: run before the step; by default, all in the collection UPDATE_OPS.
      variables: by default, all trainable ones.
      name: the scope's name.
      summaries: of "learning_rate", "loss", "gradients", "gradient_norm" and
        "global_gradient_norm", those to write; by default, "loss", "learning_rate" and
        "global_gradient_norm".
      colocate_gradients_with_ops: no effect.
      increment_global_step: whether the step counts.

    Raises:
      ValueError: the optimizer's name or a summary's is unknown, or the optimizer needs a rate.
      TypeError: it is not an optimizer, or the function returns none.
      NotImplementedError: a `gradient_noise_scale` is given.
    """
    if gradient_noise_scale is not None:
        raise NotImplementedError(
            f"`gradient_noise_scale` ({gradient_noise_scale}) must be None. Add the noise in "
            "`clip_gradients`, which may be a function of the (gradient, variable) pairs."
        )
    summaries = _DEFAULT_SUMMARIES if summaries is None else summaries
    for one in summaries:
        check_choice("summaries", one, OPTIMIZER_SUMMARIES)
    step = _V1.train.get_or_create_global_step() if global_step is None else global_step
    with _V1.variable_scope(name, "OptimizeLoss", [loss]):
        updates = _V1.get_collection(_V1.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        with tf.control_dependencies(list(updates)):
            loss = tf.identity(loss)
        if learning_rate is not None and learning_rate_decay_fn is not None:
            learning_rate = learning_rate_decay_fn(learning_rate, step)
        made = _make_optimizer(optimizer, learning_rate)
        chosen = _V1.trainable_variables() if variables is None else variables
        pairs = made.compute_gradients(loss, chosen)
        given = _multiplied(pairs, gradient_multipliers or {})
        pairs = _clipped(given, clip_gradients)
        _write_numbers(summaries, learning_rate, loss)
        _write_gradients(summaries, pairs)
        if "global_gradient_norm" in summaries or "gradient_norm" in summaries:
            _V1.summary.scalar("global_norm/gradient_norm", _norm(given))
            if clip_gradients is not None:
                _V1.summary.scalar("global_norm/clipped_gradient_norm", _norm(pairs))
        train_op = made.apply_gradients(pairs, step if increment_global_step else None, "train")
        with tf.control_dependencies([train_op]):
            return tf.identity(loss)


def _make_optimizer(optimizer: Any, learning_rate: Any) -> Any:
    """Returns an optimizer, given one, its name, its class, or a function of the learning rate.

    Raises:
      ValueError: the name is unknown, or there is no learning rate for it or for the class.
      TypeError: it is not an optimizer, or the function returns none.
    """
    if learning_rate is None and isinstance(optimizer, str | type):
        raise ValueError(
            f"`learning_rate` must be given if `optimizer` ({optimizer!r}) is a name or a class."
        )
    if isinstance(optimizer, str):
        check_choice("optimizer", optimizer, OPTIMIZER_CLS_NAMES)
        return OPTIMIZER_CLS_NAMES[optimizer](learning_rate=learning_rate)
    if isinstance(optimizer, type):
        optimizer = optimizer(learning_rate=learning_rate)
    elif callable(optimizer) and not hasattr(optimizer, "compute_gradients"):
        optimizer = optimizer() if learning_rate is None else optimizer(learning_rate)
    if not hasattr(optimizer, "compute_gradients"):
        raise WrongTypeError(
            f"`optimizer` ({optimizer!r}) must be an optimizer of tf.train, its class, a function "
            f"of the learning rate, or a name: {', '.join(OPTIMIZER_CLS_NAMES)}."
        )
    return optimizer


def _multiplied(pairs: list, multipliers: Any) -> list:
    """Multiplies the gradients of some variables."""
    by_name = {getattr(key, "name", key): value for key, value in multipliers.items()}
    names = {variable.name: variable.name.removesuffix(":0") for _, variable in pairs}
    factors = {full: by_name.get(full, by_name.get(short)) for full, short in names.items()}
    return [
        (gradient if factors[v.name] is None else _tf.scaled(gradient, factors[v.name]), v)
        for gradient, v in pairs
    ]


def _clipped(pairs: list, clip: Any) -> list:
    if clip is None:
        return pairs
    if callable(clip):
        return clip(pairs)
    gradients, variables = zip(*pairs, strict=True)
    return list(zip(tf.clip_by_global_norm(gradients, clip)[0], variables, strict=True))


def _write_numbers(summaries: Sequence[str], learning_rate: Any, loss: tf.Tensor) -> None:
    if "learning_rate" in summaries and learning_rate is not None:
        _V1.summary.scalar("learning_rate", learning_rate)
    if "loss" in summaries:
        _V1.summary.scalar("loss", loss)


def _write_gradients(summaries: Sequence[str], pairs: list) -> None:
    """Writes a norm and a histogram for each gradient, as it is applied."""
    for gradient, variable in pairs:
        if gradient is None:
            continue
        name = variable.name.replace(":", "_")
        values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
        if "gradients" in summaries:
            _V1.summary.histogram(f"gradients/{name}", values)
        if "gradient_norm" in summaries:
            _V1.summary.scalar(f"gradient_norm/{name}", tf.linalg.global_norm([values]))


def _norm(pairs: list) -> tf.Tensor:
    return tf.linalg.global_norm([gradient for gradient, _ in pairs])
