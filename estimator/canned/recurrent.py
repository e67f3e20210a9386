"""Recurrent layers, whose variables are named as in tf.estimator 2.15."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.canned.layers import checked_units
from estimator.config.checks import WrongTypeError, check_choice, check_takes_nothing

V1 = tf.compat.v1

# Takes the state, whose first tensor is the output, and an input; returns the next state.
_Step = Callable[[Sequence[tf.Tensor], tf.Tensor], list[tf.Tensor]]


def make_recurrent(
    units: Any, cell_type: Any, rnn_cell_fn: Any
) -> Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor]:
    """Returns a function that builds the recurrent layers; the arguments are of `RNNEstimator`.

    The function takes inputs [batch size, time, size], the mask [batch size, time] of their steps,
    and whether it is built to train. It returns outputs [batch size, time, units], where a
    masked step has the output of the step before.
    """
    if rnn_cell_fn is None:
        cell_type = "simple_rnn" if cell_type is None else cell_type
        is_list = not isinstance(units, numbers.Integral)
        rule = "a list of integers, one for each recurrent layer; or pass `rnn_cell_fn`"
        sizes = checked_units("units", units if is_list else [units], rule)
        if not sizes:
            raise ValueError(f"`units` ({units!r}) must have at least one layer.")
        if isinstance(cell_type, str):
            check_choice("cell_type", cell_type, _CELLS)
            layers = _name_layers(cell_type, len(sizes), is_list=is_list)
            return lambda inputs, mask, _: _build_layers(cell_type, layers, sizes, inputs, mask)
        if not callable(cell_type):
            raise WrongTypeError(
                f"`cell_type` ({cell_type!r}) must be one of {', '.join(map(repr, _CELLS))}, or a "
                "class of RNN cells such as tf.keras.layers.LSTMCell."
            )
        return lambda *inputs: _build_keras(
            "cell_type", [cell_type(units=size) for size in sizes], *inputs
        )
    if units is not None or cell_type is not None:
        raise ValueError(
            "`rnn_cell_fn` is given together with `units` or `cell_type`. Pass the function alone, "
            "or leave it out."
        )
    if not callable(rnn_cell_fn):
        raise WrongTypeError(
            f"`rnn_cell_fn` ({rnn_cell_fn!r}) must be a function without arguments that returns an "
            "RNN cell."
        )
    check_takes_nothing("rnn_cell_fn", rnn_cell_fn)
    return lambda *inputs: _build_keras("rnn_cell_fn", rnn_cell_fn(), *inputs)


def _build_keras(
    argument: str, cells: Any, inputs: tf.Tensor, mask: tf.Tensor, is_training: bool
) -> tf.Tensor:
    cells = cells if isinstance(cells, list | tuple) else [cells]
    if not cells:
        raise ValueError(
            f"`{argument}` gave {cells!r}; it must give at least one RNN cell, such as "
            "tf.keras.layers.LSTMCell(units)."
        )
    for cell in cells:
        if not (hasattr(cell, "call") and hasattr(cell, "state_size")):
            raise WrongTypeError(
                f"`{argument}` gave {cell!r}, which is not an RNN cell: it must have `call` and "
                "`state_size`, as tf.keras.layers.LSTMCell(units) has."
            )
    cell = cells[0] if len(cells) == 1 else list(cells)
    layer = tf.keras.layers.RNN(cell, return_sequences=True, name="rnn")
    return layer(inputs, mask=mask, training=is_training)


def _name_layers(cell: str, num_layers: int, *, is_list: bool) -> list[str]:
    """Returns the variable scopes of layers."""
    if not is_list:
        return [f"{cell}/{cell}_cell"]
    if num_layers == 1:
        return [f"rnn/{cell}_cell"]
    counts = ["", *(f"_{i}" for i in range(1, num_layers))]
    return [f"rnn/stacked_rnn_cells/{cell}_cell{count}" for count in counts]


def _build_layers(
    cell: str, scopes: Sequence[str], sizes: Sequence[int], inputs: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    num_states, build = _CELLS[cell]
    for scope, units in zip(scopes, sizes, strict=True):
        with V1.variable_scope(scope, reuse=V1.AUTO_REUSE):
            projected, step = build(units, inputs)
        start = [tf.zeros([tf.shape(inputs)[0], units])] * num_states
        inputs = _run_steps(step, start, projected, mask)
    return inputs


def _run_steps(
    step: _Step, start: list[tf.Tensor], inputs: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Returns the outputs of all steps, [batch size, time, units]; a masked one keeps the state."""

    def take(state: list[tf.Tensor], now: tuple[tf.Tensor, tf.Tensor]) -> list[tf.Tensor]:
        pairs = zip(step(state, now[0]), state, strict=True)
        return [tf.ensure_shape(tf.where(now[1], *pair), pair[1].shape) for pair in pairs]

    by_time = tf.transpose(inputs, [1, 0, 2]), tf.transpose(mask)[..., tf.newaxis]
    return tf.transpose(tf.scan(take, by_time, initializer=start)[0], [1, 0, 2])


# --- Cells ----------------------------------------------------------------------------------------


def _make_variables(
    inputs: tf.Tensor, units: int, num_gates: int, bias: np.ndarray
) -> tuple[tf.Tensor, ...]:
    """Returns the kernel, the recurrent kernel and the bias, whose initial value is `bias`.

    They are read here, once for all steps.
    """
    size = num_gates * units
    variables = {
        "kernel": ([inputs.shape[-1], size], V1.glorot_uniform_initializer()),
        "recurrent_kernel": ([units, size], V1.orthogonal_initializer()),
        "bias": (bias.shape, V1.constant_initializer(bias)),
    }
    made = [
        V1.get_variable(name, shape, initializer=initializer)
        for name, (shape, initializer) in variables.items()
    ]
    return tuple(map(tf.convert_to_tensor, made))


def _build_simple(units: int, inputs: tf.Tensor) -> tuple[tf.Tensor, _Step]:
    kernel, recurrent, bias = _make_variables(inputs, units, 1, np.zeros(units))

    def step(state: Sequence[tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.tanh(x + state[0] @ recurrent)]

    return tf.tensordot(inputs, kernel, 1) + bias, step


def _build_lstm(units: int, inputs: tf.Tensor) -> tuple[tf.Tensor, _Step]:
    # The forget gate starts open.
    initial = np.repeat([0.0, 1.0, 0.0, 0.0], units)
    kernel, recurrent, bias = _make_variables(inputs, units, 4, initial)

    def step(state: Sequence[tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        output, memory = state
        write, keep, new, read = tf.split(x + output @ recurrent, 4, -1)
        memory = tf.sigmoid(keep) * memory + tf.sigmoid(write) * tf.tanh(new)
        return [tf.sigmoid(read) * tf.tanh(memory), memory]

    return tf.tensordot(inputs, kernel, 1) + bias, step


def _build_gru(units: int, inputs: tf.Tensor) -> tuple[tf.Tensor, _Step]:
    # As in cuDNN: a bias for each kernel, and the reset gate is applied after the product.
    kernel, recurrent, bias = _make_variables(inputs, units, 3, np.zeros([2, 3 * units]))

    def step(state: Sequence[tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        inputs_of = tf.split(x, 3, -1)
        states_of = tf.split(state[0] @ recurrent + bias[1], 3, -1)
        keep, reset = (tf.sigmoid(a + b) for a, b in zip(inputs_of[:2], states_of[:2], strict=True))
        return [keep * state[0] + (1 - keep) * tf.tanh(inputs_of[2] + reset * states_of[2])]

    return tf.tensordot(inputs, kernel, 1) + bias[0], step


# By name: the number of tensors in the state, and what builds the cell.
_CELLS = {"simple_rnn": (1, _build_simple), "lstm": (2, _build_lstm), "gru": (1, _build_gru)}
