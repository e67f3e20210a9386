"""`tf.contrib.layers.optimize_loss`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.canned.v1_models import OPTIMIZERS
from estimator.config.checks import check_choice

_V1 = tf.compat.v1
_OPTIMIZERS = {
    **OPTIMIZERS,
    "Momentum": lambda learning_rate: _V1.train.MomentumOptimizer(learning_rate, momentum=0.9),
}


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
      summaries: has "learning_rate" or "loss" if these are to be written.
      colocate_gradients_with_ops: no effect.
      increment_global_step: whether the step counts.

    Raises:
      ValueError: the optimizer's name is unknown.
      NotImplementedError: a `gradient_noise_scale` is given.
    """
    del colocate_gradients_with_ops
    if gradient_noise_scale is not None:
        raise NotImplementedError(
            f"`gradient_noise_scale` ({gradient_noise_scale}) must be None. Add the noise in "
            "`clip_gradients`, which may be a function of the (gradient, variable) pairs."
        )
    step = _V1.train.get_or_create_global_step() if global_step is None else global_step
    with _V1.variable_scope(name, "OptimizeLoss", [loss]):
        updates = _V1.get_collection(_V1.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        with tf.control_dependencies(list(updates)):
            loss = tf.identity(loss)
        if learning_rate is not None and learning_rate_decay_fn is not None:
            learning_rate = learning_rate_decay_fn(learning_rate, step)
        _write(("learning_rate", "loss") if summaries is None else summaries, learning_rate, loss)
        made = _make_optimizer(optimizer, learning_rate)
        chosen = _V1.trainable_variables() if variables is None else variables
        pairs = made.compute_gradients(loss, chosen)
        pairs = _clipped(_multiplied(pairs, gradient_multipliers or {}), clip_gradients)
        train_op = made.apply_gradients(pairs, step if increment_global_step else None, "train")
        with tf.control_dependencies([train_op]):
            return tf.identity(loss)


def _make_optimizer(optimizer: Any, learning_rate: Any) -> Any:
    """Returns an optimizer, given one, its name, its class, or a function of the learning rate.

    Raises:
      ValueError: the name is unknown.
    """
    if isinstance(optimizer, str):
        check_choice("optimizer", optimizer, _OPTIMIZERS)
        return _OPTIMIZERS[optimizer](learning_rate=learning_rate)
    if isinstance(optimizer, type):
        return optimizer(learning_rate=learning_rate)
    if callable(optimizer) and not hasattr(optimizer, "apply_gradients"):
        return optimizer() if learning_rate is None else optimizer(learning_rate)
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


def _write(summaries: Sequence[str], learning_rate: Any, loss: tf.Tensor) -> None:
    if "learning_rate" in summaries and learning_rate is not None:
        _V1.summary.scalar("learning_rate", learning_rate)
    if "loss" in summaries:
        _V1.summary.scalar("loss", loss)
