"""Private parts of random ops: their seeds, and the counters of the loops around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import random_seed as _random_seed
from tensorflow.python.ops import control_flow_util as _control_flow
from tensorflow.python.ops import control_flow_v2_func_graphs as _func_graphs
from tensorflow.python.ops import gen_random_ops
from tensorflow.python.ops import parallel_for as _parallel_for
from tensorflow.python.ops import random_ops_util as _random_ops_util

from estimator._tf.callers import asks_keras, is_on_stack
from estimator._tf.graph import outer_graphs
from estimator._tf.patches import Patch, patched, together


def swap_seed_counter(graph: tf.Graph, count: int) -> int:
    """Sets the number of op seeds that `graph` has assigned; returns the previous number.

    An op without a seed of its own gets the graph's seed and this number. 2.16 to 2.21.
    """
    before = _random_seed._graph_to_seed_dict.get(graph, 0)
    _random_seed._graph_to_seed_dict[graph] = count
    return before


def random_ops_replaced(draw: Callable[..., Any], names: Iterable[str]) -> Patch:
    """Inside, calls of these functions of `gen_random_ops` call `draw` instead, on all threads.

    Every public random function calls one of them. Inside branches and loops an existing op cannot
    be replaced, so its function is. Builds hold a lock. 2.16 to 2.21.

    Args:
      draw: is called with the function's name, the function, and its arguments.
      names: the names of the functions.
    """
    return together(
        patched(gen_random_ops, name, functools.partial(functools.partial, draw, name))
        for name in names
    )


def keras_seeds_replaced(replaced: Callable[[tf.Tensor], tf.Tensor]) -> Patch:
    """Inside, stateless random ops that Keras itself makes get the seed `replaced(seed)`.

    Keras 3 only draws with such ops, from seeds that are equal on all replicas. Calls by user code
    are not affected. random_ops_util.get_key_counter_alg 2.16 to 2.21.
    """

    def make(original: Callable) -> Callable:
        return lambda seed, alg: original(replaced(seed) if asks_keras() else seed, alg)

    return patched(_random_ops_util, "get_key_counter_alg", make)


def loop_counters(graph: tf.Graph) -> list[tf.Tensor] | None:
    """Returns the iteration counters of the loops around the current position, outermost first.

    The body and the condition of a v2 loop take its counter as their first argument. 2.16 to 2.21.

    Returns:
      A scalar for each loop inside `graph`. None if they do not tell how often an op made here has
      run: if the default graph is not inside `graph`, or the op is in a function, which may be
      called from anywhere, in a v1 loop, which has no counter, or in a vectorized map.
    """
    inside = outer_graphs(tf.compat.v1.get_default_graph())
    if tf.executing_eagerly() or graph not in inside:
        return None
    inside = inside[: inside.index(graph) + 1]
    if any(map(_is_in_v1_loop, inside)) or is_on_stack(tuple(_parallel_for.__path__)):
        return None
    counters = []
    for inner in reversed(inside[:-1]):
        if isinstance(inner, _func_graphs.WhileBodyFuncGraph | _func_graphs.WhileCondFuncGraph):
            counters.append(inner.inputs[0])
        elif not isinstance(inner, _func_graphs.CondBranchFuncGraph):
            return None
    return counters


def _is_in_v1_loop(graph: tf.Graph) -> bool:
    context = graph._get_control_flow_context()
    return _control_flow.GetContainingWhileContext(context) is not None
