"""`tf.contrib.opt`: optimizers with weight decay, for sparse gradients, and with averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1
_Adam: Any = _V1.train.AdamOptimizer
_Momentum: Any = _V1.train.MomentumOptimizer
_Optimizer: Any = _V1.train.Optimizer


class DecoupledWeightDecayExtension:
    """Shrinks variables by `weight_decay` times their value before each step.

    Of a variable with a sparse gradient, only the rows in the gradient shrink.

    As in Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        """Takes the optimizer's own arguments after the weight decay."""
        self._decay_var_list: Sequence | None = None
        self._weight_decay = weight_decay
        super().__init__(*args, **kwargs)

    def minimize(
        self, loss: Any, *args: Any, decay_var_list: Sequence | None = None, **kwargs: Any
    ) -> Any:
        """Adds a step; only the variables of `decay_var_list` decay, if it is given."""
        self._decay_var_list = decay_var_list
        return super().minimize(loss, *args, **kwargs)  # type: ignore[misc]

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Sequence | None = None,
    ) -> Any:
        """Applies gradients, after the decay."""
        if decay_var_list is not None:
            self._decay_var_list = decay_var_list
        pairs = list(grads_and_vars)
        given = [(gradient, v) for gradient, v in pairs if gradient is not None]
        gradients = [gradient for gradient, _ in given]
        decayed = [v for _, v in given] if self._decay_var_list is None else self._decay_var_list
        names = {v.name for v in decayed}
        # The gradients are those of the values before the decay.
        with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
            rate = self._weight_decay() if callable(self._weight_decay) else self._weight_decay
            decays = [_decay(v, gradient, rate) for gradient, v in given if v.name in names]
        with tf.control_dependencies(decays):
            return super().apply_gradients(pairs, global_step, name)  # type: ignore[misc]


class AdamWOptimizer(DecoupledWeightDecayExtension, _Adam):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        """Takes the decay first, then Adam's arguments."""
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, _Momentum):
    """Momentum with decoupled weight decay."""

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        """Takes the decay first, then Momentum's arguments."""
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Returns a class of the optimizer whose first argument is the weight decay."""
    name = f"{base_optimizer.__name__}WithDecoupledWeightDecay"
    return type(name, (DecoupledWeightDecayExtension, base_optimizer), {})


class LazyAdamOptimizer(_Adam):
    """Adam that, for a sparse gradient, changes only the rows that it has, and their moments."""

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return self._apply_to_rows(var, grad.values, grad.indices)

    def _resource_apply_sparse(self, grad: Any, var: Any, indices: Any) -> Any:
        return self._apply_to_rows(var, grad, indices)

    def _apply_to_rows(self, var: Any, values: Any, rows: Any) -> Any:
        powers = self._get_beta_accumulators()
        given = (*powers, self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)
        power1, power2, rate, beta1, beta2, epsilon = (
            tf.cast(value, var.dtype.base_dtype) for value in given
        )
        rate = rate * tf.sqrt(1 - power2) / (1 - power1)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = beta1 * tf.gather(m, rows) + (1 - beta1) * values
        new_v = beta2 * tf.gather(v, rows) + (1 - beta2) * tf.square(values)
        change = rate * new_m / (tf.sqrt(new_v) + epsilon)
        return tf.group(
            _V1.scatter_update(m, rows, new_m),
            _V1.scatter_update(v, rows, new_v),
            _V1.scatter_sub(var, rows, change),
        )


class MovingAverageOptimizer(_Optimizer):
    """An optimizer whose variables have moving averages, which `swapping_saver` saves instead."""

    def __init__(
        self,
        opt: Any,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        """Wraps an optimizer; averages are always taken after its step."""
        super().__init__(False, "MovingAverageOptimizer")
        self._optimizer = opt
        self._ema = tf.train.ExponentialMovingAverage(average_decay, num_updates)
        self._averages: dict[str, Any] | None = None

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Computes gradients as the wrapped optimizer does."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Applies gradients, then updates the averages of the variables with a gradient."""
        pairs = list(grads_and_vars)
        variables = [v for gradient, v in pairs if gradient is not None]
        step = self._optimizer.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([step]):
            update = self._ema.apply(variables)
        self._averages = {v.op.name: self._ema.average(v) for v in variables}
        return tf.group(step, update)

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Any:
        """Makes a Saver that has the average under each variable's name, and the reverse.

        Raises:
          RuntimeError: before `apply_gradients` or `minimize`.
          ValueError: `var_list` has a variable without its average, or the reverse.
        """
        if self._averages is None:
            raise RuntimeError("Call `minimize` or `apply_gradients` before `swapping_saver`.")
        variables = _V1.global_variables() if var_list is None else var_list
        if not isinstance(variables, Mapping):
            variables = {v.op.name: v for v in variables}
        swapped = dict(variables)
        for own, average in self._averages.items():
            other = average.op.name
            if (own in variables) != (other in variables):
                there, missing = (own, other) if own in variables else (other, own)
                raise ValueError(
                    f"`var_list` has {there!r}, but lacks {missing!r}, with which it is swapped. "
                    "Add it, or leave out both."
                )
            if own in variables:
                swapped[own], swapped[other] = average, variables[own]
        return _V1.train.Saver(swapped, name=name, **kwargs)


def _decay(variable: Any, gradient: Any, rate: Any) -> Any:
    """Shrinks a variable; if the gradient is sparse, only the rows that it has, once each."""
    rate = tf.cast(rate, variable.dtype.base_dtype)
    if isinstance(gradient, tf.IndexedSlices):
        rows = tf.unique(gradient.indices)[0]
        return _V1.scatter_sub(variable, rows, rate * tf.gather(variable, rows))
    return _V1.assign_sub(variable, rate * variable)
