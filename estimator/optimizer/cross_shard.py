"""Implements `CrossShardOptimizer`: one optimizer over all replicas, v1 or Keras."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError, check_int, check_positive
from estimator.optimizer.accumulation import build_accumulation
from estimator.optimizer.clipping import clip_by_reduced_norm

_REDUCTIONS = {
    "mean": "mean",
    "sum": "sum",
    tf.compat.v1.losses.Reduction.MEAN: "mean",
    tf.compat.v1.losses.Reduction.SUM: "sum",
}

# Optimizers whose own `apply_gradients` is meant to be called on each replica.
_KNOW_REPLICAS = (tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer,)


class CrossShardOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps an optimizer so that it applies the mean (or the sum) of the replicas' gradients.

    With the mean, N replicas with batch size b train to the same weights as one replica with batch
    size N * b, up to float rounding. It works with every strategy and device.
    """

    def __init__(
        self,
        opt: Any,
        reduction: str = tf.compat.v1.losses.Reduction.MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Any = None,
        *,
        accumulate_steps: int = 1,
        clip_norm: float | None = None,
    ) -> None:
        """Wraps the optimizer; adds no ops.

        Args:
          opt: a `tf.compat.v1.train.Optimizer`, or a Keras 3 or tf-keras optimizer.
          reduction: `tf.compat.v1.losses.Reduction.MEAN` (or "mean"), or SUM (or "sum").
          name: accepted for compatibility; names no variable.
          group_assignment: groups of TPU cores to reduce within; only None is supported.
          accumulate_steps: the number of consecutive batches whose mean gradient is applied once.
            Pass the `global_step`, which then counts these updates, as do all intervals. At the end
            of the input, the mean is over the batches there are.
          clip_norm: the maximum norm of the gradients over all variables together, after reduction
            and accumulation; larger gradients are scaled down. None: no limit.

        Raises:
          TypeError: `opt` is not an optimizer, or `accumulate_steps` or `clip_norm` not a number.
          ValueError: `reduction` has another value, `group_assignment` is given, or
            `accumulate_steps` or `clip_norm` is not positive.
        """
        if not callable(getattr(opt, "apply_gradients", None)):
            raise WrongTypeError(
                f"`opt` ({opt!r}) must be a tf.compat.v1.train.Optimizer or a Keras optimizer."
            )
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f"`reduction` ({reduction!r}) must be Reduction.MEAN or Reduction.SUM of "
                "tf.compat.v1.losses."
            )
        if group_assignment is not None:
            raise ValueError(
                f"`group_assignment` ({group_assignment!r}) is not supported: gradients are "
                "reduced over all replicas. Leave it out."
            )
        check_int("accumulate_steps", accumulate_steps)
        if clip_norm is not None:
            check_positive("clip_norm", clip_norm)
        super().__init__(use_locking=False, name=name)
        self._accumulate_steps = int(accumulate_steps)
        self._clip_norm = clip_norm
        self._opt = opt
        self._reduction = _REDUCTIONS[reduction]

    def maker(self) -> Callable[[], CrossShardOptimizer]:
        """Returns a function that returns this optimizer for a graph; see `optimizer_maker`."""
        make = optimizer_maker(self._opt)

        def make_wrapped() -> CrossShardOptimizer:
            other = copy.copy(self)
            other.__dict__["_opt"] = make()
            return other

        return make_wrapped

    def compute_gradients(
        self, loss: tf.Tensor, var_list: Iterable[tf.Variable] | None = None, **kwargs: Any
    ) -> list[tuple[Any, tf.Variable]]:
        """Returns this replica's gradients, not yet reduced over replicas; see the base class.

        For a Keras optimizer that divides gradients by a loss scale, they are those of the scaled
        loss.
        """
        if self._is_v1:
            return self._opt.compute_gradients(loss, var_list=var_list, **kwargs)
        loss = _tf.scaled_loss(self._opt, loss)
        return super().compute_gradients(loss, var_list=var_list, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, tf.Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation:
        """Reduces the gradients over the replicas, applies them, and counts the step.

        Args:
          grads_and_vars: this replica's (gradient, variable) pairs; a gradient may be None.
          global_step: incremented by one, if given.
          name: the name of the returned op.

        Returns:
          An op that runs after all of this.

        Raises:
          TypeError: `global_step` is not a variable.
        """
        if global_step is not None and not hasattr(global_step, "assign_add"):
            raise WrongTypeError(
                f"`global_step` ({global_step!r}) must be a variable, such as that of "
                "tf.compat.v1.train.get_global_step(). Pass the variables to train as `var_list`."
            )
        if self._accumulate_steps == 1:
            return self._apply(grads_and_vars, global_step, name)

        def apply(pairs: list) -> tf.Operation:
            return self._apply(pairs, global_step, None)

        return build_accumulation(
            self._accumulate_steps, self.get_name(), grads_and_vars, apply, global_step
        )

    def _apply(
        self, grads_and_vars: Iterable, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation:
        grads_and_vars = list(grads_and_vars)
        if self._is_v1:
            grads_and_vars = [(grad, _tf.variable_of(var)) for grad, var in grads_and_vars]
        if self._clip_norm is not None:
            clip_norm = self._clip_norm * _tf.loss_scale(self._opt)
            grads_and_vars = clip_by_reduced_norm(grads_and_vars, clip_norm, self._reduction)
        by_itself, reduction = _applies_by_itself(self._opt), self._reduction
        gradients = [grad for grad, _ in grads_and_vars if grad is not None]
        is_on_tpu = any(map(_tf.is_in_tpu_program, gradients))
        if by_itself and is_on_tpu:
            grads_and_vars, reduction = _reduced_on_tpu(grads_and_vars, reduction), "mean"
        with _tf.gradient_reduction(reduction):
            if by_itself and not is_on_tpu:
                return self._apply_once(list(grads_and_vars), global_step, name)
            if self._is_v1:
                return self._opt.apply_gradients(grads_and_vars, global_step, name)
            applied = self._opt.apply_gradients(list(grads_and_vars))
        # Most of Keras's optimizers return nothing to wait for; the train step adds their updates.
        done: list[Any] = [applied] if isinstance(applied, tf.Operation | tf.Tensor) else []
        if global_step is not None:
            done.append(global_step.assign_add(1))
        return tf.group(*done, name=name)

    def _apply_once(
        self,
        grads_and_vars: list[tuple[Any, tf.Variable]],
        global_step: tf.Variable | None,
        name: str | None,
    ) -> tf.Operation:
        """Reduces the gradients, and calls an `apply_gradients` that ignores replicas once for all.

        It may create variables, assign to them, and change gradients: it sees one gradient for all
        replicas, and one variable for all its copies.
        """
        strategy = tf.distribute.get_strategy()
        factor = 1.0 if self._reduction == "sum" else 1.0 / strategy.num_replicas_in_sync
        parts = [_tf.scaled(grad, factor) for grad, _ in grads_and_vars]
        there = [i for i, part in enumerate(parts) if part is not None]

        def apply(strategy: tf.distribute.Strategy, parts: list, variables: list) -> tf.Operation:
            pairs = [(parts[i], variables[i]) for i in there]
            sums = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
            local = [strategy.experimental_local_results(total)[0] for total in sums]
            gradients = dict(zip(there, local, strict=True))
            reduced = [(gradients.get(i), variable) for i, variable in enumerate(variables)]
            return self._opt.apply_gradients(reduced, global_step=global_step, name=name)

        variables = [variable for _, variable in grads_and_vars]
        return tf.distribute.get_replica_context().merge_call(apply, args=(parts, variables))

    def get_slot(self, var: tf.Variable, name: str) -> tf.Variable | None:
        """Returns the wrapped v1 optimizer's slot variable."""
        return self._opt.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Returns the wrapped v1 optimizer's slot names."""
        return self._opt.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Returns the wrapped optimizer's variables."""
        variables = self._opt.variables  # A property of Keras's optimizers, but the legacy ones.
        return variables() if callable(variables) else variables

    @property
    def _is_v1(self) -> bool:
        return isinstance(self._opt, tf.compat.v1.train.Optimizer)


def _applies_by_itself(opt: Any) -> bool:
    """Returns whether `opt` is a v1 optimizer with its own `apply_gradients`, unaware of replicas.

    Where one program is built for all replicas, nothing else would detect this.
    """
    base = tf.compat.v1.train.Optimizer
    if not isinstance(opt, base) or isinstance(opt, _KNOW_REPLICAS + (CrossShardOptimizer,)):
        return False
    return type(opt).apply_gradients is not base.apply_gradients


def _reduced_on_tpu(
    grads_and_vars: Iterable[tuple[Any, tf.Variable]], reduction: str
) -> list[tuple[Any, tf.Variable]]:
    """Sums the gradients over replicas on the TPU, for an optimizer that takes their mean."""
    factor = 1.0
    if reduction == "mean":
        factor /= tf.distribute.get_strategy().num_replicas_in_sync

    def reduced(grad: Any) -> Any:
        dense = tf.convert_to_tensor(grad) * factor
        return tf.compat.v1.tpu.cross_replica_sum(dense)

    return [(None if grad is None else reduced(grad), var) for grad, var in grads_and_vars]


def optimizer_maker(optimizer: Any) -> Callable[[], Any]:
    """Returns a function that returns the same optimizer for a graph.

    A Keras optimizer belongs to the first graph that it is used in, so each gets a copy. One of
    `tf.compat.v1.train` keeps its variables by graph, and is returned itself.

    Raises:
      ValueError: a Keras optimizer cannot be copied.
    """
    if isinstance(optimizer, CrossShardOptimizer):
        return optimizer.maker()
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return lambda: optimizer
    template = _tf.copied_legacy_optimizer(optimizer)
    if template is not None:
        return lambda: _tf.copied_legacy_optimizer(template)
    config = _config_of(optimizer)
    return lambda: type(optimizer).from_config(dict(config))


def _config_of(optimizer: Any) -> dict[str, Any]:
    """Returns the config of a Keras optimizer, with its own schedule of the learning rate.

    Raises:
      ValueError: the config cannot be read, or lacks an argument of the optimizer's class.
    """
    reason = f"The optimizer {optimizer!r} cannot be copied, as each graph needs its own"
    other_way = "or pass a function that returns the optimizer, where one is taken."
    try:
        config = dict(optimizer.get_config())
    except (NotImplementedError, TypeError) as error:  # The second: in another graph.
        raise ValueError(
            f"{reason}: it was made in a graph, or its class or schedule has no `get_config` "
            f"({error}). Make it outside of graphs and add that method, {other_way} Without eager "
            'execution, set TF_USE_LEGACY_KERAS=1, and pass a name such as "sgd" or one of '
            "`tf.keras.optimizers.legacy`."
        ) from error
    for name, parameter in inspect.signature(type(optimizer)).parameters.items():
        is_named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        # Without such an attribute, the value is not known: an optimizer is no default.
        has_default = getattr(optimizer, name, optimizer) is parameter.default
        if is_named and name not in config and not has_default:
            raise ValueError(
                f"{reason}: what its `get_config` returns lacks {name!r}. Return it there, "
                f"{other_way}"
            )
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(config.get("learning_rate"), dict) and callable(schedule):
        config["learning_rate"] = schedule  # Its class need not be registered with Keras.
    return config
