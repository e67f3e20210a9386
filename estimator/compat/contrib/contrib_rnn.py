"""`tf.contrib.rnn`: cells and functions that tf.nn has; the cells need tf-keras."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


def __getattr__(name: str) -> Any:
    """Returns a cell, or a layer that runs over a whole sequence.

    Raises:
      AttributeError: it is neither, or tf-keras is not used.
    """
    if not name[0].isupper():
        raise AttributeError(name)
    try:
        if name in ("LSTMBlockFusedCell", "TimeReversedFusedRNN"):
            return getattr(importlib.import_module(f"{__package__}.contrib_fused_rnn"), name)
        return getattr(_V1.nn.rnn_cell, name)
    except (AttributeError, ImportError) as error:
        raise AttributeError(
            f"tf.contrib.rnn.{name} needs tf-keras as tf.keras: pip install tf-keras, and run the "
            "program by `python -m estimator.compat`."
        ) from error


def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence,
    cells_bw: Sequence,
    inputs: tf.Tensor,
    initial_states_fw: Sequence | None = None,
    initial_states_bw: Sequence | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[tf.Tensor, tuple, tuple]:
    """Runs layers of cells in both directions, each on the outputs of the one below.

    Returns the last layer's outputs, and all layers' last states forwards and backwards.
    """
    states: tuple[list, list] = ([], [])
    with _V1.variable_scope(scope or "stack_bidirectional_rnn"):
        for i, (forward, backward) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with _V1.variable_scope(f"cell_{i}"):
                outputs, ends = _V1.nn.bidirectional_dynamic_rnn(
                    forward,
                    backward,
                    inputs,
                    sequence_length,
                    initial_states_fw[i] if initial_states_fw else None,
                    initial_states_bw[i] if initial_states_bw else None,
                    dtype,
                    parallel_iterations,
                    swap_memory,
                    time_major,
                )
            inputs = tf.concat(outputs, 2)
            for kept, end in zip(states, ends, strict=True):
                kept.append(end)
    return inputs, tuple(states[0]), tuple(states[1])
